"""The accounting tables, the same on SQLite and PostgreSQL.

One row in `jobs` per run of a job, keyed by (cluster, job_id, attempt, submit_at): a requeue keeps the
earlier run's row, and ids that start again in a new cluster do not collide.  `seq` orders the versions of
a row; an older version never overwrites a newer one.  Times are UTC.
"""

import datetime as dt
import math
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

_UTC = dt.UTC
#: The last second that a database's calendar has.
_LAST_INSTANT = 253402300799.0


class Instant(sa.types.TypeDecorator[float]):
    """Seconds since the epoch in Python, a UTC timestamp with microseconds in the database."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> dt.datetime | None:
        if value is None:
            return None
        if not math.isfinite(value):
            raise ValueError(f"{value} is not an instant")
        within = min(max(value, 0.0), _LAST_INSTANT)
        return dt.datetime.fromtimestamp(0, _UTC) + dt.timedelta(microseconds=round(within * 1e6))

    def process_result_value(self, value: dt.datetime | None, dialect: Any) -> float | None:
        if value is None:
            return None
        if value.tzinfo is None:  # SQLite keeps no zone
            value = value.replace(tzinfo=_UTC)
        return value.timestamp()


_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _big(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("db_index", _BIG, primary_key=True, autoincrement=True),
    sa.Column("cluster", sa.Text, nullable=False),
    sa.Column("job_id", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("submit_at", Instant, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Integer, nullable=False),
    _text("name"),
    _text("user_name"),
    _big("uid"),
    _big("gid"),
    _text("account"),
    _text("partition"),
    _text("qos"),
    _text("reason"),
    sa.Column("array_job_id", sa.BigInteger),
    sa.Column("array_task_id", sa.BigInteger),
    _text("array_pending"),
    sa.Column("eligible_at", Instant),
    sa.Column("start_at", Instant),
    sa.Column("end_at", Instant),
    sa.Column("suspended_secs", sa.Double, nullable=False, server_default="0"),
    sa.Column("time_limit", sa.BigInteger),
    _big("exit_code"),
    _big("exit_signal"),
    sa.Column("exit_oom", sa.Boolean, nullable=False, server_default=sa.false()),
    _big("derived_code"),
    _big("derived_signal"),
    _big("req_cpus"),
    _big("req_nodes"),
    _big("req_mem_mb"),
    sa.Column("req_mem_per_cpu", sa.Boolean, nullable=False, server_default=sa.false()),
    _big("alloc_cpus"),
    _big("alloc_nodes"),
    _text("nodelist"),
    _text("req_tres"),
    _text("alloc_tres"),
    _big("priority"),
    _text("work_dir"),
    _text("submit_line"),
    _text("comment"),
    _text("constraint_expr"),
    _text("wckey"),
    _text("stdout"),
    _text("stderr"),
    _text("stdin"),
    sa.Column("kill_uid", sa.BigInteger),
    _big("restarts"),
    _text("reservation"),
    _text("req_reservation"),
    _text("licenses"),
    sa.UniqueConstraint("cluster", "job_id", "attempt", "submit_at", name="jobs_run"),
    sa.Index("jobs_array", "cluster", "array_job_id"),
    sa.Index("jobs_user", "user_name"),
    sa.Index("jobs_submit", "submit_at"),
    sa.Index("jobs_end", "end_at"),
)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("job_id", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True),
    sa.Column("submit_at", Instant, primary_key=True),
    sa.Column("step_id", sa.BigInteger, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    _text("name"),
    sa.Column("state", sa.Integer, nullable=False),
    sa.Column("start_at", Instant, nullable=False),
    sa.Column("end_at", Instant),
    _big("exit_code"),
    _big("exit_signal"),
    sa.Column("exit_oom", sa.Boolean, nullable=False, server_default=sa.false()),
    _big("num_tasks"),
    _big("cpus"),
    _big("num_nodes"),
    _text("nodelist"),
    _text("alloc_tres"),
    sa.Column("user_secs", sa.Double, nullable=False, server_default="0"),
    sa.Column("system_secs", sa.Double, nullable=False, server_default="0"),
    _big("max_rss_kb"),
    _text("max_rss_node"),
    _text("layout"),
)
