"""A saved exported program (`torch.export.save`) → Graph, without reading its weights.

The file is a zip: the graph is JSON in it, the weights are records of their own that stay closed. Nothing is
ever unpickled.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.errors import InputError
from memplan_engine.formats.json_stream import parse_plain
from memplan_engine.formats.read_limits import MAX_RATIO, MAX_TEXT_BYTES
from memplan_engine.formats.zip_directory import MAX_DIRECTORY_BYTES, directory_bytes
from memplan_engine.torch_capture.torch_fake import require_torch

if TYPE_CHECKING:
    from memplan_engine.formats.importer import ImportOptions
    from memplan_engine.graph import Graph

MODEL = re.compile(r"(?P<root>.+?)/models/(?P<model>[^/]+)\.json")
OLD_MODEL = "serialized_exported_program.json"
"""Where the graph stands in files saved before there was an archive format (torch 2.7 and older)."""
MAX_JSON_BYTES = MAX_TEXT_BYTES


@dataclass(frozen=True, slots=True)
class Pt2Importer:
    """Programs saved by `torch.export.save`."""

    name: str = "pt2"
    description: str = "a PyTorch exported program"
    binds_dimensions: bool = False

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether the file is a zip with an exported program in it, or the remains of one."""
        if not head.startswith(b"PK"):
            return False
        try:
            if directory_bytes(path) > MAX_DIRECTORY_BYTES:
                return path.suffix == ".pt2"
            with zipfile.ZipFile(path) as archive:
                return any(MODEL.fullmatch(name) or name == OLD_MODEL for name in archive.namelist())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            # Cut short, a zip has lost its table of contents, but torch's names still stand in its head.
            return path.suffix == ".pt2" or b"/data/weights/" in head or b"/archive_format" in head

    def load(self, path: Path, options: ImportOptions) -> Graph:
        """The graph in the file, as `torch_graph.graph_from_exported` has it; weights are not read.

        Symbolic sizes keep their formulas, in symbols `s0`, `s1`, … (torch does not save the names of Dims),
        at the values of the inputs that the program was exported with. A file of several programs gives the
        one called "model".

        Raises
        ------
        InputError: a damaged zip, one that holds no exported program or several, one that inflates beyond
            reason, a program of another schema version, one that uses custom objects or unknown operators.
        MissingDependencyError: torch is not installed.
        """
        require_torch("reading a .pt2 file")
        from memplan_engine.torch_capture.torch_graph import graph_of_program
        from memplan_engine.torch_capture.torch_serde import read_program

        with opened(path) as archive:
            member = _model_member(archive, path.name)
            model = _read_json(archive, member, path.name)
            payloads = _payloads(archive, member, path.name)
        return graph_of_program(read_program(model, payloads, path.name), path.stem)


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip at `path`; raises InputError for one that is damaged or cannot be read."""
    source = path.name
    try:
        if (nbytes := directory_bytes(path)) > MAX_DIRECTORY_BYTES:
            found = f"a table of contents of {nbytes:,} bytes"
            raise InputError(source, "", found, f"at most {MAX_DIRECTORY_BYTES:,}")
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(source, "", f"a damaged zip ({error})", "a file of torch.export.save") from error
    except (OSError, ValueError) as error:
        raise InputError(source, "", str(error), "a readable file of torch.export.save") from error


def read_weights(path: Path) -> tuple[Any, dict[str, tuple[Any, dict[str, bytes]]]]:
    """The JSON of the program in a .pt2 file, and for weights and constants the configuration and the raw
    bytes of each record; raises InputError as `Pt2Importer.load` does, and for weights that are pickled."""
    with opened(path) as archive:
        member = _model_member(archive, path.name)
        model = _read_json(archive, member, path.name)
        payloads = {}
        for kind, (config, sizes) in _payloads(archive, member, path.name).items():
            folder = f"{member.partition('/models/')[0]}/data/{kind}/"
            names = sorted(_raw_records(config, sizes, path.name))
            for name in names:
                if archive.getinfo(folder + name).compress_type != zipfile.ZIP_STORED:
                    raise InputError(path.name, f"record {name!r}", "packed bytes", "bytes as they are")
            payloads[kind] = (config, {name: archive.read(folder + name) for name in names})
    return model, payloads


def _raw_records(config: Any, sizes: Mapping[str, int], source: str) -> set[str]:
    """The records with the bytes of tensors; raises InputError where bytes are missing or are a pickle."""
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise InputError(source, "weights", "no list of tensors", "a file of torch.export.save")
    for name, entry in entries.items():
        if entry.get("use_pickle") or entry.get("tensor_meta") is None:
            expected = "plain bytes: nothing in a file is ever unpickled"
            raise InputError(source, f"weight {name!r}", "a pickle", expected)
        if entry.get("path_name") not in sizes:
            raise InputError(source, f"weight {name!r}", "no record with its bytes", "a file with weights")
    return {str(entry["path_name"]) for entry in entries.values()}


def _model_member(archive: zipfile.ZipFile, source: str) -> str:
    """The name of the member that holds the graph."""
    names = [name for name in archive.namelist() if MODEL.fullmatch(name)]
    if OLD_MODEL in archive.namelist():
        return OLD_MODEL
    candidates = [name for name in names if name.endswith("/models/model.json")] if len(names) > 1 else names
    if len(candidates) == 1:
        return candidates[0]
    if not names:
        raise InputError(
            source, "", "a zip without models/*.json", "an exported program of torch.export.save"
        )
    raise InputError(source, "models", f"{len(names)} programs", 'one, or one called "model"')


def _read_json(archive: zipfile.ZipFile, member: str, source: str) -> Any:
    info = archive.getinfo(member)
    packed, declared = max(info.compress_size, 1), info.file_size
    if declared > MAX_JSON_BYTES:
        raise InputError(source, member, f"{declared:,} bytes", f"at most {MAX_JSON_BYTES:,}")
    if declared > MAX_RATIO * packed:
        found = f"{declared:,} bytes packed into {packed:,}"
        raise InputError(source, member, found, f"a packing ratio of at most {MAX_RATIO} (a zip bomb?)")
    with archive.open(info) as stream:
        data = stream.read(declared + 1)
    if len(data) != declared:
        raise InputError(source, member, f"{len(data):,} bytes or more", f"{declared:,}, as declared")
    return parse_plain(data, source, member)


def _payloads(archive: zipfile.ZipFile, member: str, source: str) -> dict[str, tuple[Any, dict[str, int]]]:
    """For weights and constants: the configuration, and the bytes of each record."""
    match = MODEL.fullmatch(member)
    payloads: dict[str, tuple[Any, dict[str, int]]] = {}
    if match is None:
        return payloads
    names = set(archive.namelist())
    for kind in ("weights", "constants"):
        folder = f"{match['root']}/data/{kind}/"
        config = f"{folder}{match['model']}_{kind}_config.json"
        if config in names:
            sizes = {
                info.filename.removeprefix(folder): info.file_size
                for info in archive.infolist()
                if info.filename.startswith(folder)
            }
            payloads[kind] = (_read_json(archive, config, source), sizes)
    return payloads
