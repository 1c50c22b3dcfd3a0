"""A folder of ranks in one file: a zip of what `ranks_folder` writes. It is data, never code."""

from __future__ import annotations

import lzma
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.ranks_folder import INDEX, load_ranks, write_ranks
from memplan_engine.formats.read_limits import MAX_RATIO, MAX_TEXT_BYTES, file_size
from memplan_engine.formats.zip_directory import MAX_DIRECTORY_BYTES, directory_bytes
from memplan_engine.recordings.rank_run import RankRun

MOST_FILES = 4_096
"""In one archive: more ranks than anybody runs one by one."""
EXPECTED = f"a zip of a folder that `memplan devices -o` wrote, with its {INDEX}"
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What Python raises for an archive that is broken, packed in another way or locked."""
_RANK_FILE = re.compile(r"rank[0-9]{1,9}\.json", re.ASCII)


def write_ranks_archive(runs: Sequence[RankRun], path: Path) -> None:
    """Write `runs` to a zip at `path`.

    Raises
    ------
    InputError: a place that cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="memplan-") as folder:
        write_ranks(runs, Path(folder))
        try:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
                for file in sorted(Path(folder).iterdir()):
                    # No time of today: the same runs give the same bytes.
                    archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_LZMA)
        except OSError as error:
            raise InputError(
                str(path), "", error.strerror or str(error), "a place that can be written"
            ) from None


def is_ranks_archive(path: Path) -> bool:
    """Whether the file at `path` is a zip with an index of ranks in it."""
    try:
        if path.suffix != ".zip" or directory_bytes(path) > MAX_DIRECTORY_BYTES:
            return False
        with zipfile.ZipFile(path) as archive:
            return any(PurePosixPath(name).name == INDEX for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def load_ranks_archive(path: Path) -> tuple[RankRun, ...]:
    """The runs in the zip at `path`; of its files the index and the observations beside it are unpacked, no
    others, to a folder of our own.

    Raises
    ------
    InputError: no such zip, one that unpacks to more than MAX_TEXT_BYTES, and what `load_ranks` refuses.
    """
    file_size(path)
    with tempfile.TemporaryDirectory(prefix="memplan-") as made:
        folder = Path(made)
        try:
            if (nbytes := directory_bytes(path)) > MAX_DIRECTORY_BYTES:
                found = f"a table of contents of {nbytes:,} bytes"
                raise InputError(path.name, "", found, f"at most {MAX_DIRECTORY_BYTES:,}")
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, folder, path)
        except DAMAGED as error:
            raise InputError(path.name, "", f"a damaged zip ({error})", EXPECTED) from None
        except (OSError, ValueError) as error:
            raise InputError(path.name, "", str(error), EXPECTED) from None
        try:
            return load_ranks(folder)
        except InputError as error:
            name = error.source.replace(str(folder), path.name)
            raise InputError(name, error.place, error.found, error.expected) from None


def _unpack(archive: zipfile.ZipFile, folder: Path, path: Path) -> None:
    index = [info for info in archive.infolist() if PurePosixPath(info.filename).name == INDEX]
    if len(index) != 1:
        raise InputError(path.name, "", f"{len(index)} files {INDEX}", EXPECTED)
    home = PurePosixPath(index[0].filename).parent
    chosen = [
        info
        for info in archive.infolist()
        if PurePosixPath(info.filename).parent == home
        and (info is index[0] or _RANK_FILE.fullmatch(PurePosixPath(info.filename).name))
    ]
    if len(chosen) > MOST_FILES:
        raise InputError(path.name, "", f"{len(chosen):,} files", f"at most {MOST_FILES:,}")
    # What the table of contents says is checked again while it is unpacked: `open` stops at these sizes.
    total = sum(info.file_size for info in chosen)
    packed = max(sum(info.compress_size for info in chosen), 1)
    if total > MAX_TEXT_BYTES or total > MAX_RATIO * packed + (1 << 20):
        found = f"{total:,} bytes from {packed:,} packed ones"
        raise InputError(
            path.name, "", found, f"at most {MAX_TEXT_BYTES:,}, {MAX_RATIO} times the packed size"
        )
    for info in chosen:
        with archive.open(info) as source:
            content = source.read(info.file_size + 1)
        if len(content) != info.file_size:
            raise InputError(path.name, info.filename, "more bytes than its table of contents says", EXPECTED)
        (folder / PurePosixPath(info.filename).name).write_bytes(content)


if __name__ == "__main__":
    write_ranks_archive(load_ranks(Path(sys.argv[1])), Path(sys.argv[2]))
