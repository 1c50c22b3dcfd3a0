"""The figures of a plan and the columns of its peak as they are shown: FIGURES and PEAK_COLUMNS have each
once, for table, JSON, report and page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from memplan_engine.analysis.plan_figures import PlanFigures
from memplan_engine.analysis.provenance import OP_PROPERTIES
from memplan_engine.bounds import BoundKind
from memplan_engine.graph import OpProperty
from memplan_engine.units import exact, format_bytes, format_percent

if TYPE_CHECKING:
    from memplan_engine.analysis.peak import Contributor, Peak


Place = Literal["table", "notebook", "report", "page"]


class Card(NamedTuple):
    """A figure with its name above and a note below it; `exact` is its text in tables."""

    label: str
    value: str
    note: str = ""
    exact: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """How one figure is said.

    `facts` are its exact values for machines, by key. `text` stands beside `label` in tables; "" where there
    is nothing to say. Reports and pages show a card, of label and text unless `report` or `page` says
    otherwise, with `help` on the page; cards that come `last` stand behind the others. `brief` is the text of
    notebooks, unless it is that of the table. None of this is shown in the places that are `without` it.
    """

    label: str
    facts: Callable[[PlanFigures], dict[str, Any]]
    text: Callable[[PlanFigures], str]
    brief: Callable[[PlanFigures], str] | None = None
    report: Callable[[PlanFigures], Card] | None = None
    page: Callable[[PlanFigures], Card] | None = None
    help: str = ""
    last: bool = False
    without: tuple[Place, ...] = ()

    def row(self, figures: PlanFigures, place: Place) -> tuple[str, str]:
        """Label and text."""
        return self.label, (self.brief if self.brief and place == "notebook" else self.text)(figures)

    def card(self, figures: PlanFigures, place: Place) -> Card:
        """The card of a report or of a page."""
        make = self.page if place == "page" else self.report
        return make(figures) if make else Card(self.label[:1].upper() + self.label[1:], self.text(figures))


def figure_facts(figures: PlanFigures) -> dict[str, Any]:
    """All figures for machines: exact integers of bytes and steps, shares of 1."""
    return {key: value for figure in FIGURES for key, value in figure.facts(figures).items()}


def figure_rows(figures: PlanFigures, place: Place = "table") -> list[tuple[str, str]]:
    """Label and text of each figure that says anything of this plan."""
    rows = (figure.row(figures, place) for figure in _figures_of(place))
    return [row for row in rows if row[1]]


def figure_cards(figures: PlanFigures, place: Place) -> list[tuple[Card, str]]:
    """The cards of the figures that say anything of this plan, each with its help, the arena's first."""
    shown = sorted(_figures_of(place), key=lambda figure: figure.last)
    texts = [(figure, figure.text(figures)) for figure in shown]
    return [(figure.card(figures, place)._replace(exact=text), figure.help) for figure, text in texts if text]


def _figures_of(place: Place) -> list[Figure]:
    return [figure for figure in FIGURES if place not in figure.without]


def _workspace(f: PlanFigures) -> str:
    shared = "shared" if f.workspace_name == "workspaces" else f.workspace_name
    parts = ((f.scratch.unique, "unique"), (f.scratch.shared, shared))
    text = ", ".join(f"{exact(nbytes)} {name}" for nbytes, name in parts if nbytes)
    return text and f"{text}, outside the arena"


def _peak(f: PlanFigures) -> str:
    """ "6 KiB (6,144 B) at step 3", and how much of it is scratch of ops, beside the arena."""
    beside = f.peak_bytes - f.live_at_peak
    note = f", {exact(beside)} of it {f.workspace_name}" if beside else ""
    return f"{_at_least(f)}{exact(f.peak_bytes)} at step {f.peak_step:,}{note}"


def _at_least(f: PlanFigures) -> str:
    return "at least " * f.at_least


def _argument(f: PlanFigures) -> str:
    return BoundKind(f.bound_kind).words


def _without_reuse(f: PlanFigures) -> str:
    return f"{format_bytes(f.naive)} without reuse"


