"""The blocks of sdiag: what was counted under Slurm's labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spur_cli.control.sdiag import when

if TYPE_CHECKING:
    from spur_proto import controller_pb2

    Told = controller_pb2.GetStatisticsResponse
    Count = controller_pb2.CallCount
    Figures = controller_pb2.SchedulerFigures

#: Slurm's name and number of the message that does what our call does.
MESSAGES = {
    "RegisterAgent": ("MESSAGE_NODE_REGISTRATION_STATUS", 1002),
    "Ping": ("REQUEST_PING", 1008),
    "GetConfig": ("REQUEST_BUILD_INFO", 2001),
    "GetJobs": ("REQUEST_JOB_INFO", 2003),
    "GetJobSteps": ("REQUEST_JOB_STEP_INFO", 2005),
    "GetNodes": ("REQUEST_NODE_INFO", 2007),
    "GetPartitions": ("REQUEST_PARTITION_INFO", 2009),
    "ListReservations": ("REQUEST_RESERVATION_INFO", 2024),
    "GetPriorities": ("REQUEST_PRIORITY_FACTORS", 2026),
    "GetStatistics": ("REQUEST_STATS_INFO", 2035),
    "UpdateJob": ("REQUEST_UPDATE_JOB", 3001),
    "UpdateNode": ("REQUEST_UPDATE_NODE", 3002),
    "CreatePartition": ("REQUEST_CREATE_PARTITION", 3003),
    "DeletePartition": ("REQUEST_DELETE_PARTITION", 3004),
    "UpdatePartition": ("REQUEST_UPDATE_PARTITION", 3005),
    "CreateReservation": ("REQUEST_CREATE_RESERVATION", 3006),
    "DeleteReservation": ("REQUEST_DELETE_RESERVATION", 3008),
    "UpdateReservation": ("REQUEST_UPDATE_RESERVATION", 3009),
    "SubmitJob": ("REQUEST_SUBMIT_BATCH_JOB", 4003),
    "CreateJobStep": ("REQUEST_JOB_STEP_CREATE", 5001),
    "CompleteJob": ("REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
    "ReportJobStatus": ("REQUEST_COMPLETE_BATCH_SCRIPT", 5018),
    "RequeueJob": ("REQUEST_JOB_REQUEUE", 5023),
    "CancelJob": ("REQUEST_KILL_JOB", 5032),
}


def message(method: str) -> tuple[str, int]:
    """(name, number) of a call; 0 for one that Slurm has not."""
    found = MESSAGES.get(method)
    if found is not None:
        return found
    words = "".join(f"_{char}" if char.isupper() else char for char in method).lstrip("_")
    return f"REQUEST_{words.upper()}", 0


def micros(secs: float) -> int:
    """Whole microseconds."""
    return round(secs * 1e6)


def mean(total: float, count: int) -> float:
    """0 of nothing."""
    return total / count if count else 0.0


def average(one: "Count") -> float:
    """Seconds of a call."""
    return mean(one.total_secs, one.count)


def ordered(counts: "Sequence[Count]", order: str, *, by_user: bool) -> "list[Count]":
    """Sorted as the option `order` says, else those first that come most often; alike ones by name."""
    counts = sorted(counts, key=lambda one: one.name)
    if order == "sort-by-id":
        return sorted(counts, key=lambda one: one.uid if by_user else message(one.name)[1])
    if order == "sort-by-time":
        return sorted(counts, key=lambda one: -one.total_secs)
    if order == "sort-by-time2":
        return sorted(counts, key=lambda one: -average(one))
    return sorted(counts, key=lambda one: -one.count)


def per_minute(told: "Told") -> int:
    """Passes of the scheduler."""
    found = told.scheduler
    minutes = max(1.0, (told.at - found.first_at) / 60) if found.first_at else 1.0
    return round(found.cycles / minutes)


def body(told: "Told", order: str) -> list[str]:
    """Everything below the head."""
    return [
        f"Server thread count:  {told.calls_open}",
        "RPC queue enabled:    0",
        "Agent queue size:     0",
        f"Agent count:          {told.agent_calls_open}",
        f"Agent thread count:   {told.agent_calls_open}",
        f"DBD Agent queue size: {told.accounting_queue}",
        "",
        f"Jobs submitted: {told.jobs_submitted}",
        f"Jobs started:   {told.jobs_started}",
        f"Jobs completed: {told.jobs_completed}",
        f"Jobs canceled:  {told.jobs_canceled}",
        f"Jobs failed:    {told.jobs_failed}",
        "",
        f"Job states ts:  {when(told.at)}",
        f"Jobs pending:   {told.jobs_pending}",
        f"Jobs running:   {told.jobs_running}",
        "",
        *_scheduler(told),
        "",
        f"Latency for 1000 calls to gettimeofday(): {told.clock_micros} microseconds",
        "",
        "Remote Procedure Call statistics by message type",
        *(_call(*message(one.name), one, "5") for one in ordered(told.by_method, order, by_user=False)),
        "",
        "Remote Procedure Call statistics by user",
        *(_call(one.name, one.uid, one, "8") for one in ordered(told.by_user, order, by_user=True)),
        "",
        "Pending RPC statistics",
        "\tNo pending RPCs",
    ]


def _call(name: str, number: int, one: "Count", width: str) -> str:
    pad = 40 if width == "5" else 16
    return (
        f"\t{name:<{pad}}({number:{width}}) count:{one.count:<6}"
        f" ave_time:{micros(average(one)):<6} total_time:{micros(one.total_secs)}"
    )


def _scheduler(told: "Told") -> list[str]:
    """Passes of the scheduler; times in microseconds.  One pass fills in around reservations for what waits,
    so its table is the queue."""
    found = told.scheduler
    return [
        "Main schedule statistics (microseconds):",
        f"\tLast cycle:   {micros(found.last_secs)}",
        f"\tMax cycle:    {micros(found.most_secs)}",
        f"\tTotal cycles: {found.cycles}",
        f"\tMean cycle:   {micros(mean(found.total_secs, found.cycles))}",
        f"\tMean depth cycle:  {round(mean(found.total_depth, found.cycles))}",
        f"\tCycles per minute: {per_minute(told)}",
        f"\tLast queue length: {found.queue}",
        "",
        "Main scheduler exit:",
        f"\tEnd of job queue:{found.whole}",
        f"\tTimeout (max_sched_time):{found.cycles - found.whole}",
        "",
        "Backfilling stats",
        f"\tTotal backfilled jobs (since last slurm start): {found.backfilled_ever}",
        f"\tTotal backfilled jobs (since last stats cycle start): {found.backfilled}",
        "\tTotal backfilled heterogeneous job components: 0",
        f"\tTotal cycles: {found.backfill_cycles}",
        f"\tLast cycle when: {when(found.backfill_last_at) if found.backfill_cycles else 'N/A'}",
        f"\tLast cycle: {micros(found.backfill_last_secs)}",
        f"\tMax cycle:  {micros(found.backfill_most_secs)}",
        f"\tMean cycle: {micros(mean(found.backfill_total_secs, found.backfill_cycles))}",
        f"\tLast depth cycle: {found.backfill_last_depth}",
        f"\tLast depth cycle (try sched): {found.backfill_last_depth}",
        f"\tDepth Mean: {round(mean(found.backfill_total_depth, found.backfill_cycles))}",
        f"\tDepth Mean (try depth): {round(mean(found.backfill_total_depth, found.backfill_cycles))}",
        f"\tLast queue length: {found.queue}",
        f"\tQueue length mean: {round(mean(found.total_queue, found.cycles))}",
        f"\tLast table size: {found.last_planned}",
        f"\tMean table size: {round(mean(found.total_planned, found.cycles))}",
    ]
