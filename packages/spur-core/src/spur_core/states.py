"""Job and node states as tables.  A pair that is not in a table is an error; there is no "else: pass".

Numbers are the wire's (`slurm.JobState`, `slurm.NodeBase`) and stored in logs: append only.
"""

from enum import IntEnum, IntFlag
from typing import Final

from spur_core.errors import GrammarError, IllegalTransition


class JobState(IntEnum):
    """Where a job is.  CONFIGURING = dispatch recorded, launch not confirmed; COMPLETING = its processes
    are ending, or being fenced, and its resources are not free yet."""

    PENDING = 1
    CONFIGURING = 2
    RUNNING = 3
    SUSPENDED = 4
    COMPLETING = 5
    COMPLETED = 6
    CANCELLED = 7
    FAILED = 8
    TIMEOUT = 9
    NODE_FAIL = 10
    PREEMPTED = 11
    BOOT_FAIL = 12
    DEADLINE = 13
    OUT_OF_MEMORY = 14
    #: Only in accounting: this attempt ended because the job went back to the queue.
    REQUEUED = 15


#: Slurm's compact codes.
JOB_CODE: Final = {
    JobState.PENDING: "PD",
    JobState.CONFIGURING: "CF",
    JobState.RUNNING: "R",
    JobState.SUSPENDED: "S",
    JobState.COMPLETING: "CG",
    JobState.COMPLETED: "CD",
    JobState.CANCELLED: "CA",
    JobState.FAILED: "F",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
    JobState.PREEMPTED: "PR",
    JobState.BOOT_FAIL: "BF",
    JobState.DEADLINE: "DL",
    JobState.OUT_OF_MEMORY: "OOM",
    JobState.REQUEUED: "RQ",
}

#: Names that a state filter accepts although no job of this release is ever in them.
FOREIGN_STATES: Final = {
    "REQUEUE_HOLD": "RH",
    "SPECIAL_EXIT": "SE",
    "RESIZING": "RS",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
    "SIGNALING": "SI",
    "RESV_DEL_HOLD": "RD",
    "REQUEUE_FED": "RF",
    "REVOKED": "RV",
}

ACTIVE_STATES: Final = frozenset(
    {JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING}
)
TERMINAL_STATES: Final = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
    }
)


class JobEvent(IntEnum):
    """What can happen to a job.  `END_*` ends it for good; `REQUEUE` brings it back to PENDING."""

    DISPATCH = 1
    COMMIT = 2
    NODE_EXIT = 3
    FENCE = 4
    SUSPEND = 5
    RESUME = 6
    REQUEUE = 7
    END_COMPLETED = 20
    END_CANCELLED = 21
    END_FAILED = 22
    END_TIMEOUT = 23
    END_NODE_FAIL = 24
    END_PREEMPTED = 25
    END_BOOT_FAIL = 26
    END_DEADLINE = 27
    END_OUT_OF_MEMORY = 28


END_EVENT: Final = {
    JobState.COMPLETED: JobEvent.END_COMPLETED,
    JobState.CANCELLED: JobEvent.END_CANCELLED,
    JobState.FAILED: JobEvent.END_FAILED,
    JobState.TIMEOUT: JobEvent.END_TIMEOUT,
    JobState.NODE_FAIL: JobEvent.END_NODE_FAIL,
    JobState.PREEMPTED: JobEvent.END_PREEMPTED,
    JobState.BOOT_FAIL: JobEvent.END_BOOT_FAIL,
    JobState.DEADLINE: JobEvent.END_DEADLINE,
    JobState.OUT_OF_MEMORY: JobEvent.END_OUT_OF_MEMORY,
}
_ENDS: Final = {event: state for state, event in END_EVENT.items()}

#: state -> event -> next state.
JOB_TRANSITIONS: Final[dict[JobState, dict[JobEvent, JobState]]] = {
    JobState.PENDING: {
        JobEvent.DISPATCH: JobState.CONFIGURING,
        JobEvent.END_CANCELLED: JobState.CANCELLED,
        JobEvent.END_DEADLINE: JobState.DEADLINE,
        JobEvent.END_FAILED: JobState.FAILED,
    },
    # A short job may end before the last node confirmed its launch, so every end is possible here.
    JobState.CONFIGURING: {
        JobEvent.COMMIT: JobState.RUNNING,
        JobEvent.NODE_EXIT: JobState.CONFIGURING,
        JobEvent.FENCE: JobState.COMPLETING,
        **_ENDS,
    },
    JobState.RUNNING: {
        JobEvent.NODE_EXIT: JobState.COMPLETING,
        JobEvent.FENCE: JobState.COMPLETING,
        JobEvent.SUSPEND: JobState.SUSPENDED,
        **_ENDS,
    },
    JobState.SUSPENDED: {
        JobEvent.NODE_EXIT: JobState.COMPLETING,
        JobEvent.FENCE: JobState.COMPLETING,
        JobEvent.RESUME: JobState.RUNNING,
        **_ENDS,
    },
    JobState.COMPLETING: {
        JobEvent.NODE_EXIT: JobState.COMPLETING,
        JobEvent.FENCE: JobState.COMPLETING,
        JobEvent.REQUEUE: JobState.PENDING,
        **_ENDS,
    },
    **{state: {JobEvent.REQUEUE: JobState.PENDING} for state in TERMINAL_STATES},
    JobState.REQUEUED: {},
}


