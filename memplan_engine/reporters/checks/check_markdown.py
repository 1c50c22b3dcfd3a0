"""Models held against what they may need, as Markdown: a comment on a pull request, a page of a run."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.reporters.checks.check_words import growth_words, sentences, verdict_word
from memplan_engine.reporters.diff_markdown import code, diff_markdown, text
from memplan_engine.reporters.diff_words import sentence_case
from memplan_engine.units import count_of, format_bytes

MOST_LETTERS = 60_000
"""Of a comment, which may have 65,536."""
MOST_MODELS = 100
HEADER = ("| model | arena | peak | arena since the base | |", "|-|-:|-:|-:|-|")
SIGNS = {"too large": "🔴 ", "grew": "🔴 ", "fits": "🟢 "}


def check_markdown(checks: Sequence[ModelCheck], compared: str = "") -> str:
    """Headline, a row a model, why each changed or fails; whole diffs folded as far as there is room.
    `compared` says with what, in words. Names are shown as text, whatever they hold."""
    rows = [
        "| model | arena | peak | arena since the base | |",
        "|-|-:|-:|-:|-|",
        *map(_row, checks[:MOST_MODELS]),
    ]
    parts = [f"### Memory: {check_headline(checks)}", "", *rows, ""]
    if rest := len(checks) - MOST_MODELS:
        parts += [f"and {rest:,} more models", ""] if rest > 0 else []
    foot = f"<sub>memplan check{f'; {text(compared)}' if compared else ''}</sub>\n"
    room = MOST_LETTERS - len("\n".join(parts)) - len(foot)
    for each in checks:
        for section in (_reasons(each), _details(each)):
            if section and len(section) + 1 <= room:
                parts.append(section)
                room -= len(section) + 1
    return "\n".join([*parts, foot])


def check_headline(checks: Sequence[ModelCheck]) -> str:
    """ "1 of 3 models fails", "2 models, one needs more memory than before"."""
    failed = sum(not each.passed for each in checks)
    models = count_of(len(checks), "model")
    if failed:
        return f"{failed:,} of {models} {'fails' if failed == 1 else 'fail'}"
    changed = sum(each.diff is not None and each.diff.total_delta != 0 for each in checks)
    compared = sum(each.diff is not None for each in checks)
    if not compared:
        return models
    return f"{models}, {f'{changed:,} with another amount' if changed else 'no change'}"


def _row(checked: ModelCheck) -> str:
    word = verdict_word(checked)
    cells = (
        code(checked.name),
        format_bytes(checked.figures.arena),
        format_bytes(checked.peak.nbytes),
        growth_words(checked),
        f"{SIGNS.get(word, '')}{word}",
    )
    return f"| {' | '.join(cells)} |"


def _reasons(checked: ModelCheck) -> str:
    said = sentences(checked)
    lines = [f"- {text(sentence_case(sentence))}" for sentence in said]
    return "\n".join([f"**{code(checked.name)}**", "", *lines, ""]) if said else ""


def _details(checked: ModelCheck) -> str:
    if checked.diff is None or checked.diff.same:
        return ""
    whole = diff_markdown(checked.diff, checked.limit)
    return f"<details><summary>{code(checked.name)}, all that changed</summary>\n\n{whole}\n</details>\n"
