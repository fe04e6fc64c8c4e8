"""`sdiag --json`: what the leader counted, in the keys of Slurm's data parser."""

from typing import TYPE_CHECKING, Any

from spur_cli.control.sdiag_text import average, mean, message, micros, ordered, per_minute
from spur_cli.data.values import nv

if TYPE_CHECKING:
    from spur_proto import controller_pb2


def statistics_tree(told: "controller_pb2.GetStatisticsResponse", order: str = "") -> dict[str, Any]:
    """Times in microseconds and seconds since the epoch.

    Args:
        order: as of `sdiag_text.ordered`.
    """
    found = told.scheduler
    passes, later = found.cycles, found.backfill_cycles
    return {
        "parts_packed": 1,
        "req_time": nv(int(told.at)),
        "req_time_start": nv(int(told.since)),
        "server_thread_count": told.calls_open,
        "agent_queue_size": 0,
        "agent_count": told.agent_calls_open,
        "agent_thread_count": told.agent_calls_open,
        "dbd_agent_queue_size": told.accounting_queue,
        "gettimeofday_latency": told.clock_micros,
        "schedule_cycle_max": micros(found.most_secs),
        "schedule_cycle_last": micros(found.last_secs),
        "schedule_cycle_sum": micros(found.total_secs),
        "schedule_cycle_total": passes,
        "schedule_cycle_mean": micros(mean(found.total_secs, passes)),
        "schedule_cycle_mean_depth": round(mean(found.total_depth, passes)),
        "schedule_cycle_per_minute": per_minute(told),
        "schedule_cycle_depth": found.total_depth,
        "schedule_exit": {
            "end_job_queue": found.whole,
            "default_queue_depth": 0,
            "max_job_start": 0,
            "max_rpc_cnt": 0,
            "max_sched_time": passes - found.whole,
            "licenses": 0,
        },
        "schedule_queue_length": found.queue,
        "jobs_submitted": told.jobs_submitted,
        "jobs_started": told.jobs_started,
        "jobs_completed": told.jobs_completed,
        "jobs_canceled": told.jobs_canceled,
        "jobs_failed": told.jobs_failed,
        "jobs_pending": told.jobs_pending,
        "jobs_running": told.jobs_running,
        "job_states_ts": nv(int(told.at)),
        "bf_backfilled_jobs": found.backfilled_ever,
        "bf_last_backfilled_jobs": found.backfilled,
        "bf_backfilled_het_jobs": 0,
        "bf_cycle_counter": later,
        "bf_cycle_mean": micros(mean(found.backfill_total_secs, later)),
        "bf_depth_mean": round(mean(found.backfill_total_depth, later)),
        "bf_depth_mean_try": round(mean(found.backfill_total_depth, later)),
        "bf_cycle_sum": micros(found.backfill_total_secs),
        "bf_cycle_last": micros(found.backfill_last_secs),
        "bf_cycle_max": micros(found.backfill_most_secs),
        "bf_last_depth": found.backfill_last_depth,
        "bf_last_depth_try": found.backfill_last_depth,
        "bf_depth_sum": found.backfill_total_depth,
        "bf_depth_try_sum": found.backfill_total_depth,
        "bf_queue_len": found.queue,
        "bf_queue_len_mean": round(mean(found.total_queue, passes)),
        "bf_queue_len_sum": found.total_queue,
        "bf_table_size": found.last_planned,
        "bf_table_size_sum": found.total_planned,
        "bf_table_size_mean": round(mean(found.total_planned, passes)),
        "bf_when_last_cycle": nv(int(found.backfill_last_at)),
        "bf_active": False,
        "rpcs_by_message_type": [
            {
                "message_type": message(one.name)[0],
                "type_id": message(one.name)[1],
                "count": one.count,
                "queued": 0,
                "dropped": 0,
                "cycle_last": 0,
                "cycle_max": 0,
                **_times(one),
            }
            for one in ordered(told.by_method, order, by_user=False)
        ],
        "rpcs_by_user": [
            {"user_id": one.uid, "user": one.name, "count": one.count, **_times(one)}
            for one in ordered(told.by_user, order, by_user=True)
        ],
        "pending_rpcs": [],
        "pending_rpcs_by_hostlist": [],
    }


def _times(one: "controller_pb2.CallCount") -> dict[str, Any]:
    return {"total_time": micros(one.total_secs), "average_time": nv(micros(average(one)))}
