"""What `memplan fit` writes of the user's own source: a patch, and modules to wrap in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memplan_engine.advice.checkpoint_code import Checkpoints, checkpoints_for, with_checkpoints
from memplan_engine.advice.source_edits import Edited
from memplan_engine.advice.source_patch import Recaptured, SourcePatch, patch_of
from memplan_engine.analysis.op_costs import OpTimes
from memplan_engine.cli.output import tell
from memplan_engine.errors import InputError
from memplan_engine.fitting.fitted import Fitted
from memplan_engine.formats.read_limits import read_text
from memplan_engine.system import write_atomically
from memplan_engine.torch_capture.factory_spec import parse_factory

Begin = Callable[[str], None]


@dataclass
class SourceChanges:
    """Of the factory `model` the patch to be written to `patch_path` and the code of checkpoints to be
    written to `checkpoints_path`, each captured again, None where nobody asked; `step` and `seed` are those
    of the capture.

    Raises
    ------
    InputError: what is no file.py:factory, where one of them is asked for.
    """

    model: str
    patch_path: Path | None
    checkpoints_path: Path | None
    step: dict[str, Any] | None
    seed: int
    text: str = ""
    patch: SourcePatch | None = None
    checkpoints: Checkpoints | None = None
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.file = Path(self.model.partition("(")[0].rpartition(":")[0])
        asked = "--patch" if self.patch_path else "--checkpoints" if self.checkpoints_path else ""
        if not asked:
            return
        if self.file.suffix != ".py" or not self.file.is_file():
            expected = "file.py:factory, whose file can be changed"
            raise InputError(asked, "", repr(self.model), expected)
        self.text = read_text(self.file)

    def find(self, fitted: Fitted, times: OpTimes, begin: Begin) -> None:
        """What can be written of `fitted`, which had these `times`. Somebody who interrupts it keeps what is
        there: the fit itself is."""
        try:
            if self.patch_path:
                self.patch = self._patch(fitted, begin)
            self.checkpoints = checkpoints_for(fitted, times)
            if self.checkpoints and self.checkpoints_path:
                begin("capturing with checkpoints")
                text = with_checkpoints(
                    self.text, parse_factory(self.model).function, self.checkpoints.wrapping
                )
                (found,) = self._recapture([text], frees_gradients=False)
                self.checkpoints = replace(self.checkpoints, recaptured=found)
        except KeyboardInterrupt:
            tell("memplan: interrupted: the source was not captured again")

    def _patch(self, fitted: Fitted, begin: Begin) -> SourcePatch:
        here, whole = Path.cwd(), self.file.resolve()
        path = whole.relative_to(here).as_posix() if whole.is_relative_to(here) else self.file.name

        def tried(edits: Sequence[Edited]) -> list[Recaptured]:
            begin("capturing the changed source")
            texts = [edited.text for edited in edits]
            return self._recapture(texts, frees_gradients=edits[0].frees_gradients)

        return patch_of(self.text, path, fitted, tried)

    def _recapture(self, texts: Sequence[str], *, frees_gradients: bool) -> list[Recaptured]:
        from memplan_engine.runtime.trial.recapture import recapture

        return recapture(self.model, texts, self.step, seed=self.seed, frees_gradients=frees_gradients)

    def write(self) -> None:
        """Write them; where there is none, one of a run before would be taken for that of this one."""
        code = self.checkpoints.code if self.checkpoints and self.checkpoints.is_confirmed else ""
        for path, content in (
            (self.patch_path, self.patch.diff if self.patch else ""),
            (self.checkpoints_path, code),
        ):
            if path and content:
                write_atomically(path, content.encode())
            elif path:
                path.unlink(missing_ok=True)

    def summary(self) -> dict[str, Any]:
        """As plain values for machines: what there is of them."""
        found = {"patch": self.patch, "checkpoints": self.checkpoints}
        return {name: each.summary() for name, each in found.items() if each}
