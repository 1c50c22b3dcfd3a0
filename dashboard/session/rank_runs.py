"""Recorded ranks of distributed runs, as the page Devices opens them: what there is, read once, and judged
for a device and allocator settings without running anything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import streamlit as st
from memplan_dashboard.session import documents, folder, uploads

from memplan_engine import InputError, MemplanError
from memplan_engine.accelerators.presets import accelerator
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.devices.rank_answers import DeviceAnswers, device_answers
from memplan_engine.formats.memplan_json.ranks_archive import load_ranks_archive
from memplan_engine.formats.memplan_json.ranks_folder import INDEX, load_ranks
from memplan_engine.formats.memplan_json.sweep_folder import INDEX as SWEEP_INDEX
from memplan_engine.formats.memplan_json.sweep_folder import is_sweep, sweep_names
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.units import parse_bytes

KIND = "ranks"
SWEEP = "sweep"
"""Keys of configurations of a sweep: "sweep:grid/0123456789abcdef"."""
EXAMPLE = "recorded"
"""Keys of what comes with memplan: "recorded:llama_fsdp_8"."""
MOST_LETTERS = 200
"""Of settings and headroom, which are said again in errors: all settings at once have some 190."""


def catalogue() -> dict[str, str]:
    """All that can be chosen, key → label: the command line's, uploads, the folder's, and memplan's own."""
    labels = documents.given_ranks() | uploads.listed(KIND)
    for name, sweep in _sweeps().items():
        # A broken index is told of by `memplan devices FOLDER`; the others are listed.
        with suppress(MemplanError):
            labels |= {f"{SWEEP}:{name}/{each}": told or name for each, told in sweep_names(sweep).items()}
    below = folder.listed()
    for key, name in below.items():
        path = folder.find(key)
        if path is not None and path.name == INDEX and not is_sweep(path.parent.parent):
            labels[key] = str(Path(name).parent)
    return labels | {f"{EXAMPLE}:{_name(path)}": _name(path).replace("_", " ") for path in _recorded()}


def _sweeps() -> dict[str, Path]:
    """The folders of sweeps, by name: those of the command line, the folder, and those below it."""
    found = documents.given_sweeps()
    root = folder.root()
    if root is not None and is_sweep(root):
        found[root.name] = root
    for key, name in folder.listed().items():
        path = folder.find(key)
        if path is not None and path.name == SWEEP_INDEX and path.parent != root:
            found[str(Path(name).parent)] = path.parent
    return found


def of_the_same_sweep(key: str) -> list[str]:
    """The other configurations of the sweep that `key` is of, in its order; none where it is of none."""
    sweep = key.rpartition("/")[0]
    return [each for each in catalogue() if key.startswith(f"{SWEEP}:") and each.startswith(f"{sweep}/")]


def _name(path: Path) -> str:
    return path.name.removesuffix(".ranks.zip")


def _recorded() -> list[Path]:
    import memplan_examples

    return sorted(Path(memplan_examples.__path__[0]).glob("*.ranks.zip"))


def path_of(key: str) -> Path:
    """The folder or zip behind a key; InputError where there is none."""
    kind, _, name = key.partition(":")
    if kind == EXAMPLE:
        for path in _recorded():
            if _name(path) == name:
                return path
        raise InputError(name[:80], "", "no such recording", "one of those in the list")
    if kind == SWEEP:
        of, _, digest = name.rpartition("/")
        sweep = _sweeps().get(of)
        if sweep is None or digest not in sweep_names(sweep):
            raise InputError(name[:80], "", "no such configuration", "one of those in the list")
        return sweep / digest
    path = documents.path_of(key)
    return path.parent if path.name == INDEX else path


def version_of(key: str) -> tuple[int, int]:
    """Changes when what is behind `key` does."""
    path = path_of(key)
    try:
        status = (path / INDEX if path.is_dir() else path).stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def label_of(key: str) -> str:
    """How people call it; "" for a key of nothing."""
    return catalogue().get(key, key.partition(":")[2])


def open_ranks(key: str) -> tuple[RankRun, ...]:
    """The ranks that were run; raises MemplanError."""
    return _load(key, version_of(key))


# A folder of 64 ranks of a large model takes some 500 MB: few at a time.
@st.cache_resource(max_entries=8, show_spinner="Reading the ranks …")
def _load(key: str, version: tuple[int, int]) -> tuple[RankRun, ...]:
    path = path_of(key)
    try:
        return load_ranks(path) if path.is_dir() else load_ranks_archive(path)
    except MemplanError as error:
        raise MemplanError(str(error).replace(str(path), path.name)) from error


def answers_of(key: str, gpu: str, settings: str, headroom: str) -> DeviceAnswers:
    """What each rank takes of a `gpu`; raises MemplanError for settings or headroom that are none."""
    for name, text in (("settings", settings), ("headroom", headroom)):
        if len(text) > MOST_LETTERS:
            found = f"{len(text):,} letters"
            raise InputError(name, "", found, f"at most {MOST_LETTERS}")
    parse_settings(settings, "settings")
    parse_bytes(headroom or "0", "headroom")
    return _answers(key, version_of(key), gpu, settings, headroom)


@st.cache_resource(max_entries=32, show_spinner="Simulating the allocator …")
def _answers(key: str, version: tuple[int, int], gpu: str, settings: str, headroom: str) -> DeviceAnswers:
    free = parse_bytes(headroom or "0", "headroom")
    return device_answers(open_ranks(key), accelerator(gpu), parse_settings(settings), headroom=free)
