"""What a process that predicts a run leaves in a folder, and how it is read. Known without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.formats.memplan_json.observation_file import load_observation, write_observation
from memplan_engine.recordings.observation import Observation
from memplan_engine.system import ended_words

RUN, ERROR, SAID = "run.json", "error.json", "said.txt"
PARTS = ("source", "place", "found", "expected")


def leave(observe: Callable[[], Observation], folder: Path) -> None:
    """Write to `folder` what `observe()` gives, or its InputError, for `answer` to read."""
    with leaving_errors(folder):
        write_observation(observe(), folder / RUN)


@contextmanager
def leaving_errors(folder: Path) -> Iterator[None]:
    """An InputError is written to `folder`, for `check_answer` to raise."""
    try:
        yield
    except InputError as error:
        half = folder / "half.json"
        half.write_text(json.dumps({name: getattr(error, name) for name in PARTS}))
        half.rename(folder / ERROR)


def answer(folder: Path, code: int, name: str) -> Observation:
    """What a process left in `folder` that ended with `code`; SAID there has what it wrote on stderr.

    Raises
    ------
    InputError: the one that it left. MemplanError: it left nothing.
    """
    return load_observation(check_answer(folder / RUN, code, name))


def check_answer(path: Path, code: int, name: str) -> Path:
    """`path`, which a process that ended with `code` has left; raises as `answer` where it has not."""
    wrong = path.parent / ERROR
    if wrong.exists():
        raise InputError(**json.loads(wrong.read_text()))
    if not path.exists():
        raise no_answer(path.parent, code, name)
    return path


def no_answer(folder: Path, code: int, name: str) -> MemplanError:
    """The error of a process that ended with `code` before it left what it was to leave in `folder`."""
    said = folder / SAID
    text = said.read_text(errors="replace") if said.exists() else ""
    return MemplanError(f"{name}: {ended_words(code, text)}")
