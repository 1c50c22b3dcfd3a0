"""What a fit comes to in the user's own file: edits, and the patch of those that were captured again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from memplan_engine.advice.fit_stages import Fitted, StageName
from memplan_engine.advice.optimizer_hooks import update_in_backward
from memplan_engine.advice.source_edits import Edited, move_statements, unified_diff, write_in_place
from memplan_engine.errors import InputError
from memplan_engine.rewrites.reuse.kinds import is_concat
from memplan_engine.rewrites.reuse.writes_over import writes_over

HELD = "gradients freed early: not in the patch, nor in what it saves"


@dataclass(frozen=True, slots=True)
class Recaptured:
    """What came of an edit. `same` says whether the edited file gives and leaves what the file gave, bit for
    bit, on the same random weights and inputs; `wrong` in what it does not, or why it did not run. Live bytes
    at the worst step of the captured graphs, `before` and `after`, are None where it did not come to that."""

    same: bool
    wrong: str = ""
    before: int | None = None
    after: int | None = None

    @property
    def saves(self) -> bool:
        """Whether the edit may be claimed: the same results, in fewer bytes."""
        return self.same and self.before is not None and self.after is not None and self.after < self.before


Recapture = Callable[[Edited], Recaptured]
"""Runs and captures the file with an edit in it, beside the file as it is."""


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
    best: tuple[Edited, Recaptured] | None = None
    last: Recaptured | None = None
    for freeing in (True, False):
        tried = {each.text: each for each in wishes if each.text != text and each.frees_gradients is freeing}
        for edited in tried.values():
            last = recapture(edited)
            if last.saves and (best is None or (last.after or 0) < (best[1].after or 0)):
                best = edited, last
        if best is not None:
            return _patch(text, path, fitted, wishes, *best)
    return _patch(text, path, fitted, wishes, None, last)


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
    captured, best = fitted.stages[0].graph, fitted.best
    name = path.rpartition("/")[2]
    files = {op.source.file for op in captured.ops if op.source is not None}
    file = next((each for each in sorted(files) if each.rpartition("/")[2] == name), name)
    try:
        moved = move_statements(text, file, best.graph)
        both = write_in_place(text, file, captured, writes_over(captured, best.rewritten))
        again = move_statements(both.text, file, best.graph)
        wishes = [_joined(both, again), moved]
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


def _joined(first: Edited, second: Edited) -> Edited:
    """`first`, and then `second` of its text."""
    lines = tuple(sorted({*first.lines, *second.lines}))
    return replace(second, lines=lines, left=(*first.left, *second.left))
