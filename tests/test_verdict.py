"""The words of a verdict."""

from __future__ import annotations

import pytest

from memplan_engine.verdict import EXIT_CODES, Reason, Verdict, verdict_text


@pytest.mark.parametrize(
    ("verdict", "capacity", "what", "words"),
    [
        (Verdict.FITS, "", "", "fits"),
        (Verdict.FITS, "24 GiB", "", "fits in 24 GiB"),
        (Verdict.DOES_NOT_FIT, "5 B", "the arena", "the arena does not fit in 5 B"),
        (Verdict.UNDECIDED, "", "", "undecided"),
        (Verdict.UNDECIDED, "5 B", "", "undecided whether it fits in 5 B"),
        (Verdict.UNDECIDED, "5 B", "the arena", "undecided whether the arena fits in 5 B"),
    ],
)
def test_words(verdict: Verdict, capacity: str, what: str, words: str) -> None:
    assert verdict_text(verdict, capacity=capacity, what=what) == words


def test_an_undecided_verdict_names_its_reason() -> None:
    assert verdict_text(Verdict.UNDECIDED, Reason.OTHERS_HOLD) == "undecided (depends on what else is held)"


def test_each_verdict_has_an_exit_code_that_no_error_has() -> None:
    assert sorted(EXIT_CODES) == sorted(Verdict)
    assert len({2, 130, *EXIT_CODES.values()}) == 5
