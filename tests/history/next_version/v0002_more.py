"""A migration as the next version may bring one: a new column, filled row by row, and a new table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memplan_points", sa.Column("loss", sa.BigInteger(), nullable=True))
    op.create_table("memplan_more", sa.Column("number", sa.Integer(), primary_key=True))
    connection = op.get_bind()
    numbers = connection.execute(sa.text("SELECT number FROM memplan_points ORDER BY number")).scalars().all()
    for number in numbers:
        connection.execute(
            sa.text("UPDATE memplan_points SET loss = arena - demand WHERE number = :number"),
            {"number": number},
        )
