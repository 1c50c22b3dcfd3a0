"""What a fit comes to in the user's own code: a patch, which is claimed only once it was captured again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan_engine.advice.fit_stages import Fitted, StageName
from memplan_engine.advice.planning_changes import EARLY_UPDATES
from memplan_engine.advice.source_edits import Edited, move_statements, unified_diff, write_in_place
from memplan_engine.errors import InputError
from memplan_engine.formats.read_limits import read_text
from memplan_engine.rewrites.reuse.kinds import is_concat
from memplan_engine.rewrites.reuse.writes_over import writes_over
from memplan_engine.units import exact

if TYPE_CHECKING:
    from memplan_engine.runtime.trial.recapture import Recaptured


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """`diff` changes `lines` of the user's file and is "" where no change could be claimed; `recaptured` is
    what came of it, or of the last that was tried. `left` are lines that could not be changed, and why;
    `notes` name what of the fit no edit of these does."""

    diff: str
    lines: tuple[int, ...]
    left: tuple[tuple[int, str], ...]
    recaptured: Recaptured | None
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """As plain values; bytes exact."""
        return {
            "diff": self.diff,
            "lines": list(self.lines),
            "left": [{"line": line, "reason": why} for line, why in self.left],
            "notes": list(self.notes),
            "recaptured": None if self.recaptured is None else asdict(self.recaptured),
        }

    def words(self) -> list[str]:
        """What people read of it."""
        left = [*(f"line {line} stays: {why}" for line, why in self.left), *self.notes]
        found = self.recaptured
        if found is None:
            return ["no patch: no line of the file is one of these changes alone", *left]
        if not self.diff:
            why = found.wrong or f"re-captured: live bytes stay at {exact(found.before or 0)}"
            return [f"no patch: {why}", *left]
        lines = ", ".join(map(str, self.lines))
        saved = f"{exact(found.before or 0)} → {exact(found.after or 0)}"
        return [
            f"lines {lines}, same results bit for bit, re-captured: live bytes of the graph {saved}",
            *left,
        ]


def source_of_factory(model: str) -> Path:
    """The file of a factory. Raises InputError for what is no file.py:factory."""
    file = Path(model.rpartition(":")[0])
    if file.suffix != ".py" or not file.is_file():
        raise InputError("--patch", "", repr(model), "file.py:factory, whose file can be changed")
    return file


def patch_of(
    model: str, fitted: Fitted, step: dict[str, Any] | None, seed: int, begin: Callable[[str], None]
) -> SourcePatch:
    """The edits of the factory's file that do what the stages of `fitted` do: the best of those that were
    captured again, gave the same results and needed fewer bytes.

    Raises
    ------
    InputError: a model that is no file.py:factory, a file that is no Python.
    """
    from memplan_engine.runtime.trial.recapture import recapture

    file = source_of_factory(model)
    text = read_text(file)
    try:
        wishes = _wishes(text, file.name, fitted)
    except SyntaxError as error:
        raise InputError(file.name, f"line {error.lineno}", str(error.msg), "Python") from None
    left = {line: why for edited in wishes for line, why in edited.left}
    best: tuple[Edited, Recaptured] | None = None
    last: Recaptured | None = None
    for edited in {each.text: each for each in wishes if each.text != text}.values():
        begin("capturing the changed source")
        last = recapture(model, edited.text, step, seed=seed)
        if last.saves and (best is None or (last.after or 0) < (best[1].after or 0)):
            best = edited, last
    if best is None:
        return SourcePatch("", (), tuple(sorted(left.items())), last, _notes(fitted))
    edited, found = best
    here, whole = Path.cwd(), file.resolve()
    path = whole.relative_to(here).as_posix() if whole.is_relative_to(here) else file.name
    changed = {line for line in left if line not in edited.lines}
    return SourcePatch(
        unified_diff(text, edited.text, path),
        edited.lines,
        tuple((line, left[line]) for line in sorted(changed)),
        found,
        _notes(fitted),
    )


def _notes(fitted: Fitted) -> tuple[str, ...]:
    """What of the stages stays out of a patch."""
    notes = []
    if any(is_concat(op.kind) for op in fitted.stages[0].graph.ops):
        notes.append("concatenations without copies: not in the patch, nor in what it saves")
    if any(stage.name is StageName.GRADIENTS for stage in fitted.stages):
        can = all(group.free and not group.readers for group in fitted.gradients)
        how = f"as {EARLY_UPDATES}" if can else "what holds them is named above"
        notes.append(f"gradients freed early: not in the patch, nor in what it saves; {how}")
    return tuple(notes)


def _wishes(text: str, name: str, fitted: Fitted) -> list[Edited]:
    """Edits for all that the best stage does, for its order alone, and for writes in place in the order that
    there is."""
    captured, best = fitted.stages[0].graph, fitted.best
    files = {op.source.file for op in captured.ops if op.source is not None}
    file = next((each for each in files if Path(each).name == name), name)
    moved = move_statements(text, file, best.graph)
    both = write_in_place(text, file, captured, writes_over(captured, best.rewritten))
    again = move_statements(both.text, file, best.graph)
    wishes = [Edited(again.text, tuple(sorted({*both.lines, *again.lines})), both.left), moved]
    in_place = next((stage for stage in fitted.stages if stage.name is StageName.IN_PLACE), None)
    if in_place is not None:
        wishes.append(write_in_place(text, file, captured, writes_over(captured, in_place.rewritten)))
    return wishes
