"""The reservation of a run, and its licences."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name in ("reservation", "req_reservation", "licenses"):
        op.add_column("jobs", sa.Column(name, sa.Text, nullable=False, server_default=""))
