"""The build backend: setuptools, whose archives here are a function of the commit alone.

Owners, modes, dates and the order of what is packed are the same whoever builds, with whatever umask and
wherever (https://reproducible-builds.org), and a bill of materials goes into the wheel (PEP 770). The date is
SOURCE_DATE_EPOCH, else the commit's, else, in a source distribution, the date of what was unpacked.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sbom import sbom
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
FIRST_DATE = 315_532_800
"""1980-01-01 in seconds after 1970: a zip knows no earlier one."""


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build the source distribution and return its name."""
    for stale in ROOT.glob("*.egg-info/SOURCES.txt"):
        stale.unlink()  # setuptools would pack again what an earlier version has packed.
    name = build_meta.build_sdist(sdist_directory, config_settings)
    repack_tar(Path(sdist_directory, name), source_date())
    return name


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel, its metadata made before or now, and return its name."""
    with TemporaryDirectory() as folder:
        if metadata_directory is None:
            metadata_directory = str(Path(folder, prepare_metadata_for_build_wheel(folder, config_settings)))
        name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    repack_zip(Path(wheel_directory, name), source_date())
    return name


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """Write the wheel's metadata, the bill of materials among them, and return their folder's name."""
    name = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    folder = Path(metadata_directory, name, "sboms")
    folder.mkdir()
    (folder / "memplan.cdx.json").write_text(sbom(source_date()), encoding="utf-8")
    return name


def source_date() -> int:
    """The date of what is built, in seconds after 1970."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    if (ROOT / ".git").exists():
        line = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return int((ROOT / "pyproject.toml").stat().st_mtime)


def repack_tar(path: Path, date: int) -> None:
    """Write the gzipped tar at `path` anew, sorted, with one date and without an owner."""
    with tarfile.open(path) as old:
        # What setuptools notes for itself differs between a checkout and what was unpacked.
        kept = [each for each in old.getmembers() if ".egg-info" not in each.name]
        members = {each.name: (each, old.extractfile(each)) for each in kept}
        with (
            path.with_suffix(".new").open("wb") as file,
            gzip.GzipFile("", "wb", mtime=date, fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new,
        ):
            for _, (member, content) in sorted(members.items()):
                plain = tarfile.TarInfo(member.name)
                plain.type, plain.size, plain.mtime = member.type, member.size, date
                plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                new.addfile(plain, content)
    path.with_suffix(".new").replace(path)


def repack_zip(path: Path, date: int) -> None:
    """Write the zip at `path` anew, with one date and modes; the order is setuptools', which sorts."""
    stamp = time.gmtime(max(date, FIRST_DATE))[:6]
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_suffix(".new"), "w") as new:
        for name in old.namelist():
            entry = zipfile.ZipInfo(name, stamp)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16  # Unix; a file, not to be run
            new.writestr(entry, old.read(name), zipfile.ZIP_DEFLATED)
    path.with_suffix(".new").replace(path)
