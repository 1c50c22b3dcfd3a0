"""What a fit comes to in the user's own file: edits, and the patch of those that were captured again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from memplan_engine.advice.advise import LEAST_GAIN
from memplan_engine.advice.moved_statements import forget_names, move_statements
from memplan_engine.advice.optimizer_hooks import update_in_backward
from memplan_engine.advice.source_edits import Edited, unified_diff, write_in_place
from memplan_engine.errors import InputError
from memplan_engine.fitting.fitted import Fitted, StageName
from memplan_engine.rewrites.reuse.kinds import is_concat
from memplan_engine.rewrites.reuse.writes_over import writes_over

MOST_LINES = 24
"""Lines in place of which each is tried by itself, where together they give something else: a run and two
captures of a small model take a second."""
HELD = "gradients freed early: not in the patch, nor in what it saves"


@dataclass(frozen=True, slots=True)
class Recaptured:
    """What came of an edit. `same` says whether the edited file gives, prints and leaves what the file gave,
    bit for bit, on the same random weights and inputs; `wrong` in what it does not, or why it did not run.
    Live bytes at the worst step of the captured graphs, `before` and `after`, are None where it did not come
    to that; those of the eager runs, as predicted, also where that cannot be. `untrainable` says why no
    backward pass goes through the edited file as it goes through the file, for a model in eval mode."""

    same: bool
    wrong: str = ""
    before: int | None = None
    after: int | None = None
    eager_before: int | None = None
    eager_after: int | None = None
    untrainable: str = ""

    @property
    def saves(self) -> bool:
        """Whether the edit may be claimed: the same results, in fewer bytes of the graph or of the eager run,
        and in no more of the other."""
        if not self.same or self.before is None or self.after is None:
            return False
        pairs = [(self.before, self.after), (self.eager_before or 0, self.eager_after or 0)]
        gains = [(before - after) / max(before, 1) for before, after in pairs]
        return min(gains) > -LEAST_GAIN and max(gains) > LEAST_GAIN

    @property
    def live(self) -> tuple[int, int]:
        """By which of several edits the best is chosen: what people run first."""
        after = self.after or 0
        return (after if self.eager_after is None else self.eager_after), after


Recapture = Callable[[Sequence[Edited]], Sequence[Recaptured]]
"""Runs and captures the file with each of several edits in it, beside the file as it is. They are alike in
whether they free gradients."""


@dataclass(frozen=True, slots=True)
class SourcePatch:
    """`diff` changes `lines` of the user's file and is "" where there is nothing to claim; `recaptured` is
    what came of it, or of the last that was tried, None where none was. `left` are lines that could not be
    changed, and why; `notes` name what of the fit no edit of these does."""

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


def patch_of(text: str, path: str, fitted: Fitted, recapture: Recapture) -> SourcePatch:
    """The edits of `text`, the file `path`, that do what the stages of `fitted` do: the best of those that
    were captured again, gave the same results and needed fewer bytes. Those with the optimizer in the
    backward pass come first; others are tried only where none of these holds.

    Raises
    ------
    InputError: a file that is no Python.
    """
    wishes = _wishes(text, path, fitted)
    found: list[tuple[Edited, Recaptured]] = []

    def best_of(edits: Sequence[Edited]) -> tuple[Edited, Recaptured] | None:
        tried = {each.text: each for each in edits if each.text != text}
        if tried:
            found.extend(zip(tried.values(), recapture(list(tried.values())), strict=True))
        # Of two that save alike the one that changes less.
        saving = (each for each in found if each[1].saves)
        return min(saving, key=lambda each: (*each[1].live, len(each[0].lines)), default=None)

    best = None
    for freeing in (True, False):
        best = best or best_of([each for each in wishes if each.frees_gradients is freeing])
    if best is None or not (best[0].frees_gradients or all(each.same for _, each in found)):
        best = best_of(_without_wrong_lines(text, path, fitted, recapture))
    if best is not None:
        return _patch(text, path, fitted, wishes, *best)
    same = [each for _, each in found if each.same]
    nearest = min(same, key=lambda each: each.live, default=found[-1][1] if found else None)
    return _patch(text, path, fitted, wishes, None, nearest)


def _without_wrong_lines(text: str, path: str, fitted: Fitted, recapture: Recapture) -> list[Edited]:
    """Edits in which only those lines are in place that give the same by themselves: one that does not spoils
    all others."""
    file, graph = _file_of(path, fitted), fitted.stages[0].graph
    stage = next((each for each in fitted.stages if each.name is StageName.IN_PLACE), fitted.best_order)
    over = writes_over(graph, stage.rewritten)
    lines = write_in_place(text, file, graph, over).lines
    if not 1 < len(lines) <= MOST_LINES:
        return []
    alone = [write_in_place(text, file, graph, over, {line}) for line in lines]
    right = {
        line for line, each in zip(lines, recapture(alone), strict=True) if each.same and not each.untrainable
    }
    both = write_in_place(text, file, graph, over, right)
    moved = _joined(both, move_statements(both.text, file, fitted.best_order.graph))
    return [both, moved, forget_names(moved)]


def proposed_patch(text: str, path: str, fitted: Fitted) -> SourcePatch:
    """As `patch_of`, with all edits that the text lets do, none of which was run: it claims nothing. Raises
    InputError for a file that is no Python."""
    wishes = _wishes(text, path, fitted)
    changed = next((each for each in wishes if each.text != text), None)
    return _patch(text, path, fitted, wishes, changed, None)


def _patch(
    text: str,
    path: str,
    fitted: Fitted,
    wishes: list[Edited],
    edited: Edited | None,
    found: Recaptured | None,
) -> SourcePatch:
    left = {line: why for each in wishes for line, why in each.left if line}
    lines = edited.lines if edited else ()
    return SourcePatch(
        unified_diff(text, edited.text, path) if edited else "",
        lines,
        tuple(sorted((line, why) for line, why in left.items() if line not in lines)),
        found,
        tuple(_notes(fitted, wishes, edited)),
    )


def _notes(fitted: Fitted, wishes: list[Edited], edited: Edited | None) -> Iterator[str]:
    """What of the stages stays out of a patch."""
    if any(is_concat(op.kind) for op in fitted.stages[0].graph.ops):
        yield "concatenations without copies: not in the patch, nor in what it saves"
    if not _frees(fitted):
        return
    if edited is not None and edited.frees_gradients:
        yield "gradients freed early: none is there after the step"
        return
    if not _may_free(fitted):
        yield f"{HELD}; what holds them is named above"
        return
    why = next((why for each in wishes for line, why in each.left if not line), "")
    yield f"{HELD}; {why}" if why else HELD


def _frees(fitted: Fitted) -> bool:
    return any(stage.name is StageName.GRADIENTS for stage in fitted.stages)


def _may_free(fitted: Fitted) -> bool:
    """Whether nothing but the order holds gradients, and nobody else reads them."""
    return all(group.free and not group.readers for group in fitted.gradients)


def _wishes(text: str, path: str, fitted: Fitted) -> list[Edited]:
    """Edits for all that the best stage does, for its order alone, for writes in place in the order that
    there is; before them each of these with the optimizer in the backward pass, and that alone."""
    captured, best, file = fitted.stages[0].graph, fitted.best_order, _file_of(path, fitted)
    name = path.rpartition("/")[2]
    try:
        moved = move_statements(text, file, best.graph)
        both = write_in_place(text, file, captured, writes_over(captured, best.rewritten))
        again = move_statements(both.text, file, best.graph)
        wishes = [_joined(both, again), moved]
        wishes += [forget_names(each) for each in wishes if moved.lines]
        in_place = next((stage for stage in fitted.stages if stage.name is StageName.IN_PLACE), None)
        if in_place is not None:
            over = writes_over(captured, in_place.rewritten)
            wishes.append(write_in_place(text, file, captured, over))
        if not (_frees(fitted) and _may_free(fitted)):
            return wishes
        hooked = [
            _joined(each, update_in_backward(each.text, file, captured))
            for each in (*wishes, Edited(text, ()))
        ]
    except SyntaxError as error:
        raise InputError(name, f"line {error.lineno}", str(error.msg), "Python") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(name, "", str(error) or type(error).__name__, "Python that can be parsed") from None
    return [*hooked, *wishes]


def _file_of(path: str, fitted: Fitted) -> str:
    """The file at `path` as ops of the graph call it."""
    name = path.rpartition("/")[2]
    files = {op.source.file for op in fitted.stages[0].graph.ops if op.source is not None}
    return next((each for each in sorted(files) if each.rpartition("/")[2] == name), name)


def _joined(first: Edited, second: Edited) -> Edited:
    """`first`, and then `second` of its text."""
    lines = tuple(sorted({*first.lines, *second.lines}))
    return replace(second, lines=lines, left=(*first.left, *second.left))
