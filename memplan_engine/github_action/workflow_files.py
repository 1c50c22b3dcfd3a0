"""What a workflow hands to a step and takes from it: files named by the environment, commands on stdout."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan_engine.errors import InputError

Environment = Mapping[str, str]
NO_COMMIT = "0" * 40


@dataclass(frozen=True, slots=True)
class Event:
    """Why the workflow runs. Of a pull request `number` is above 0 and `base` the tip of the branch that it
    goes into; of a push `base` is what the branch was at before, "" for a new one."""

    repository: str
    number: int = 0
    base: str = ""

    @property
    def is_pull_request(self) -> bool:
        """Whether there is somewhere to comment."""
        return self.number > 0


def read_event(environment: Environment) -> Event:
    """The event that GitHub describes in the file GITHUB_EVENT_PATH.

    Raises
    ------
    InputError: a file that is no such description.
    """
    repository, path = environment.get("GITHUB_REPOSITORY", ""), environment.get("GITHUB_EVENT_PATH", "")
    if not path:
        return Event(repository)
    try:
        event = json.loads(Path(path).read_bytes())
        if pull := event.get("pull_request"):
            return Event(repository, int(pull["number"]), str(pull["base"]["sha"]))
        before = str(event.get("before") or "")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError("GITHUB_EVENT_PATH", "", found, "the event as GitHub writes it") from None
    return Event(repository, 0, "" if before == NO_COMMIT else before)


def set_outputs(environment: Environment, values: Mapping[str, object]) -> None:
    """Add `values` to the step's outputs; a value may have several lines."""
    end = secrets.token_hex(16)
    lines = [f"{name}<<{end}\n{value}\n{end}\n" for name, value in values.items()]
    _append(environment, "GITHUB_OUTPUT", "".join(lines))


def add_summary(environment: Environment, markdown: str) -> None:
    """Add `markdown` to the page of the run."""
    _append(environment, "GITHUB_STEP_SUMMARY", markdown)


def workflow_command(kind: str, message: str) -> None:
    """An annotation of the run: `kind` is error, warning or notice."""
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{kind} title=memplan::{escaped}", flush=True)


@contextmanager
def plain_output() -> Iterator[None]:
    """What is printed meanwhile is text: names in it are no commands to the runner, whatever they hold."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def temporary_folder(environment: Environment) -> Path:
    """Where steps leave files to each other."""
    folder = Path(_given(environment, "RUNNER_TEMP")) / "memplan"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _append(environment: Environment, name: str, text: str) -> None:
    with Path(_given(environment, name)).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _given(environment: Environment, name: str) -> Any:
    if not environment.get(name):
        raise InputError(name, "", "nothing", "a path: the steps of the action run in a workflow of GitHub")
    return environment[name]
