"""What a reader makes of a recorded workload, whatever its format."""

from collections.abc import Iterator
from typing import NamedTuple

from spur_core.errors import RequestError


class TraceError(RequestError):
    """A trace that cannot be read; the text names file, line and mend."""

    code = "bad_trace"

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}")


class TraceJob(NamedTuple):
    """One job of the trace.  Seconds; memory MiB; `submit` since the epoch, or since the trace's begin."""

    #: Line of the file, and the job as the trace calls it.
    line: int
    name: str
    submit: float
    #: How long it ran.
    run: float
    #: The time limit that its user gave; None = not recorded.
    limit: float | None
    #: The limit was "unlimited", which is not the same as not recorded.
    unlimited: bool
    cpus: int
    #: How many nodes it had; None = not recorded.
    nodes: int | None = None
    memory_per_cpu_mb: int | None = None
    memory_per_node_mb: int | None = None
    partition: str = ""
    user: str = ""
    account: str = ""
    #: What it waited when it was recorded; None = not recorded.
    waited: float | None = None


class Trace(NamedTuple):
    """A whole trace in order of submission.

    `nodes` and `cpus`: the recorded machine's size, if the trace tells.  `notes`: one sentence for each kind
    of record that was left out or read in a way one should know.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    nodes: int | None = None
    cpus: int | None = None
    notes: tuple[str, ...] = ()


Lines = Iterator[tuple[int, str]]


def plural(count: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
