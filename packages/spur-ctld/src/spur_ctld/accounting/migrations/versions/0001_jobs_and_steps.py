"""Jobs and steps, keyed by run."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIME = sa.DateTime(timezone=True)


def _text(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _big(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _flag(name: str) -> "sa.Column[bool]":
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("db_index", _BIG, primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("submit_at", _TIME, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        *(_text(name) for name in ("name", "user_name")),
        *(_big(name) for name in ("uid", "gid")),
        *(_text(name) for name in ("account", "partition", "qos", "reason")),
        sa.Column("array_job_id", sa.BigInteger),
        sa.Column("array_task_id", sa.BigInteger),
        _text("array_pending"),
        *(sa.Column(name, _TIME) for name in ("eligible_at", "start_at", "end_at")),
        sa.Column("suspended_secs", sa.Double, nullable=False, server_default="0"),
        sa.Column("time_limit", sa.BigInteger),
        *(_big(name) for name in ("exit_code", "exit_signal")),
        _flag("exit_oom"),
        *(_big(name) for name in ("derived_code", "derived_signal", "req_cpus", "req_nodes", "req_mem_mb")),
        _flag("req_mem_per_cpu"),
        *(_big(name) for name in ("alloc_cpus", "alloc_nodes")),
        *(_text(name) for name in ("nodelist", "req_tres", "alloc_tres")),
        _big("priority"),
        *(_text(name) for name in ("work_dir", "submit_line", "comment", "constraint_expr", "wckey")),
        *(_text(name) for name in ("stdout", "stderr", "stdin")),
        sa.Column("kill_uid", sa.BigInteger),
        _big("restarts"),
        sa.UniqueConstraint("cluster", "job_id", "attempt", "submit_at", name="jobs_run"),
    )
    op.create_index("jobs_array", "jobs", ["cluster", "array_job_id"])
    op.create_index("jobs_user", "jobs", ["user_name"])
    op.create_index("jobs_submit", "jobs", ["submit_at"])
    op.create_index("jobs_end", "jobs", ["end_at"])
    op.create_table(
        "steps",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("job_id", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("submit_at", _TIME, primary_key=True),
        sa.Column("step_id", sa.BigInteger, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        _text("name"),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("start_at", _TIME, nullable=False),
        sa.Column("end_at", _TIME),
        *(_big(name) for name in ("exit_code", "exit_signal")),
        _flag("exit_oom"),
        *(_big(name) for name in ("num_tasks", "cpus", "num_nodes")),
        *(_text(name) for name in ("nodelist", "alloc_tres")),
        sa.Column("user_secs", sa.Double, nullable=False, server_default="0"),
        sa.Column("system_secs", sa.Double, nullable=False, server_default="0"),
        _big("max_rss_kb"),
        _text("max_rss_node"),
    )
