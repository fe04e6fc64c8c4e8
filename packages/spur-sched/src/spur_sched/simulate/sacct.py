"""What `sacct -P` prints: a header line with the names of the columns, then a line a job, `|` between them.

Any columns in any order; needed are JobID, Submit, AllocCPUS or ReqCPUS, and Elapsed or both Start and End.
Steps (`123.batch`, `123.0`) are passed over, each array task is a job of its own, and so is each component of
a heterogeneous job.  Times without a zone are read as they stand: only their differences count.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from spur_core.errors import GrammarError
from spur_core.grammar.jobid import BadJobRef, parse_job_ref
from spur_core.grammar.timelimit import parse_time_limit
from spur_sched.simulate.trace import Lines, Trace, TraceError, TraceJob, plural

#: A command that gives all columns this reader knows.
COMMAND: Final = (
    "sacct -a -X -P -S 2024-01-01 -E 2024-02-01 -o JobID,Submit,Start,End,Elapsed,Timelimit,AllocCPUS,"
    "ReqCPUS,NNodes,ReqMem,State,Partition,User,Account"
)
_UNKNOWN: Final = frozenset({"", "Unknown", "None", "Partition_Limit", "N/A", "INVALID"})
_UNFINISHED: Final = {"PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "REQUEUE_HOLD", "COMPLETING"}
_ELAPSED: Final = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_MEMORY: Final = re.compile(r"(\d+)(?:\.(\d+))?([KMGTP]?)([cn]?)", re.ASCII)
_NEEDED: Final = (("JobID",), ("Submit",), ("AllocCPUS", "ReqCPUS"), ("Elapsed", "Start"), ("Elapsed", "End"))
_Value = TypeVar("_Value")


def read(name: str, lines: Lines) -> Trace:
    """All jobs of the trace, by time of submission and then in the file's order.

    Args:
        name: of the file, for messages.
        lines: (number from 1, text).

    Raises:
        TraceError: a line is not what sacct prints, or a needed column is missing.
    """
    reader: _Reader | None = None
    for line, text in lines:
        text = text.rstrip("\r\n")
        if not text.strip():
            continue
        if reader is None:
            reader = _Reader(name, line, text)
        else:
            reader.line(line, text)
    if reader is None:
        raise TraceError(name, 1, f"no header line; make the trace with: {COMMAND}")
    return reader.trace()


class _Reader:
    def __init__(self, name: str, line: int, header: str) -> None:
        self.name = name
        #: `sacct -p` ends each line with a bar.
        self.trailing = header.endswith("|")
        self.columns = [column.strip() for column in header.removesuffix("|").split("|")]
        found = {column.lower() for column in self.columns}
        for choices in _NEEDED:
            if not any(choice.lower() in found for choice in choices):
                raise TraceError(
                    name, line, f"no column {' or '.join(choices)}; make the trace with: {COMMAND}"
                )
        self.jobs: list[TraceJob] = []
        self.left_out: Counter[str] = Counter()
        self.seen: dict[str, int] = {}

    def line(self, line: int, text: str) -> None:
        values = (text.removesuffix("|") if self.trailing else text).split("|")
        if len(values) != len(self.columns):
            raise TraceError(
                self.name,
                line,
                f"{plural(len(values), 'column')} under a header of {len(self.columns)};"
                " leave out columns whose text may hold a bar, as JobName does",
            )
        self._row(
            _Row(
                self.name,
                line,
                {column.lower(): v.strip() for column, v in zip(self.columns, values, strict=True)},
            )
        )

    def _row(self, row: "_Row") -> None:
        job = row.value("JobID", str)
        try:
            ref = None if job is None else parse_job_ref(job)
        except BadJobRef:
            ref = None
        if job is None or ref is None:
            raise row.bad("JobID", "is no job")
        if ref.step is not None:
            self.left_out["step"] += 1
            return
        state = (row.value("State", str) or "COMPLETED").split()[0].rstrip("+")
        if state in _UNFINISHED or (ref.tasks is not None and not ref.tasks.isdecimal()):
            self.left_out["unfinished"] += 1
            return
        begun, ended = row.value("Start", _instant), row.value("End", _instant)
        run = row.value("Elapsed", _elapsed)
        if run is None and begun is not None and ended is not None:
            run = ended - begun
        if begun is None and not run:
            self.left_out["never ran"] += 1
            return
        if run is None or run < 0:
            raise row.bad("Elapsed" if "elapsed" in row.values else "End", "gives no run time")
        submit = row.value("Submit", _instant)
        if submit is None:
            raise row.bad("Submit", "is no time")
        cpus = row.value("AllocCPUS", int) or row.value("ReqCPUS", int)
        if not cpus or cpus < 0:
            raise row.bad("AllocCPUS" if "alloccpus" in row.values else "ReqCPUS", "is no number of CPUs")
        if job in self.seen:
            raise TraceError(
                self.name,
                row.line,
                f"job {job} is on line {self.seen[job]} too; leave out --duplicates",
            )
        self.seen[job] = row.line
        self.jobs.append(_job(row, job, submit, run, cpus, begun))

    def trace(self) -> Trace:
        said = {
            "unfinished": "left out: not finished when the trace was made",
            "never ran": "left out: never ran",
        }
        notes = [
            f"{plural(self.left_out[key], 'job')} {text}" for key, text in said.items() if self.left_out[key]
        ]
        if self.left_out["step"]:
            notes.append(f"{plural(self.left_out['step'], 'line')} left out: steps of jobs")
        jobs = sorted(self.jobs, key=lambda job: job.submit)
        return Trace(self.name, tuple(jobs), notes=tuple(notes))


class _Row:
    def __init__(self, name: str, line: int, values: Mapping[str, str]) -> None:
        self.name = name
        self.line = line
        self.values = values

    def value(self, column: str, read: Callable[[str], _Value]) -> _Value | None:
        """The column's value; None when there is no such column, or nothing is known."""
        text = self.values.get(column.lower(), "")
        if text in _UNKNOWN:
            return None
        try:
            return read(text)
        except ValueError:
            raise self.bad(column, "cannot be read") from None

    def bad(self, column: str, text: str) -> TraceError:
        shown = self.values.get(column.lower(), "")
        return TraceError(
            self.name, self.line, f"{column} {shown!r} {text}; expected as `sacct -P` prints it"
        )


