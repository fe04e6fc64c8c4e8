"""Every column of squeue: header, letter, names, text and sort key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spur_cli.queue import names, shape
from spur_core.grammar import duration
from spur_core.grammar.instant import format_timestamp

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Job = common_pb2.JobInfo

_YEAR = 365 * 86400


class View:
    """How values are printed in one call.

    style: SLURM_TIME_FORMAT.  bits: length of task lists, 0 = all.  noconvert: keep M.
    now: seconds since the epoch.
    """

    __slots__ = ("bits", "noconvert", "now", "style")

    def __init__(self, style: str, bits: int, noconvert: bool, now: float) -> None:
        self.style = style
        self.bits = bits
        self.noconvert = noconvert
        self.now = now

    def moment(self, at: float, missing: str = "N/A") -> str:
        """A timestamp; 0 is missing."""
        return format_timestamp(at, self.style, self.now) if at else missing


Text = Callable[["Job", View], str]


def _limit(job: "Job", view: View) -> str:
    if not job.HasField("time_limit_secs"):
        return "NOT_SET"
    return duration.limit_squeue(names.time_limit(job))


def _left(job: "Job", view: View) -> str:
    if not job.HasField("time_limit_secs"):
        return "NOT_SET"
    limit = names.time_limit(job)
    if limit is None:
        return "UNLIMITED"
    return duration.squeue_form(-(-limit // 60) * 60 - int(job.run_secs))


def _end(job: "Job", view: View) -> str:
    if job.HasField("end_at"):
        return view.moment(job.end_at)
    if job.HasField("start_at") and names.time_limit(job) is None:
        return "NONE"
    return "N/A"


def _array_id(job: "Job", view: View) -> str:
    return str(job.array_job_id if job.HasField("array_job_id") else job.job_id)


def _task(job: "Job", view: View) -> str:
    if job.array_pending:
        return job.array_pending
    return str(job.array_task_id) if job.HasField("array_task_id") else "N/A"


def _start(job: "Job", view: View) -> str:
    return view.moment(job.start_at) if job.HasField("start_at") else "N/A"


def _tres(name: str) -> Text:
    return lambda job, view: shape.tres(job).get(name, "N/A")


def _number(field: str) -> Text:
    return lambda job, view: shape.number(job, field)


def _least_time(job: "Job", view: View) -> str:
    if not job.wishes.HasField("time_min_secs"):
        return "NOT_SET"
    return duration.limit_squeue(job.wishes.time_min_secs)


def _nodes(job: "Job", view: View) -> str:
    return str(job.num_nodes or job.min_nodes)


def _exit(job: "Job", view: View) -> str:
    return str(job.exit.code << 8 | job.exit.signal)


def _null(text: str) -> str:
    return text or "(null)"


#: letter, names of -O, header, text.  An empty letter: only a name of -O.
ROWS: tuple[tuple[str, str, str, Text], ...] = (
    ("a", "account", "ACCOUNT", lambda j, v: _null(j.account)),
    ("A", "jobid", "JOBID", lambda j, v: str(j.job_id)),
    (
        "b",
        "gres tres-per-node",
        "TRES_PER_NODE",
        _tres("TresPerNode"),
    ),
    ("B", "batchhost", "EXEC_HOST", lambda j, v: j.batch_host or "n/a"),
    ("c", "mincpus", "MIN_CPUS", lambda j, v: str(shape.min_cpus(j))),
    ("C", "numcpus", "CPUS", lambda j, v: str(j.num_cpus)),
    ("d", "mintmpdisk", "MIN_TMP_DISK", lambda j, v: shape.min_tmp_disk(j, noconvert=v.noconvert)),
    ("D", "numnodes", "NODES", _nodes),
    ("e", "endtime", "END_TIME", _end),
    ("E", "dependency", "DEPENDENCY", lambda j, v: _null(j.dependency)),
    ("f", "feature", "FEATURES", lambda j, v: _null(j.constraint)),
    ("F", "arrayjobid", "ARRAY_JOB_ID", _array_id),
    ("g", "groupname", "GROUP", lambda j, v: j.group or str(j.gid)),
    ("G", "groupid", "GROUP", lambda j, v: str(j.gid)),
    ("h", "oversubscribe shared", "OVER_SUBSCRIBE", lambda j, v: shape.over_subscribe(j)),
    ("H", "sockets", "SOCKETS_PER_NODE", _number("sockets_per_node")),
    ("i", "jobarrayid", "JOBID", lambda j, v: names.display_id(j, v.bits)),
    ("I", "cores", "CORES_PER_SOCKET", _number("cores_per_socket")),
    ("j", "name", "NAME", lambda j, v: j.name),
    ("J", "threads", "THREADS_PER_CORE", _number("threads_per_core")),
    ("k", "comment", "COMMENT", lambda j, v: _null(j.comment)),
    ("K", "arraytaskid", "ARRAY_TASK_ID", _task),
    ("l", "timelimit", "TIME_LIMIT", _limit),
    ("L", "timeleft", "TIME_LEFT", _left),
    ("m", "minmemory", "MIN_MEMORY", lambda j, v: shape.min_memory(j, noconvert=v.noconvert)),
    ("M", "timeused", "TIME", lambda j, v: duration.squeue_form(j.run_secs)),
    ("n", "reqnodes", "REQ_NODES", lambda j, v: j.req_nodelist),
    ("N", "nodelist", "NODELIST", lambda j, v: j.nodelist),
    ("o", "command", "COMMAND", lambda j, v: _null(j.command)),
    ("O", "contiguous", "CONTIGUOUS", lambda j, v: str(int(j.wishes.contiguous))),
    ("p", "priority", "PRIORITY", lambda j, v: f"{j.priority / 4294967295:.14f}"),
    ("P", "partition", "PARTITION", lambda j, v: j.partition),
    ("q", "qos", "QOS", lambda j, v: _null(j.qos)),
    ("Q", "prioritylong", "PRIORITY", lambda j, v: str(j.priority)),
    ("r", "reason", "REASON", lambda j, v: names.reason_of(j)),
    ("R", "reasonlist", "NODELIST(REASON)", lambda j, v: names.nodes_or_reason(j)),
    ("s", "sluid", "SLUID", lambda j, v: ""),
    ("S", "starttime", "START_TIME", _start),
    ("t", "statecompact", "ST", lambda j, v: names.state_code(j.state)),
    ("T", "state", "STATE", lambda j, v: names.state_name(j.state)),
    ("u", "username", "USER", lambda j, v: j.user or str(j.uid)),
    ("U", "userid", "UID", lambda j, v: str(j.uid)),
    ("v", "reservation", "RESERVATION", lambda j, v: _null(j.reservation)),
    ("V", "submittime", "SUBMIT_TIME", lambda j, v: view_moment(v, j.submit_at)),
    ("w", "wckey", "WCKEY", lambda j, v: _null(j.wckey)),
    ("W", "licenses", "LICENSES", lambda j, v: _null(j.licenses_alloc or j.licenses)),
    ("x", "excnodes", "EXC_NODES", lambda j, v: j.exc_nodelist),
    ("X", "corespec", "CORE_SPEC", lambda j, v: "N/A"),
    ("y", "nice", "NICE", lambda j, v: str(j.nice)),
    ("Y", "schednodes", "SCHEDNODES", lambda j, v: j.sched_nodes or "(null)"),
    ("z", "sct", "S:C:T", lambda j, v: shape.sockets_cores_threads(j)),
    ("Z", "workdir", "WORK_DIR", lambda j, v: j.work_dir),
    ("", "allocnodes", "ALLOC_NODES", lambda j, v: j.submit_host or "N/A"),
    ("", "batchflag", "BATCH_FLAG", lambda j, v: str(int(j.batch))),
    ("", "cpuspertask cpus-per-task", "CPUS_PER_TASK", lambda j, v: str(max(j.cpus_per_task, 1))),
    (
        "",
        "deadline",
        "DEADLINE",
        lambda j, v: v.moment(j.deadline_at) if j.HasField("deadline_at") else "N/A",
    ),
    ("", "derivedec", "DERIVED_EC", lambda j, v: f"{j.derived_exit.code}:{j.derived_exit.signal}"),
    ("", "eligibletime", "ELIGIBLE_TIME", lambda j, v: view_moment(v, j.eligible_at)),
    ("", "exit_code", "EXIT_CODE", _exit),
    (
        "",
        "lastschedeval",
        "LAST_SCHED_EVAL",
        lambda j, v: v.moment(j.last_sched_at) if j.HasField("last_sched_at") else "N/A",
    ),
    ("", "maxnodes", "MAX_NODES", lambda j, v: str(j.max_nodes)),
    ("", "numtasks", "TASKS", lambda j, v: str(j.num_tasks)),
    ("", "ntpernode", "NTASKS_PER_NODE", lambda j, v: str(j.tasks_per_node or "N/A")),
    ("", "pendingtime", "PENDING_TIME", lambda j, v: str(pending_secs(j, v))),
    ("", "requeue", "REQUEUE", lambda j, v: str(int(j.requeue))),
    ("", "restartcnt", "RESTART_COUNT", lambda j, v: str(j.restarts)),
    ("", "runtime", "RUNTIME", lambda j, v: duration.squeue_form(j.run_secs)),
    ("", "stderr", "STDERR", lambda j, v: j.stderr_path or j.stdout_path),
    ("", "stdin", "STDIN", lambda j, v: j.stdin_path or "/dev/null"),
    ("", "stdout", "STDOUT", lambda j, v: j.stdout_path),
    ("", "tres-alloc tres", "TRES_ALLOC", lambda j, v: j.alloc_tres or "N/A"),
    ("", "exclusive", "EXCLUSIVE", lambda j, v: shape.exclusive(j)),
    ("", "mintime", "MIN_TIME", _least_time),
    ("", "ntpersocket", "NTASKS_PER_SOCKET", _number("ntasks_per_socket")),
    ("", "ntpercore", "NTASKS_PER_CORE", _number("ntasks_per_core")),
    ("", "tres-per-job", "TRES_PER_JOB", _tres("TresPerJob")),
    ("", "tres-per-socket", "TRES_PER_SOCKET", _tres("TresPerSocket")),
    ("", "tres-per-task", "TRES_PER_TASK", _tres("TresPerTask")),
    ("", "cpus-per-tres", "CPUS_PER_TRES", _tres("CpusPerTres")),
    ("", "mem-per-tres", "MEM_PER_TRES", _tres("MemPerTres")),
)


def view_moment(view: View, at: float) -> str:
    """A timestamp that is always known once it is not 0."""
    return view.moment(at)


def pending_secs(job: "Job", view: View) -> int:
    """Seconds from submission to start, or to now while it waits."""
    until = job.start_at if job.HasField("start_at") else view.now
    return max(0, int(until - job.submit_at))


BY_LETTER: dict[str, tuple[str, Text]] = {row[0]: (row[2], row[3]) for row in ROWS if row[0]}
BY_NAME: dict[str, tuple[str, Text]] = {name: (row[2], row[3]) for row in ROWS for name in row[1].split()}
#: Columns that overflow instead of being cut when they stand right.
OVERFLOW = frozenset("N R Y M L l nodelist reasonlist schednodes timeused timeleft timelimit".split())  # noqa: SIM905


#: Of these the header is not cut either.
OVERFLOW_HEADER = frozenset({"N", "R", "Y", "nodelist", "reasonlist", "schednodes"})


def _by_id(job: "Job") -> tuple[int, int]:
    master = job.array_job_id if job.HasField("array_job_id") else job.job_id
    if job.HasField("array_task_id"):
        return master, job.array_task_id
    pending = job.array_pending.partition("%")[0].replace("-", ",").partition(",")[0]
    return master, int(pending) if pending.isdigit() else -1


#: Keys of the letters that do not sort by their text.
SORT_KEYS: dict[str, Callable[["Job"], Any]] = {
    "i": _by_id,
    "A": lambda j: j.job_id,
    "F": _by_id,
    "C": lambda j: j.num_cpus,
    "c": lambda j: j.cpus_per_task,
    "D": lambda j: j.num_nodes or j.min_nodes,
    "e": lambda j: j.end_at,
    "K": lambda j: j.array_task_id,
    "l": lambda j: j.time_limit_secs,
    "L": lambda j: j.time_limit_secs - j.run_secs,
    "m": lambda j: j.memory_per_node_mb or j.memory_per_cpu_mb,
    "M": lambda j: j.run_secs,
    "p": lambda j: j.priority,
    "Q": lambda j: j.priority,
    "S": lambda j: j.start_at if j.HasField("start_at") else float("inf"),
    "U": lambda j: j.uid,
    "G": lambda j: j.gid,
    "V": lambda j: j.submit_at,
    "y": lambda j: j.nice,
}


def sort_jobs(jobs: list["Job"], spec: str, view: View) -> None:
    """Sort in place by `spec`; ties keep the order of start times, then of the list.

    Raises:
        ValueError: a letter nobody knows; its text is the letter.
    """
    jobs.sort(key=lambda job: job.start_at if job.HasField("start_at") else float("inf"))
    keys = list(sort_letters(spec))
    for letter, descending in reversed(keys):
        key = SORT_KEYS.get(letter)
        if key is None:
            text = BY_LETTER[letter][1]
            jobs.sort(key=lambda job, text=text: text(job, view), reverse=descending)  # type: ignore[misc]
        else:
            jobs.sort(key=key, reverse=descending)


def sort_letters(spec: str) -> list[tuple[str, bool]]:
    """(letter, descending) of a sort specification.

    Raises:
        ValueError: a letter nobody knows.
    """
    out, descending = [], False
    for char in spec.replace("cluster", ""):
        if char in "+-":
            descending = char == "-"
        elif char in ", ":
            descending = False
        elif char in BY_LETTER:
            out.append((char, descending))
            descending = False
        else:
            raise ValueError(char)
    return out
