"""Every column of `squeue --steps`: header, letter, names, text and sort key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spur_cli.queue import names
from spur_core.grammar import duration
from spur_core.ids import step_name

if TYPE_CHECKING:
    from spur_cli.queue.fields import View
    from spur_proto import common_pb2

    Step = common_pb2.StepInfo

Text = Callable[["Step", "View"], str]


def step_id(step: "Step") -> str:
    """`12.0`, `12_3.batch`."""
    job = str(step.rid.job_id)
    if step.HasField("array_job_id") and step.HasField("array_task_id"):
        job = f"{step.array_job_id}_{step.array_task_id}"
    return f"{job}.{step_name(step.rid.step_id)}"


def limit(step: "Step") -> int | None:
    """Seconds, None = only the job's limit holds."""
    if not step.HasField("time_limit_secs") or step.time_limit_secs == names.UNLIMITED:
        return None
    return step.time_limit_secs


def _start(step: "Step", view: "View") -> str:
    return view.moment(step.start_at)


#: letter, names of -O, header, text.  An empty letter: only a name of -O.
ROWS: tuple[tuple[str, str, str, Text], ...] = (
    ("A", "numtasks", "TASKS", lambda s, v: str(s.num_tasks)),
    ("i", "stepid", "STEPID", lambda s, v: step_id(s)),
    ("j", "stepname name", "NAME", lambda s, v: s.name),
    ("l", "timelimit", "TIME_LIMIT", lambda s, v: duration.limit_squeue(limit(s))),
    ("M", "timeused", "TIME", lambda s, v: duration.squeue_form(s.run_secs)),
    ("N", "nodelist nodes", "NODELIST", lambda s, v: s.nodelist),
    ("P", "partition", "PARTITION", lambda s, v: s.partition),
    ("S", "starttime", "START_TIME", _start),
    ("u", "username", "USER", lambda s, v: s.user or str(s.uid)),
    ("U", "userid", "USER", lambda s, v: str(s.uid)),
    ("", "stepstate state", "STATE", lambda s, v: names.state_name(int(s.state))),
    ("", "jobid", "JOBID", lambda s, v: str(s.rid.job_id)),
    ("", "arrayjobid", "ARRAY_JOB_ID", lambda s, v: str(s.array_job_id or s.rid.job_id)),
    (
        "",
        "arraytaskid",
        "ARRAY_TASK_ID",
        lambda s, v: str(s.array_task_id) if s.HasField("array_task_id") else "N/A",
    ),
    ("", "numcpus", "CPUS", lambda s, v: str(s.num_cpus)),
    ("", "numnodes", "NODES", lambda s, v: str(s.num_nodes)),
    ("", "tres-alloc tres", "TRES_ALLOC", lambda s, v: s.alloc_tres or "N/A"),
    ("", "resvports", "RESV_PORTS", lambda s, v: ""),
    ("", "cpufreq", "CPU_FREQ", lambda s, v: "n/a"),
)
BY_LETTER: dict[str, tuple[str, Text]] = {row[0]: (row[2], row[3]) for row in ROWS if row[0]}
BY_NAME: dict[str, tuple[str, Text]] = {name: (row[2], row[3]) for row in ROWS for name in row[1].split()}
#: Columns that overflow instead of being cut when they stand right.
OVERFLOW = frozenset({"N", "M", "l", "nodelist", "nodes", "timeused", "timelimit"})
OVERFLOW_HEADER = frozenset({"N", "nodelist", "nodes"})

SORT_KEYS: dict[str, Callable[["Step"], Any]] = {
    "A": lambda s: s.num_tasks,
    "i": lambda s: (s.array_job_id or s.rid.job_id, s.array_task_id, s.rid.step_id),
    "l": lambda s: s.time_limit_secs,
    "M": lambda s: s.run_secs,
    "S": lambda s: s.start_at,
    "U": lambda s: s.uid,
}


def sort_steps(steps: list["Step"], letters: list[tuple[str, bool]], view: "View") -> None:
    """Sort in place by (letter, descending) pairs."""
    for letter, descending in reversed(letters):
        key = SORT_KEYS.get(letter)
        if key is None:
            text = BY_LETTER[letter][1]
            steps.sort(key=lambda step, text=text: text(step, view), reverse=descending)  # type: ignore[misc]
        else:
            steps.sort(key=key, reverse=descending)
