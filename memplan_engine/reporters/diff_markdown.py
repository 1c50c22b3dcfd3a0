"""A diff as Markdown that reads well as a comment on a pull request."""

from __future__ import annotations

import html
import re

from memplan_engine.analysis.buffer_names import without_module
from memplan_engine.diffing.culprits import explain
from memplan_engine.diffing.regression import Diff, Limit
from memplan_engine.diffing.rows import ModuleRow, PeakRow, diff_rows, module_rows
from memplan_engine.graph import Source
from memplan_engine.reporters.diff_culprits import story
from memplan_engine.reporters.diff_words import (
    change,
    counted_sentences,
    counts_sentence,
    figures,
    headline,
    lifetimes,
    matched_sentence,
    moment_sentence,
    names,
    notes,
    peak_sentence,
    rewrite_sentence,
    rewritten_of,
    sentence_case,
    verdict,
    warning,
)
from memplan_engine.units import format_bytes, format_signed

MOST_ROWS = 40
"""Rows of each table; a comment may not pass 65,536 characters."""
MOST_LETTERS = 100
"""Of a name or a path."""
_MARKUP = re.compile(r"[^\w .,;:!?%'\"/()=+→·–…−-]|(?<!\w)_|_(?!\w)")
"""What could mean something to Markdown or HTML, wherever it stands."""
_LINK = re.compile(r"(?<=www)\.|:(?=//)", re.IGNORECASE)
_CALL = re.compile(r"(?<=&#64;)|(?<=&#35;)")
"""Behind @ and #: what follows may be somebody's name or an issue, which GitHub looks for at the very end."""


def diff_markdown(diff: Diff, limit: Limit | None = None) -> str:
    """Headline, who is to blame, figures; the details folded away. Names are shown as text, whatever
    they hold."""
    mark = "🔴 " if limit and limit.exceeded(diff) else ""
    parts = [f"### {mark}Memory: {text(headline(diff))}", ""]
    if sentence := warning(diff):
        parts += [f"> ⚠️ {text(sentence_case(sentence))}", ""]
    verdict_, *others = (text(sentence_case(told)) for told in story(diff, explain(diff)))
    if rewritten := rewrite_sentence(diff, rewritten_of(diff)):
        others.append(text(sentence_case(rewritten)))
    parts += [f"**{verdict_}**", "", *(f"- {told}" for told in others), *([""] if others else [])]
    parts += [*_figures(diff), ""]
    if limit:
        parts += [f"**{text(sentence_case(verdict(diff, limit)))}**", ""]
    sentences = (peak_sentence(diff), *notes(diff), *counted_sentences(diff))
    parts += [*(text(sentence_case(sentence)) for sentence in sentences), ""]
    if not diff.same:
        parts += [*_peak(diff), *_changes(diff)]
    planned = (
        f"{diff.base.problem.name} ({diff.base.strategy}) → {diff.head.problem.name} ({diff.head.strategy})"
    )
    parts += [f"<sub>memplan diff: {text(planned)}; {text(matched_sentence(diff))}</sub>"]
    return "\n".join(parts) + "\n"


def _figures(diff: Diff) -> list[str]:
    rows = ["| | base | head | change |", "|-|-:|-:|-:|"]
    for label, before, after in figures(diff):
        bold = "**" * (label in ("arena", "total"))
        cells = (label, format_bytes(before), format_bytes(after), change(before, after))
        rows.append("|".join(["", *(f" {bold}{cell}{bold} " for cell in cells), ""]))
    return rows


def _peak(diff: Diff) -> list[str]:
    rows = ["| module and buffer | base | head | change | why | source |", "|-|-:|-:|-:|-|-|"]
    remaining = MOST_ROWS
    for module in module_rows(diff, diff.moment):
        if remaining <= 0:
            break
        rows += _module(module, remaining)
        remaining = max(0, remaining - len(module.parts))
    rows += _rest(len(diff.moment.base) - (MOST_ROWS - remaining), 6)
    lines = [text(sentence_case(moment_sentence(diff))), "", *rows]
    return _folded("What the peak holds, by module", lines)


def _module(module: ModuleRow, most: int) -> list[str]:
    rows = [f"| **{text(module.module or '(no module)')}** | {_sizes(module)} | | |"]
    for part in module.parts[:most]:
        name, source = _name(without_module(part.label), part.name), _source(part.provenance.source)
        rows.append(f"| {name} | {_sizes(part)} | {part.cause or ''} | {source} |")
    return rows


def _sizes(row: ModuleRow | PeakRow) -> str:
    return f"{format_bytes(row.base_bytes)} | {format_bytes(row.head_bytes)} | {format_signed(row.delta)}"


def _changes(diff: Diff) -> list[str]:
    rows = ["| buffer | base | head | change | lifetime | what | module | source |", "|-|-:|-:|-:|-:|-|-|-|"]
    shown = diff_rows(diff, MOST_ROWS)
    for row in shown:
        cells = (
            _name(*names(row)),
            format_bytes(row.base_bytes) if row.base else "",
            format_bytes(row.head_bytes) if row.head else "",
            format_signed(row.delta),
            lifetimes(row),
            ", ".join(row.changes),
            text(row.provenance.module),
            _source(row.provenance.source),
        )
        rows.append(f"| {' | '.join(cells)} |")
    rows += _rest(diff.changed - len(shown), 8)
    return _folded(f"Changed buffers: {counts_sentence(diff)}", rows)


def _folded(summary: str, rows: list[str]) -> list[str]:
    return ["<details>", f"<summary>{text(summary)}</summary>", "", *rows, "", "</details>", ""]


def _rest(count: int, columns: int) -> list[str]:
    return [f"| and {count:,} more |{' |' * (columns - 1)}"] if count > 0 else []


def _name(label: str, name: str) -> str:
    """What people call a buffer, and its name in the graph where that is another."""
    return code(name) if label == name else f"{code(label)} ({code(name)})"


def _source(source: Source | None) -> str:
    return code(str(source)) if source else ""


def code(value: str) -> str:
    """`value` in the letters of code; nothing in it is markup."""
    return f"<code>{_escaped(value)}</code>" if value else ""


def text(value: str) -> str:
    """`value` as text of one line: what would be Markdown, HTML or a link is written as character references,
    mentions are broken up, what cannot be printed is blank, and words longer than MOST_LETTERS are cut."""
    return _CALL.sub("&#8203;", _escaped(value))


def _escaped(value: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in value)
    words = (word if len(word) <= MOST_LETTERS else f"{word[:MOST_LETTERS]}…" for word in printable.split())
    return _LINK.sub(_reference, _MARKUP.sub(_reference, " ".join(words)))


def _reference(match: re.Match[str]) -> str:
    letter = match[0]
    return html.escape(letter) if letter in "<>&" else f"&#{ord(letter)};"
