"""The tables of a store. What changes here needs a migration beside: a test holds the two together."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Integer, LargeBinary, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PREFIX = "memplan_"
"""Of all tables: a server of a team has those of others, too."""
VERSION_TABLE = "memplan_version"
DIGEST = 64
KEY = 32
_NAMES = {
    "ix": "%(table_name)s_by_%(column_0_name)s",
    "uq": "%(table_name)s_one_%(column_0_name)s",
    "ck": "%(table_name)s_%(constraint_name)s",
    "fk": "%(table_name)s_of_%(column_0_name)s",
    "pk": "%(table_name)s_key",
}
Number = BigInteger().with_variant(Integer, "sqlite")
"""Counts rows: SQLite counts by itself only what is called INTEGER."""


class Base(DeclarativeBase):
    """What all tables share: constraints have names, so that a migration can name them."""

    metadata = MetaData(naming_convention=_NAMES)


class RunRow(Base):
    """One taking of figures. The commit is text of any length: hashes get longer."""

    __tablename__ = "memplan_runs"

    number: Mapped[int] = mapped_column(Number, primary_key=True)
    key: Mapped[str] = mapped_column(String(KEY), unique=True)
    project: Mapped[str]
    commit: Mapped[str] = mapped_column(index=True)
    parent: Mapped[str]
    committed_at: Mapped[int] = mapped_column(BigInteger)
    branch: Mapped[str]
    dirty: Mapped[bool]
    recorded_at: Mapped[int] = mapped_column(BigInteger)
    versions: Mapped[str]
    """JSON: a list of pairs."""
    host: Mapped[str]


class SeriesRow(Base):
    """What is compared over time."""

    __tablename__ = "memplan_series"

    number: Mapped[int] = mapped_column(Number, primary_key=True)
    digest: Mapped[str] = mapped_column(String(DIGEST), unique=True)
    project: Mapped[str]
    model: Mapped[str]
    variant: Mapped[str]
    strategy: Mapped[str]
    options: Mapped[str]
    """JSON: a list of pairs."""


class GraphRow(Base):
    """A graph under the digest of its JSON, `nbytes` long, of which `frame` is the Zstandard frame."""

    __tablename__ = "memplan_graphs"

    digest: Mapped[str] = mapped_column(String(DIGEST), primary_key=True)
    nbytes: Mapped[int] = mapped_column(BigInteger)
    frame: Mapped[bytes] = mapped_column(LargeBinary)


class PointRow(Base):
    """The figures of one series in one run, bytes. Those that nobody measured are NULL, and so is `graph`
    where only figures are known."""

    __tablename__ = "memplan_points"
    __table_args__ = (
        CheckConstraint(
            "arena >= 0 AND demand >= 0 AND bound >= 0 AND weights >= 0 AND temporaries >= 0", name="bytes"
        ),
        Index("memplan_points_once", "series", "run", unique=True),
    )

    number: Mapped[int] = mapped_column(Number, primary_key=True)
    run: Mapped[int] = mapped_column(ForeignKey("memplan_runs.number"), index=True)
    series: Mapped[int] = mapped_column(ForeignKey("memplan_series.number"))
    graph: Mapped[str | None] = mapped_column(ForeignKey("memplan_graphs.digest"), index=True)
    structure: Mapped[str] = mapped_column(String(DIGEST))
    problem: Mapped[str] = mapped_column(String(DIGEST))
    plan: Mapped[str] = mapped_column(String(DIGEST))
    arena: Mapped[int] = mapped_column(BigInteger)
    demand: Mapped[int] = mapped_column(BigInteger)
    bound: Mapped[int] = mapped_column(BigInteger)
    bound_kind: Mapped[str]
    weights: Mapped[int] = mapped_column(BigInteger)
    temporaries: Mapped[int] = mapped_column(BigInteger)
    peak_op: Mapped[str]
    eager: Mapped[int | None] = mapped_column(BigInteger)
    reserved: Mapped[int | None] = mapped_column(BigInteger)
    nodes: Mapped[int] = mapped_column(BigInteger)
    cut_short: Mapped[bool]


class AcknowledgementRow(Base):
    """Somebody's word that the change which came with a commit is meant. It names the commit and no point: a
    commit that is recorded again has been acknowledged already."""

    __tablename__ = "memplan_acknowledgements"
    __table_args__ = (Index("memplan_acknowledgements_once", "series", "commit", unique=True),)

    number: Mapped[int] = mapped_column(Number, primary_key=True)
    series: Mapped[int] = mapped_column(ForeignKey("memplan_series.number"))
    commit: Mapped[str]
    reason: Mapped[str]
    author: Mapped[str]
    acknowledged_at: Mapped[int] = mapped_column(BigInteger)
