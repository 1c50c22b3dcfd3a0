"""Runs, series, graphs, points, acknowledgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "memplan_runs",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("commit", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("committed_at", sa.BigInteger(), nullable=False),
        sa.Column("branch", sa.String(), nullable=False),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.Column("versions", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="memplan_runs_key"),
        sa.UniqueConstraint("key", name="memplan_runs_one_key"),
    )
    op.create_index("memplan_runs_by_commit", "memplan_runs", ["commit"])
    op.create_table(
        "memplan_series",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("variant", sa.String(), nullable=False),
        sa.Column("strategy", sa.String(), nullable=False),
        sa.Column("options", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="memplan_series_key"),
        sa.UniqueConstraint("digest", name="memplan_series_one_digest"),
    )
    op.create_table(
        "memplan_graphs",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("nbytes", sa.BigInteger(), nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="memplan_graphs_key"),
    )
    _points()
    op.create_table(
        "memplan_acknowledgements",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("series", _NUMBER, nullable=False),
        sa.Column("commit", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="memplan_acknowledgements_key"),
        sa.ForeignKeyConstraint(
            ["series"], ["memplan_series.number"], name="memplan_acknowledgements_of_series"
        ),
    )
    op.create_index(
        "memplan_acknowledgements_once", "memplan_acknowledgements", ["series", "commit"], unique=True
    )


def _points() -> None:
    op.create_table(
        "memplan_points",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("run", _NUMBER, nullable=False),
        sa.Column("series", _NUMBER, nullable=False),
        sa.Column("graph", sa.String(64), nullable=True),
        *(sa.Column(name, sa.String(64), nullable=False) for name in ("structure", "problem", "plan")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("arena", "demand", "bound")),
        sa.Column("bound_kind", sa.String(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("weights", "temporaries")),
        sa.Column("peak_op", sa.String(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in ("eager", "reserved")),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.Column("cut_short", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="memplan_points_key"),
        sa.ForeignKeyConstraint(["run"], ["memplan_runs.number"], name="memplan_points_of_run"),
        sa.ForeignKeyConstraint(["series"], ["memplan_series.number"], name="memplan_points_of_series"),
        sa.ForeignKeyConstraint(["graph"], ["memplan_graphs.digest"], name="memplan_points_of_graph"),
        sa.CheckConstraint(
            "arena >= 0 AND demand >= 0 AND bound >= 0 AND weights >= 0 AND temporaries >= 0",
            name=op.f("memplan_points_bytes"),
        ),
    )
    op.create_index("memplan_points_by_run", "memplan_points", ["run"])
    op.create_index("memplan_points_by_graph", "memplan_points", ["graph"])
    op.create_index("memplan_points_once", "memplan_points", ["series", "run"], unique=True)
