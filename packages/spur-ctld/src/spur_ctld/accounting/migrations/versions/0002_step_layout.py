"""How the tasks of a step lie on its nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("steps", sa.Column("layout", sa.Text, nullable=False, server_default=""))