def _job(row: _Row, name: str, submit: float, run: float, cpus: int, begun: float | None) -> TraceJob:
    nodes = row.value("NNodes", int)
    limit = row.value("Timelimit", _limit)
    per_cpu = per_node = None
    memory = row.value("ReqMem", _memory)
    if memory is not None:
        mebibytes, kind = memory
        if kind == "c":
            per_cpu = mebibytes
        elif kind == "n":
            per_node = mebibytes
        else:
            # Of the whole job, since 21.08.
            per_cpu = -(-mebibytes // cpus)
    return TraceJob(
        line=row.line,
        name=name,
        submit=submit,
        run=run,
        limit=limit or None,
        unlimited=limit == 0,
        cpus=cpus,
        nodes=nodes if nodes and nodes > 0 else None,
        memory_per_cpu_mb=per_cpu or None,
        memory_per_node_mb=per_node or None,
        partition=row.value("Partition", str) or "",
        user=row.value("User", str) or "",
        account=row.value("Account", str) or "",
        waited=max(0.0, begun - submit) if begun is not None else None,
    )


def _instant(text: str) -> float:
    if text.isdecimal():
        return float(text)
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _elapsed(text: str) -> float:
    """Seconds of `[DAYS-[HOURS:]]MINUTES:SECONDS`."""
    found = _ELAPSED.fullmatch(text)
    if found is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _limit(text: str) -> float:
    """Seconds; 0 = no limit."""
    try:
        return float(parse_time_limit(text, "Timelimit") or 0)
    except GrammarError:
        raise ValueError(text) from None


def _memory(text: str) -> tuple[int, str]:
    """MiB, and "c" per CPU, "n" per node, "" of the job."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(text)
    whole, fraction, unit, kind = found.groups()
    scale = {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}[unit]
    kibibytes = int(whole) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
    return -(-kibibytes // 1024), kind


def looks_like(first: str) -> bool:
    """Whether the first line of a file is a header of sacct's."""
    return "|" in first and any(word.strip().lower() == "jobid" for word in first.split("|"))