FIGURES: tuple[Figure, ...] = (
    Figure(
        label="arena",
        facts=lambda f: {"arena_bytes": f.arena},
        text=lambda f: _at_least(f) + exact(f.arena),
        report=lambda f: Card(
            "Arena",
            _at_least(f) + format_bytes(f.arena),
            "meets the lower bound" if f.meets_bound else f"{format_percent(f.gap)} over the lower bound",
        ),
        page=lambda f: Card(
            "Arena",
            _at_least(f) + format_bytes(f.arena),
            "meets the bound" if f.meets_bound else f"{format_percent(f.gap)} over bound",
        ),
    ),
    Figure(
        label="workspace",
        facts=lambda f: {"workspace_bytes": f.workspace},
        text=_workspace,
        without=("notebook", "report", "page"),
    ),
    Figure(
        label="total",
        facts=lambda f: {"total_bytes": f.total},
        text=lambda f: f"{exact(f.total)}, arena and workspace" if f.workspace else "",
        brief=lambda f: f"{exact(f.total)}, with workspace" if f.workspace else "",
        report=lambda f: Card(
            "Total",
            format_bytes(f.total),
            f"{f.workspace_name} {format_bytes(f.workspace)} outside the arena",
        ),
        without=("page",),
    ),
    Figure(
        label="lower bound",
        facts=lambda f: {
            "lower_bound_bytes": f.bound,
            "bound_kind": f.bound_kind,
            "bound_step": f.bound_step,
        },
        text=lambda f: f"{exact(f.bound)}, {_argument(f)}",
        report=lambda f: Card("Lower bound", format_bytes(f.bound), _argument(f)),
        page=lambda f: Card("Lower bound", format_bytes(f.bound), _argument(f)),
        help="No arena can be smaller. Peak live bytes: the largest sum of live tensors at any step.",
    ),
    Figure(
        label="gap",
        facts=lambda f: {"optimal": f.optimal, "gap": f.gap},
        text=lambda f: "none" if f.meets_bound else format_percent(f.gap),
        without=("report", "page"),
    ),
    Figure(
        label="reuse saves",
        facts=lambda f: {"naive_bytes": f.naive},
        text=lambda f: f"{format_percent(f.saved)} ({_without_reuse(f)})",
        report=lambda f: Card("Reuse saves", format_percent(f.saved), _without_reuse(f)),
        page=lambda f: Card("Reuse saves", format_percent(f.saved), _without_reuse(f)),
        last=True,
    ),
    Figure(
        label="weights",
        facts=lambda f: {"constants_bytes": f.constants},
        text=lambda f: f"{exact(f.constants)}, separate" if f.constants else "",
        report=lambda f: Card("Weights", format_bytes(f.constants), "separate"),
        last=True,
        without=("notebook", "page"),
    ),
    Figure(
        label="peak live bytes",
        facts=lambda f: {"peak_step": f.peak_step, "peak_bytes": f.peak_bytes},
        text=_peak,
        report=lambda f: Card(
            "Peak live bytes", _at_least(f) + format_bytes(f.peak_bytes), f"at step {f.peak_step:,}"
        ),
        without=("notebook", "page"),
    ),
    Figure(
        label="fragmentation at peak",
        facts=lambda f: {"holes_at_peak_bytes": f.holes_at_peak},
        text=lambda f: exact(f.holes_at_peak),
        report=lambda f: Card(
            "Fragmentation at peak", format_bytes(f.holes_at_peak), "free below the topmost live buffer"
        ),
        page=lambda f: Card("Fragmentation at peak", format_bytes(f.holes_at_peak)),
        help="Free bytes below the topmost buffer live at the peak step; the strip shows them at every step.",
        without=("notebook",),
    ),
)
"""In the order of tables and JSON."""


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


def _told(each: OpProperty) -> PeakColumn:
    """The column of something that people are told of the op that makes a buffer."""
    return PeakColumn(
        heading=each.label,
        key=each.name,
        value=lambda part, _: each.of(part.provenance.maker),
        text=each.words,
        style="name",
        group=each.name,
    )


PEAK_COLUMNS: tuple[PeakColumn, ...] = (
    PeakColumn(heading="buffer", key="label", value=lambda part, _: part.label, style="name"),
    PeakColumn(key="name", value=lambda part, _: part.name),
    PeakColumn(
        heading="in graph",
        value=lambda part, _: part.name if part.name != part.label else "",
        style="name",
        group="in graph",
    ),
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
    *map(_told, OP_PROPERTIES),
    PeakColumn(
        heading="source",
        key="source",
        value=lambda part, _: str(part.provenance.source or ""),
        style="source",
        group="module",
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