def next_job_state(state: JobState, event: JobEvent) -> JobState:
    """The state after `event`.

    Raises:
        IllegalTransition: the table has no such pair.
    """
    try:
        return JOB_TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state.name, event.name) from None


def parse_job_state(text: str) -> "JobState | str":
    """A state from its full or compact name in any case; a foreign one is returned as its full name.

    Raises:
        GrammarError: no such state.
    """
    word = text.strip().upper()
    for state, code in JOB_CODE.items():
        if word in (state.name, code):
            return state
    for name, code in FOREIGN_STATES.items():
        if word in (name, code):
            return name
    raise GrammarError(f"Invalid job state specified: {text}")


class NodeBase(IntEnum):
    """The base state of a node; IDLE, MIXED and ALLOCATED follow from its allocations."""

    UNKNOWN = 1
    DOWN = 2
    IDLE = 3
    ALLOCATED = 4
    ERROR = 5
    MIXED = 6
    FUTURE = 7


class NodeFlag(IntFlag):
    """What lies over a node's base state."""

    NONE = 0
    DRAIN = 1
    COMPLETING = 2
    NOT_RESPONDING = 4
    FAIL = 8
    MAINT = 16
    RESERVED = 32
    PLANNED = 64
    INVAL = 128


class NodeAvail(IntEnum):
    """Whether a node can be talked to; independent of what runs there and of drains."""

    #: Named by the configuration, never registered.
    UNKNOWN = 1
    UP = 2
    #: Up, but it announced a restart or missed beats; no new work goes there.
    SILENT = 3
    DOWN = 4


class NodeEvent(IntEnum):
    """What changes a node's availability."""

    REGISTER = 1
    BEAT = 2
    RESTARTING = 3
    TIMEOUT = 4
    ADMIN_DOWN = 5
    ADMIN_RESUME = 6


NODE_TRANSITIONS: Final[dict[NodeAvail, dict[NodeEvent, NodeAvail]]] = {
    NodeAvail.UNKNOWN: {
        NodeEvent.REGISTER: NodeAvail.UP,
        NodeEvent.ADMIN_DOWN: NodeAvail.DOWN,
        NodeEvent.ADMIN_RESUME: NodeAvail.UNKNOWN,
    },
    NodeAvail.UP: {
        NodeEvent.REGISTER: NodeAvail.UP,
        NodeEvent.BEAT: NodeAvail.UP,
        NodeEvent.RESTARTING: NodeAvail.SILENT,
        NodeEvent.TIMEOUT: NodeAvail.DOWN,
        NodeEvent.ADMIN_DOWN: NodeAvail.DOWN,
        NodeEvent.ADMIN_RESUME: NodeAvail.UP,
    },
    NodeAvail.SILENT: {
        NodeEvent.REGISTER: NodeAvail.UP,
        NodeEvent.BEAT: NodeAvail.UP,
        NodeEvent.RESTARTING: NodeAvail.SILENT,
        NodeEvent.TIMEOUT: NodeAvail.DOWN,
        NodeEvent.ADMIN_DOWN: NodeAvail.DOWN,
        NodeEvent.ADMIN_RESUME: NodeAvail.SILENT,
    },
    NodeAvail.DOWN: {
        # An administrator's DOWN is kept over a registration; apply decides that by the lock.
        NodeEvent.REGISTER: NodeAvail.UP,
        NodeEvent.BEAT: NodeAvail.UP,
        NodeEvent.RESTARTING: NodeAvail.DOWN,
        NodeEvent.TIMEOUT: NodeAvail.DOWN,
        NodeEvent.ADMIN_DOWN: NodeAvail.DOWN,
        NodeEvent.ADMIN_RESUME: NodeAvail.UP,
    },
}


def next_node_avail(avail: NodeAvail, event: NodeEvent) -> NodeAvail:
    """The availability after `event`.

    Raises:
        IllegalTransition: the table has no such pair.
    """
    try:
        return NODE_TRANSITIONS[avail][event]
    except KeyError:
        raise IllegalTransition(avail.name, event.name) from None
