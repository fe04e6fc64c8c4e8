"""Between the outbox's records and the tables' columns; pure."""

import math
from typing import Any

from spur_ctld.state.records import AcctRow, StepAcct, StepRow

#: Columns that name a run; the rest is replaced by a newer version.
JOB_KEY = ("cluster", "job_id", "attempt", "submit_at")
STEP_KEY = (*JOB_KEY, "step_id")
_LARGEST = (1 << 63) - 1


def job_values(cluster: str, row: AcctRow) -> dict[str, Any]:
    """The `jobs` columns of `row`."""
    return {
        "cluster": cluster,
        "job_id": row.job_id,
        "attempt": row.attempt,
        "submit_at": row.submit_at,
        "seq": row.seq,
        "state": int(row.state),
        "name": row.name,
        "user_name": row.user,
        "uid": row.uid,
        "gid": row.gid,
        "account": row.account,
        "partition": row.partition,
        "qos": row.qos,
        "reason": row.reason,
        "array_job_id": row.array_job_id,
        "array_task_id": row.array_task_id,
        "array_pending": row.array_pending,
        "eligible_at": row.eligible_at,
        "start_at": row.start_at,
        "end_at": row.end_at,
        "suspended_secs": row.suspended_secs,
        "time_limit": row.time_limit,
        "exit_code": row.exit.code,
        "exit_signal": row.exit.signal,
        "exit_oom": row.exit.oom,
        "derived_code": row.derived_exit.code,
        "derived_signal": row.derived_exit.signal,
        "req_cpus": row.req_cpus,
        "req_nodes": row.req_nodes,
        "req_mem_mb": row.req_mem_mb,
        "req_mem_per_cpu": row.req_mem_per_cpu,
        "alloc_cpus": row.alloc_cpus,
        "alloc_nodes": row.alloc_nodes,
        "nodelist": row.nodelist,
        "req_tres": row.req_tres,
        "alloc_tres": row.alloc_tres,
        "priority": row.priority,
        "work_dir": row.work_dir,
        "submit_line": row.submit_line,
        "comment": row.comment,
        "constraint_expr": row.constraint,
        "wckey": row.wckey,
        "stdout": row.stdout,
        "stderr": row.stderr,
        "stdin": row.stdin,
        "kill_uid": row.kill_uid,
        "restarts": row.restarts,
        "reservation": row.reservation,
        "req_reservation": row.req_reservation,
        "licenses": row.licenses,
    }


def step_values(cluster: str, row: AcctRow | StepAcct, step: StepRow) -> dict[str, Any]:
    """The `steps` columns of one step of `row`, whose version it has."""
    return {
        "cluster": cluster,
        "job_id": row.job_id,
        "attempt": row.attempt,
        "submit_at": row.submit_at,
        "step_id": step.step_id,
        "seq": row.seq,
        "name": step.name,
        "state": int(step.state),
        "start_at": step.start_at,
        "end_at": step.end_at,
        "exit_code": step.exit.code,
        "exit_signal": step.exit.signal,
        "exit_oom": step.exit.oom,
        "num_tasks": step.num_tasks,
        "cpus": step.cpus,
        "num_nodes": step.num_nodes,
        "nodelist": step.nodelist,
        "alloc_tres": step.alloc_tres,
        "user_secs": step.usage.user_secs,
        "system_secs": step.usage.system_secs,
        "max_rss_kb": step.usage.max_rss_kb,
        "max_rss_node": step.max_rss_node,
        "layout": step.layout,
    }


def text_safe(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with everything that a column could refuse replaced: one row must never hold up all others.

    NUL and lone surrogates, which PostgreSQL's text cannot hold, are made visible; numbers are brought
    within a column's 64 bits, and what is no number at all becomes 0.
    """
    for key, value in values.items():
        if isinstance(value, str):
            if not _plain(value):
                values[key] = value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
        elif isinstance(value, float):
            if not math.isfinite(value):
                values[key] = 0.0
        elif isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
            values[key] = _LARGEST if value > 0 else -_LARGEST
    return values


def _plain(value: str) -> bool:
    return value.isascii() and "\0" not in value
