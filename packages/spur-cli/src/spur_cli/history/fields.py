"""Every field of sacct: name, width, text.  A negative width stands left.

Fields whose data this release does not collect print an empty cell, as Slurm does for what it does not know.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from spur_cli.printable import printable
from spur_core.errors import GrammarError
from spur_core.grammar import duration, size, tres
from spur_core.grammar.array import bracket
from spur_core.grammar.instant import format_timestamp
from spur_core.ids import step_name
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_proto import accounting_pb2 as pb

    Job = pb.JobHistory
    Step = pb.StepHistory

UNLIMITED = 0xFFFFFFFF


class View:
    """How values are printed.

    style: SLURM_TIME_FORMAT.  units, noconvert: of memory.  now: seconds since the epoch.
    window: (start, end) that times are cut to with -T, None without.
    """

    __slots__ = ("noconvert", "now", "style", "units", "window")

    def __init__(
        self,
        now: float,
        style: str = "",
        units: str = "",
        noconvert: bool = False,
        window: tuple[float, float] | None = None,
    ) -> None:
        self.now = now
        self.style = style
        self.units = units
        self.noconvert = noconvert
        self.window = window

    def moment(self, at: float) -> str:
        """A timestamp."""
        return format_timestamp(at, self.style, self.now)


class Row:
    """An allocation row (step None) or a step row."""

    __slots__ = ("job", "step", "view")

    def __init__(self, job: "Job", step: "Step | None", view: View) -> None:
        self.job = job
        self.step = step
        self.view = view

    def start(self) -> float | None:
        """When it started, within the window of -T."""
        if self.step is not None:
            at: float | None = self.step.start_at or None
        else:
            at = self.job.start_at if self.job.HasField("start_at") else None
        if at is not None and self.view.window is not None:
            at = max(at, self.view.window[0])
        return at

    def end(self) -> float | None:
        """When it ended, within the window of -T; None while it has not."""
        whole = self.step if self.step is not None else self.job
        at = whole.end_at if whole.HasField("end_at") else None
        if self.view.window is not None:
            at = min(at if at is not None else self.view.now, self.view.window[1])
        return at

    def elapsed(self) -> int:
        """Seconds of running."""
        start, end = self.start(), self.end()
        if start is None:
            return 0
        suspended = self.job.suspended_secs if self.step is None else 0
        return max(0, int((end if end is not None else self.view.now) - start - suspended))

    def cpus(self) -> int:
        """CPUs held."""
        return self.step.alloc_cpus if self.step is not None else self.job.alloc_cpus

    def cpu_secs(self) -> tuple[float, float]:
        """(user, system) seconds used; of a job, those of its steps."""
        steps = [self.step] if self.step is not None else list(self.job.steps)
        return sum(step.user_secs for step in steps), sum(step.system_secs for step in steps)


Text = Callable[[Row], str]


def _job(function: "Callable[[Job], str]") -> Text:
    """A field that only allocation rows have."""
    return lambda row: function(row.job) if row.step is None else ""


def _both(job: "Callable[[Job], str]", step: "Callable[[Step], str]") -> Text:
    return lambda row: job(row.job) if row.step is None else step(row.step)


def _step(function: "Callable[[Step], str]") -> Text:
    """A field that only step rows have."""
    return lambda row: function(row.step) if row.step is not None else ""


def _nothing(row: Row) -> str:
    return ""


def job_id(job: "Job") -> str:
    """`12`, `12_3`, `12_[2-3%2]`."""
    if not job.HasField("array_job_id"):
        return str(job.job_id)
    if job.array_pending:
        indices, _, throttle = job.array_pending.partition("%")
        return f"{job.array_job_id}_{bracket(indices, int(throttle) if throttle.isdigit() else 0)}"
    if job.HasField("array_task_id"):
        return f"{job.array_job_id}_{job.array_task_id}"
    return str(job.job_id)


def _id(row: Row) -> str:
    tail = f".{step_name(row.step.step_id)}" if row.step is not None else ""
    return job_id(row.job) + tail


def _raw_id(row: Row) -> str:
    tail = f".{step_name(row.step.step_id)}" if row.step is not None else ""
    return f"{row.job.job_id}{tail}"


def state_text(row: Row) -> str:
    """`COMPLETED`, `CANCELLED by 1000`, ..."""
    state = int(row.step.state if row.step is not None else row.job.state)
    name = JobState(state).name if state in JobState.__members__.values() else "UNKNOWN"
    if row.step is None and state == JobState.CANCELLED and row.job.HasField("kill_uid"):
        return f"{name} by {row.job.kill_uid}"
    return name


def _exit(row: Row) -> str:
    found = row.step.exit if row.step is not None else row.job.exit
    return f"{found.code}:{found.signal}"


def _start(row: Row) -> str:
    at = row.start()
    if at is not None:
        return row.view.moment(at)
    return "None" if row.job.HasField("end_at") else "Unknown"


def _end(row: Row) -> str:
    at = row.end()
    return row.view.moment(at) if at is not None else "Unknown"


def _limit(job: "Job") -> str:
    if not job.HasField("time_limit_secs"):
        return "Partition_Limit"
    return duration.limit_long(None if job.time_limit_secs == UNLIMITED else job.time_limit_secs)


def _limit_raw(job: "Job") -> str:
    if not job.HasField("time_limit_secs"):
        return "Partition_Limit"
    return "UNLIMITED" if job.time_limit_secs == UNLIMITED else str(-(-job.time_limit_secs // 60))


def _memory(row: Row) -> str:
    if row.step is not None:
        return ""
    return size.format_mem(row.job.req_mem_mb, noconvert=row.view.noconvert, units=row.view.units)


def _rss(row: Row) -> str:
    if row.step is None or not row.step.max_rss_kb:
        return ""
    if row.view.units:
        return size.format_mem(-(-row.step.max_rss_kb // 1024), units=row.view.units)
    return size.format_kib(row.step.max_rss_kb)


def _tres(text: str, view: View) -> str:
    try:
        amounts = tres.parse_tres(text)
    except GrammarError:
        return text
    if not (view.noconvert or view.units):
        return tres.format_tres(amounts, by_name=True)
    return ",".join(
        f"{name}={size.format_mem(count, noconvert=view.noconvert, units=view.units)}"
        if name in ("mem", "vmem")
        else f"{name}={count}"
        for name, count in sorted(amounts.items())
        if count
    )


def _gres(text: str) -> str:
    """`gpu:2` of `cpu=4,gres/gpu=2`: the old form of devices, without their makes."""
    found = (item.partition("=") for item in text.split(","))
    return ",".join(
        f"{name.removeprefix('gres/')}:{count}"
        for name, _, count in found
        if name.startswith("gres/") and ":" not in name
    )


def _used(which: int) -> Text:
    def text(row: Row) -> str:
        user, system = row.cpu_secs()
        return duration.cpu_form((user, system, user + system)[which])

    return text


def planned(row: Row) -> int | None:
    """Seconds between being eligible and starting."""
    if row.step is not None:
        return None
    begun = row.job.eligible_at if row.job.HasField("eligible_at") else row.job.submit_at
    until = row.job.start_at if row.job.HasField("start_at") else None
    if until is None:
        until = row.job.end_at if row.job.HasField("end_at") else row.view.now
    return max(0, int(until - begun))


def _planned_text(row: Row) -> str:
    secs = planned(row)
    return "" if secs is None else duration.long_form(secs)


def _planned_cpu(raw: bool) -> Text:
    def text(row: Row) -> str:
        secs = planned(row)
        if secs is None:
            return ""
        total = secs * row.job.req_cpus
        return str(total) if raw else duration.long_form(total)

    return text


def _group(job: "Job") -> str:
    from spur_cli.users import group_name

    return group_name(job.gid)


def _nodes(row: Row) -> str:
    if row.step is not None:
        return row.step.nodelist
    return row.job.nodelist or "None assigned"


def _average_cpu(step: "Step") -> str:
    return duration.long_form((step.user_secs + step.system_secs) / max(step.num_tasks, 1))


FIELDS: tuple[tuple[str, int, Text], ...] = (
    ("Account", 10, lambda row: row.job.account),
    ("AdminComment", 15, _nothing),
    ("AllocCPUS", 10, lambda row: str(row.cpus())),
    ("AllocNodes", 10, _both(lambda j: str(j.alloc_nodes), lambda s: str(s.num_nodes))),
    (
        "AllocTRES",
        10,
        lambda row: _tres((row.step if row.step is not None else row.job).alloc_tres, row.view),
    ),
    ("AssocID", 7, _nothing),
    ("AveCPU", 10, _step(_average_cpu)),
    ("AveCPUFreq", 10, _nothing),
    ("AveDiskRead", 14, _nothing),
    ("AveDiskWrite", 14, _nothing),
    ("AvePages", 10, _nothing),
    ("AveRSS", 10, _nothing),
    ("AveVMSize", 10, _nothing),
    ("BlockID", 16, _nothing),
    ("Cluster", 10, lambda row: row.job.cluster),
    ("Comment", 14, _job(lambda j: j.comment)),
    ("Constraints", 19, _job(lambda j: j.constraint)),
    ("ConsumedEnergy", 14, _nothing),
    ("ConsumedEnergyRaw", 17, _nothing),
    ("Container", 19, _nothing),
    ("CPUTime", 10, lambda row: duration.long_form(row.elapsed() * row.cpus())),
    ("CPUTimeRAW", 10, lambda row: str(row.elapsed() * row.cpus())),
    ("DBIndex", -21, _job(lambda j: str(j.db_index))),
    ("DerivedExitCode", 15, _job(lambda j: f"{j.derived_exit.code}:{j.derived_exit.signal}")),
    ("Elapsed", 10, lambda row: duration.long_form(row.elapsed())),
    ("ElapsedRaw", 10, lambda row: str(row.elapsed())),
    (
        "Eligible",
        19,
        lambda row: (
            ""
            if row.step is not None
            else (row.view.moment(row.job.eligible_at) if row.job.HasField("eligible_at") else "Unknown")
        ),
    ),
    ("End", 19, _end),
    ("ExitCode", 8, _exit),
    ("Extra", 14, _nothing),
    ("FailedNode", 8, _nothing),
    ("Flags", 19, _job(lambda j: j.flags)),
    ("GID", 6, _job(lambda j: str(j.gid))),
    ("Group", 9, _job(_group)),
    ("JobID", -12, _id),
    ("JobIDRaw", -12, _raw_id),
    ("JobName", 10, _both(lambda j: j.name, lambda s: s.name or step_name(s.step_id))),
    ("Layout", 9, _step(lambda s: s.layout)),
    ("Licenses", 10, _job(lambda j: j.licenses)),
    ("MaxDiskRead", 12, _nothing),
    ("MaxDiskReadNode", 15, _nothing),
    ("MaxDiskReadTask", 15, _nothing),
    ("MaxDiskWrite", 12, _nothing),
    ("MaxDiskWriteNode", 16, _nothing),
    ("MaxDiskWriteTask", 16, _nothing),
    ("MaxPages", 8, _nothing),
    ("MaxPagesNode", 12, _nothing),
    ("MaxPagesTask", 14, _nothing),
    ("MaxRSS", 10, _rss),
    ("MaxRSSNode", 10, _step(lambda s: s.max_rss_node)),
    ("MaxRSSTask", 10, _nothing),
    ("MaxVMSize", 10, _nothing),
    ("MaxVMSizeNode", 14, _nothing),
    ("MaxVMSizeTask", 14, _nothing),
    ("McsLabel", 12, _nothing),
    ("MinCPU", 10, _nothing),
    ("MinCPUNode", 10, _nothing),
    ("MinCPUTask", 10, _nothing),
    ("NCPUS", 10, lambda row: str(row.cpus())),
    ("NNodes", 8, _both(lambda j: str(j.alloc_nodes or j.req_nodes), lambda s: str(s.num_nodes))),
    ("NodeList", 15, _nodes),
    ("NTasks", 8, _step(lambda s: str(s.num_tasks))),
    ("Partition", 10, _job(lambda j: j.partition)),
    ("Planned", 10, _planned_text),
    ("PlannedCPU", 10, _planned_cpu(False)),
    ("PlannedCPURAW", 13, _planned_cpu(True)),
    ("Priority", 10, _job(lambda j: str(j.priority))),
    ("QOS", 10, _job(lambda j: j.qos)),
    ("QOSRAW", 6, _nothing),
    ("QOSREQ", 10, _job(lambda j: j.qos)),
    ("Reason", 22, _job(lambda j: j.reason or "None")),
    ("ReqCPUFreq", 10, _nothing),
    ("ReqCPUFreqGov", 13, _nothing),
    ("ReqCPUFreqMax", 13, _nothing),
    ("ReqCPUFreqMin", 13, _nothing),
    ("ReqCPUS", 8, _both(lambda j: str(j.req_cpus), lambda s: str(s.alloc_cpus))),
    ("ReqMem", 10, _memory),
    ("ReqNodes", 8, _both(lambda j: str(j.req_nodes), lambda s: str(s.num_nodes))),
    ("ReqReservation", 20, _job(lambda j: j.req_reservation)),
    ("ReqTRES", 10, lambda row: _tres(row.job.req_tres, row.view) if row.step is None else ""),
    ("Reservation", 20, _job(lambda j: j.reservation)),
    ("ReservationId", 8, _nothing),
    ("Restarts", 8, _job(lambda j: str(j.restarts))),
    ("SLUID", 14, _nothing),
    ("Start", 19, _start),
    ("State", 10, state_text),
    ("StdErr", 20, _job(lambda j: j.stderr_path)),
    ("StdIn", 20, _job(lambda j: j.stdin_path)),
    ("StdOut", 20, _job(lambda j: j.stdout_path)),
    ("Submit", 19, lambda row: "" if row.step is not None else row.view.moment(row.job.submit_at)),
    ("SubmitLine", 20, _job(lambda j: j.submit_line)),
    ("Suspended", 10, lambda row: duration.long_form(row.job.suspended_secs if row.step is None else 0)),
    ("SystemComment", 15, _nothing),
    ("SystemCPU", 10, _used(1)),
    ("Timelimit", 10, _job(_limit)),
    ("TimelimitRaw", 10, _job(_limit_raw)),
    ("TotalCPU", 10, _used(2)),
    *(
        (f"TRESUsage{way}{what}", width + extra, _nothing)
        for way, width in (("In", 14), ("Out", 15))
        for what, extra in (
            ("Ave", 0),
            ("Max", 0),
            ("MaxNode", 4),
            ("MaxTask", 4),
            ("Min", 0),
            ("MinNode", 4),
            ("MinTask", 4),
            ("Tot", 0),
        )
    ),
    ("UID", 6, _job(lambda j: str(j.uid))),
    ("User", 9, _job(lambda j: j.user)),
    ("UserCPU", 10, _used(0)),
    ("WCKey", 10, _job(lambda j: j.wckey)),
    ("WCKeyID", 10, _nothing),
    ("WorkDir", 20, _job(lambda j: j.work_dir)),
)

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,"
    "maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,"
    "alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,"
    "consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,"
    "maxdiskwritetask,avediskwrite,reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,"
    "tresusageinmaxt,tresusageinmin,tresusageinminn,tresusageinmint,tresusageintot,tresusageoutmax,"
    "tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot"
)
#: Fields that Slurm has removed and older programs still ask for; not in the list of all fields.
OLD: tuple[tuple[str, int, Text], ...] = (
    ("AllocGRES", 12, _job(lambda j: _gres(j.alloc_tres))),
    ("ReqGRES", 12, _job(lambda j: _gres(j.req_tres))),
)


class FieldError(GrammarError):
    """A field nobody knows."""

    code = "bad_field"


class Column:
    """A field in a width; a negative width stands left."""

    __slots__ = ("name", "text", "width")

    def __init__(self, name: str, width: int, text: Text) -> None:
        self.name = name
        self.width = width
        self.text = text

    def fit(self, text: str) -> str:
        """`text` in the width, cut to one less and a `+` when too long."""
        width = abs(self.width)
        if len(text) > width:
            text = text[: width - 1] + "+"
        return text.ljust(width) if self.width < 0 else text.rjust(width)


def parse_format(text: str) -> list[Column]:
    """The columns of a comma list `name[%[-]width]`; empty items are skipped.

    Raises:
        FieldError: an unknown field or a width that is none.
    """
    out = []
    for item in text.split(","):
        name, percent, width_text = item.strip().partition("%")
        if not name:
            continue
        known = _find(name)
        width = known[1]
        if percent:
            digits = width_text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and int(digits) > 0):
                raise FieldError(f'Invalid field requested: "{item.strip()}"')
            width = -int(digits) if width_text.startswith("-") else int(digits)
        out.append(Column(known[0], width, known[2]))
    return out


def _find(name: str) -> tuple[str, int, Text]:
    lower = name.lower()
    for field in (*FIELDS, *OLD):
        if field[0].lower() == lower:
            return field
    for field in FIELDS:
        if field[0].lower().startswith(lower):
            return field
    raise FieldError(f'Invalid field requested: "{name}"')


def help_format() -> str:
    """Every name, four a line in columns of 20."""
    names = [field[0] for field in FIELDS]
    lines = ["".join(f"{name:<19} " for name in names[at : at + 4]) for at in range(0, len(names), 4)]
    return "\n".join(lines) + "\n"


def rows_of(job: "Job", view: View, *, steps: bool, only: frozenset[int] | None = None) -> list[Row]:
    """The rows of one job: the allocation, then `.batch`, `.extern`, `.0`, `.1`, ...

    Args:
        only: print these steps alone, without the allocation row.
    """
    rows = [Row(job, None, view)] if only is None else []
    if steps or only is not None:
        ordered = sorted(job.steps, key=lambda s: (0 if s.step_id >= 0xFFFFFFF0 else 1, s.step_id))
        rows += [Row(job, step, view) for step in ordered if only is None or step.step_id in only]
    return rows


def table_text(columns: list[Column], rows: list[Row], *, header: bool) -> str:
    """The padded table: each field in its width and one blank behind it."""
    lines = []
    if header:
        lines.append("".join(column.fit(column.name) + " " for column in columns))
        lines.append("".join("-" * abs(column.width) + " " for column in columns))
    lines += ["".join(column.fit(printable(column.text(row))) + " " for column in columns) for row in rows]
    return "".join(line + "\n" for line in lines)


def parsable_text(
    columns: list[Column], rows: list[Row], *, header: bool, delimiter: str, trailing: bool
) -> str:
    """Cells with a delimiter between them, and behind the last one with `trailing`."""
    lines = [[column.name for column in columns]] if header else []
    lines += [[printable(column.text(row)) for column in columns] for row in rows]
    end = (delimiter if trailing else "") + "\n"
    return "".join(delimiter.join(line) + end for line in lines)
