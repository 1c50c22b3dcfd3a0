"""What is said of each contributor to a peak: PEAK_COLUMNS has each column once, for table, JSON, report and
page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memplan_engine.units import format_bytes, format_percent

if TYPE_CHECKING:
    from memplan_engine.analysis.peak import Contributor, Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakColumn:
    """One column: its `heading` for people and its `key` for machines, "" where it is not for them.

    `value` is what machines read, of a contributor and the peak's bytes, `text` makes words of it. A column
    of a `group` is left out of a report where no column of the group says anything; `style` is its class
    there, and numbers stand to the right everywhere.
    """

    heading: str = ""
    key: str = ""
    value: Callable[[Contributor, int], Any]
    text: Callable[[Any], str] = str
    style: str = ""
    group: str = ""

    def says(self, part: Contributor, peak_bytes: int) -> str:
        """The text of this column."""
        return self.text(self.value(part, peak_bytes))


PEAK_COLUMNS: tuple[PeakColumn, ...] = (
    PeakColumn(heading="buffer", key="name", value=lambda part, _: part.name, style="name"),
    PeakColumn(
        heading="size", key="bytes", value=lambda part, _: part.nbytes, text=format_bytes, style="number"
    ),
    PeakColumn(
        heading="share", value=lambda part, peak: part.nbytes / peak, text=format_percent, style="number"
    ),
    PeakColumn(heading="kind", key="kind", value=lambda part, _: part.provenance.kind, group="kind"),
    PeakColumn(key="producer", value=lambda part, _: part.provenance.producer),
    PeakColumn(key="readers", value=lambda part, _: list(part.provenance.readers)),
    PeakColumn(key="shape", value=lambda part, _: list(part.provenance.shape)),
    PeakColumn(key="dtype", value=lambda part, _: part.provenance.dtype),
    PeakColumn(
        heading="module",
        key="module",
        value=lambda part, _: part.provenance.module,
        style="name",
        group="source",
    ),
    PeakColumn(
        heading="source",
        key="source",
        value=lambda part, _: str(part.provenance.source or ""),
        style="source",
        group="source",
    ),
    PeakColumn(
        key="code", value=lambda part, _: part.provenance.source.code if part.provenance.source else ""
    ),
)
"""In the order of tables and JSON."""


def shown_columns() -> list[PeakColumn]:
    """The columns for people."""
    return [column for column in PEAK_COLUMNS if column.heading]


def contributor_facts(part: Contributor, peak: Peak) -> dict[str, Any]:
    """A contributor for machines; bytes are exact integers."""
    return {column.key: column.value(part, peak.nbytes) for column in PEAK_COLUMNS if column.key}


def silent_groups(peak: Peak, parts: tuple[Contributor, ...]) -> set[str]:
    """The groups of columns that say nothing of any of `parts`."""
    telling = {
        column.group
        for column in shown_columns()
        for part in parts
        if column.group and column.says(part, peak.nbytes) not in ("", "buffer")
    }
    return {column.group for column in shown_columns() if column.group} - telling
