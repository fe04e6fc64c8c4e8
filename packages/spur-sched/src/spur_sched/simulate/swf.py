"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive.

A line a job, 18 numbers separated by blanks, -1 where nothing is known; lines that begin with `;` are
comments, those at the top of the form `; Name: value` describe the machine.  Jobs are in order of submission.
Jobs that were broken into parts have one line for the whole and one for each part (status 2, 3, 4); only the
former are read, as the format's definition asks.
"""

import math
import re
from collections import Counter
from typing import Final, NamedTuple

from spur_sched.simulate.trace import Lines, Trace, TraceError, TraceJob, plural

#: The columns, numbered from 1 as in the format's definition.
COLUMNS: Final = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
#: These may have a fraction; the others are whole numbers.
_FRACTIONS: Final = frozenset({"submit time", "wait time", "run time", "average CPU time", "used memory"}) | {
    "requested time",
    "requested memory",
    "think time",
}
_HEADER: Final = re.compile(r";\s*(MaxNodes|MaxProcs)\s*:\s*(\S+)", re.ASCII)
_STATUS: Final = frozenset({-1, 0, 1, 2, 3, 4, 5})
_PARTS: Final = frozenset({2, 3, 4})
_CANCELLED: Final = 5


class _Record(NamedTuple):
    """One line, columns in the format's order; -1 = not known."""

    number: int
    submit: float
    wait: float
    run: float
    allocated: int
    cpu_time: float
    used_memory: float
    requested: int
    requested_time: float
    requested_memory: float
    status: int
    user: int
    group: int
    executable: int
    queue: int
    partition: int
    preceding: int
    think_time: float


def read(name: str, lines: Lines) -> Trace:
    """All jobs of the trace.

    Args:
        name: of the file, for messages.
        lines: (number from 1, text).

    Raises:
        TraceError: a line is not of the format.
    """
    reader = _Reader(name)
    for line, text in lines:
        reader.line(line, text)
    return reader.trace()


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[TraceJob] = []
        self.left_out: Counter[str] = Counter()
        self.header: dict[str, int] = {}
        self.last = -math.inf
        #: Job number -> its line.
        self.seen: dict[int, int] = {}

    def line(self, line: int, text: str) -> None:
        text = text.strip()
        if not text:
            return
        if text.startswith(";"):
            found = _HEADER.match(text)
            if found is not None and found[1] not in self.header:
                self._header(line, found[1], found[2])
            return
        self._job(line, self._record(line, text))

    def _header(self, line: int, name: str, text: str) -> None:
        if text == "-1":
            return
        if not text.isdecimal() or int(text) < 1:
            raise TraceError(
                self.name, line, f"{name} {text!r} is not a positive number; correct or remove it"
            )
        self.header[name] = int(text)

    def _record(self, line: int, text: str) -> _Record:
        fields = text.split()
        if len(fields) != len(COLUMNS):
            raise TraceError(
                self.name,
                line,
                f"{plural(len(fields), 'column')} instead of {len(COLUMNS)}; unknown values are written -1"
                " (sacct output needs --format sacct)",
            )
        values: list[float] = []
        for column, field in zip(COLUMNS, fields, strict=True):
            try:
                value = float(field) if column in _FRACTIONS else int(field)
            except ValueError:
                kind = "number" if column in _FRACTIONS else "whole number"
                raise self._bad(line, column, field, f"is not a {kind}; unknown values are -1") from None
            if not math.isfinite(value) or (value < 0 and value != -1):
                raise self._bad(line, column, field, "is not a possible value; unknown values are -1")
            values.append(value)
        return _Record(*values)  # type: ignore[arg-type]  # whole numbers are ints by COLUMNS

    def _bad(self, line: int, column: str, field: str, text: str) -> TraceError:
        return TraceError(self.name, line, f"column {COLUMNS.index(column) + 1} ({column}): {field!r} {text}")

    def _job(self, line: int, found: _Record) -> None:
        if found.status not in _STATUS:
            raise self._bad(line, "status", str(found.status), "is not 0 to 5 or -1")
        if found.submit < 0:
            raise self._bad(line, "submit time", f"{found.submit:g}", "must be known")
        if found.status in _PARTS:
            self.left_out["part"] += 1
            return
        if found.submit < self.last:
            raise TraceError(
                self.name,
                line,
                f"job {found.number} was submitted at {found.submit:g}, before the job above it"
                f" ({self.last:g}); sort the jobs by column 2",
            )
        self.last = found.submit
        if found.number in self.seen:
            raise TraceError(
                self.name,
                line,
                f"job {found.number} is on line {self.seen[found.number]} too; give each job its own number",
            )
        self.seen[found.number] = line
        processors = found.requested if found.requested > 0 else found.allocated
        if found.status == _CANCELLED and (found.run <= 0 or found.allocated <= 0):
            self.left_out["cancelled"] += 1
        elif found.run < 0:
            self.left_out["without run time"] += 1
        elif processors <= 0:
            self.left_out["without processors"] += 1
        else:
            self.jobs.append(_job(line, found, processors))

    def trace(self) -> Trace:
        out = self.left_out
        said = {
            "cancelled": "cancelled before they ran",
            "without run time": "without a run time",
            "without processors": "without a number of processors",
        }
        notes = [f"{plural(out[key], 'job')} left out: {text}" for key, text in said.items() if out[key]]
        if out["part"]:
            notes.append(f"{plural(out['part'], 'line')} left out: parts of jobs that stand there whole")
        return Trace(
            self.name,
            tuple(self.jobs),
            nodes=self.header.get("MaxNodes"),
            cpus=self.header.get("MaxProcs"),
            notes=tuple(notes),
        )


def _job(line: int, found: _Record, processors: int) -> TraceJob:
    #: Kilobytes per processor.
    memory = found.requested_memory
    return TraceJob(
        line=line,
        name=str(found.number),
        submit=float(found.submit),
        run=float(found.run),
        limit=float(found.requested_time) if found.requested_time > 0 else None,
        unlimited=False,
        cpus=processors,
        memory_per_cpu_mb=math.ceil(memory / 1024) if memory > 0 else None,
        user=str(found.user) if found.user >= 0 else "",
        account=str(found.group) if found.group >= 0 else "",
        partition=str(found.queue) if found.queue >= 0 else "",
        waited=float(found.wait) if found.wait >= 0 else None,
    )
