"""Where the graphs come from that are checked: a file, a factory, the same at another commit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memplan_engine.errors import InputError, MemplanError
from memplan_engine.files import load
from memplan_engine.graph import Graph
from memplan_engine.history.commit_points import PLACES, SECONDS
from memplan_engine.history.git.git_commit import ask_git
from memplan_engine.history.git.git_history import known_commit
from memplan_engine.history.git.worktrees import worktrees
from memplan_engine.history.graph_blobs import graph_from_json
from memplan_engine.torch_capture.factory_spec import parse_factory
from memplan_engine.torch_capture.given_model import GivenModel


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A graph's file, or a factory as `parse_factory` reads it, which `training` asks for a whole step."""

    text: str
    is_factory: bool
    training: bool = False

    def given(self) -> GivenModel:
        """The model, of the files that are there now."""
        if self.is_factory:
            return GivenModel(self.text, training=self.training)
        return GivenModel(load_graph(Path(self.text)))

    def graph_in(self, folder: Path) -> Graph:
        """The graph of the files in `folder`; a factory runs in a process of its own, which finds those.

        Raises
        ------
        MemplanError: it is not there, or cannot be captured.
        """
        if not self.is_factory:
            if Path(self.text).is_absolute():
                raise InputError(self.text, "", "an absolute path", "one within the repository")
            return load_graph(folder / self.text)
        from memplan_engine.runtime.scripts.factory_capture import FactoryRequest, capture_apart

        kind = "step" if self.training else ""
        here = Path.cwd().resolve()
        request = FactoryRequest(self.text, folder.resolve(), PLACES, kind, elsewhere=here)
        return graph_from_json(capture_apart(request, SECONDS), f"factory {self.text}")

    def is_new(self, folder: Path, error: MemplanError) -> bool:
        """Whether `graph_in(folder)` raised `error` because the files there do not have the model: no such
        file, or no such function in it. What today's model is made of has been imported."""
        if not self.is_factory:
            return not (folder / self.text).exists()
        spec = parse_factory(self.text)
        if isinstance(error, InputError) and error.found == spec.not_found:
            return True
        if spec.module.endswith(".py"):
            return not (folder / spec.module).exists()
        module = Path(*spec.module.split("."))
        files = f"{module}.py", module / "__init__.py"
        names = {place / each for place in map(Path, PLACES) for each in files}
        today = getattr(sys.modules.get(spec.module), "__file__", None)
        here = Path.cwd().resolve()
        if today and Path(today).resolve().is_relative_to(here):
            names.add(Path(today).resolve().relative_to(here))
        return not any((folder / name).exists() for name in names)


def load_graph(path: Path) -> Graph:
    """The graph in the file; raises InputError for one that holds something else."""
    loaded = load(path)
    if not isinstance(loaded, Graph):
        raise InputError(path.name, "", f"a {type(loaded).__name__.lower()}", "a graph")
    return loaded


@contextmanager
def files_at(commit: str, folder: Path) -> Iterator[Path]:
    """What is at `commit` in the place of `folder`, in a worktree that is gone afterwards.

    Raises
    ------
    InputError: no repository, or no such commit. MemplanError: git is not installed.
    """
    named = known_commit(folder, commit)
    within = ask_git(folder, "rev-parse", "--show-prefix")
    with worktrees(folder, 1) as trees, trees.at(named) as tree:
        yield tree / within
