"""The closed, versioned set of operations that the log holds.

Each is a tagged struct: the tag is its wire name and never changes; fields are only appended, each with
a default.  An operation carries everything `apply` needs (time, ids of callers); apply looks at nothing
else.  An operation whose precondition fails at apply is a no-op with a refusal as its result, the same
on every replica.

Members of a group may be of several releases: whoever adds an operation or a field follows the four rules at
the head of `spur_ctld.state.versions`.
"""

import msgspec

from spur_core.states import JobState
from spur_ctld.state.records import (
    Exit,
    IndexRange,
    Node,
    Partition,
    Request,
    Slice,
    StepAsk,
    Usage,
)
from spur_ctld.state.reservations import Reservation
from spur_ctld.state.settings import Settings


class Op(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op"):
    """Base.

    Attributes:
        at: the proposer's clock, seconds since the epoch; a proposer never goes behind `ClusterState.time`.
        key: of the request behind it, its caller included; a repeat gets the stored result.  Empty = none.
    """

    at: float
    key: str = ""


class Who(msgspec.Struct, frozen=True, omit_defaults=True):
    """The authenticated caller behind an operation; uid None = the controller itself."""

    uid: int | None = None
    user: str = ""
    admin: bool = False


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job, an array, or some of its tasks (`tasks` None = the job or all of the array)."""

    job_id: int
    tasks: tuple[IndexRange, ...] | None = None


class Configure(Op, frozen=True, kw_only=True, tag="configure"):
    """The configuration file's part of the state, at start and at reconfigure."""

    settings: Settings
    partitions: tuple[Partition, ...]
    #: name -> overlay of the `[[nodes]]` entry that names it; others keep what they have.
    nodes: tuple[Node, ...] = ()


class Submit(Op, frozen=True, kw_only=True, tag="submit"):
    """A job or an array enters the queue.  Result: SubmitResult."""

    request: Request
    request_id: str = ""
    array: tuple[IndexRange, ...] = ()
    array_throttle: int = 0
    priority: int = 0
    held: bool = False
    held_by_admin: bool = False
    #: `priority` was asked for, and is not the usual base.
    priority_given: bool = False


class Cancel(Op, frozen=True, kw_only=True, tag="cancel"):
    """Pending parts end at once; active attempts get a fence with outcome CANCELLED."""

    targets: tuple[Target, ...]
    who: Who


class Hold(Op, frozen=True, kw_only=True, tag="hold"):
    """Hold or release pending jobs.  `mode`: "hold", "uhold" or "release"."""

    targets: tuple[Target, ...]
    who: Who
    mode: str


class Update(Op, frozen=True, kw_only=True, tag="update"):
    """Change a job.  `request` fields by name in `changes` (msgpack-encoded replacement values are
    decoded against the type of the field), the rest explicit."""

    targets: tuple[Target, ...]
    who: Who
    #: Request field name -> msgpack of the new value.
    changes: dict[str, bytes] = {}
    priority: int | None = None
    array_throttle: int | None = None
    time_limit_delta: int | None = None


class Requeue(Op, frozen=True, kw_only=True, tag="requeue"):
    """An active attempt is fenced with outcome PENDING; an ended job goes back to the queue."""

    targets: tuple[Target, ...]
    who: Who
    hold: bool = False
    incomplete_only: bool = False


class DispatchBegin(Op, frozen=True, kw_only=True, tag="dispatch_begin"):
    """Committed before any launch leaves.  Preconditions: job pending and not held, attempt =
    run_attempt + 1, every slice fits.  For a task of an array record `task` names it, and the result
    carries the job id that the task got.  Result: DispatchResult."""

    job_id: int
    attempt: int
    partition: str
    slices: tuple[Slice, ...]
    task: int | None = None
    #: Every node gets a supervisor.  Entries of the first release, which launched a batch job on its first
    #: node only, lack it.
    everywhere: bool = False
    #: What it runs in, and the licences that it takes.
    reservation: str = ""
    licenses: tuple[tuple[str, int], ...] = ()
    #: The limit that the attempt gets in place of its request's, seconds; None = the request's.
    time_limit: int | None = None
    #: The priority that it starts with; 0 = not told.
    priority: int = 0


class DispatchCommit(Op, frozen=True, kw_only=True, tag="dispatch_commit"):
    """Every node confirmed its launch."""

    job_id: int
    attempt: int
    start_at: float
    stdout_real: str = ""
    stderr_real: str = ""


class DispatchAbort(Op, frozen=True, kw_only=True, tag="dispatch_abort"):
    """The launch failed somewhere: fence, then back to the queue (or held, or ended)."""

    job_id: int
    attempt: int
    reason: str
    desc: str = ""
    #: "retry" with backoff, "hold", "fail" (the job's own fault ends it FAILED with exit 0:53), "cancel".
    outcome: str = "retry"
    #: Nodes that certainly hold nothing of this attempt (their launch was refused or never sent).
    clear: tuple[str, ...] = ()


class FenceBegin(Op, frozen=True, kw_only=True, tag="fence_begin"):
    """Make certain an attempt does not run on; preconditions: attempt equal, job active."""

    job_id: int
    attempt: int
    outcome: JobState
    reason: str
    desc: str = ""
    why: str = ""
    kill_uid: int | None = None
    recovery: bool = False
    #: As `Fence.exit`.
    exit: Exit | None = None


class FenceConfirm(Op, frozen=True, kw_only=True, tag="fence_confirm"):
    """A node certainly holds nothing of the attempt any more: crossed off, its resources freed.  When the
    last one is crossed off the outcome is applied in the same entry."""

    job_id: int
    attempt: int
    node: str


class NodeComplete(Op, frozen=True, kw_only=True, tag="node_complete"):
    """A node's part of a step ended; of the attempt, when the step lives as long as that.  Attempt and step
    are compared again at apply.  Result: CompleteResult."""

    job_id: int
    attempt: int
    step_id: int
    node: str
    exit: Exit
    started_at: float
    ended_at: float
    usage: Usage = Usage()
    stdout_real: str = ""
    stderr_real: str = ""


class StepCreate(Op, frozen=True, kw_only=True, tag="step_create"):
    """Place a step in a running job and give it the next id.  Refused with code "busy" when it has to wait.
    A repeated request id gets the first answer.  Result: StepResult."""

    job_id: int
    attempt: int
    who: Who
    ask: StepAsk
    request_id: str = ""
    name: str = ""
    #: The allocation's interactive step instead of a numbered one.
    interactive: bool = False
    pty: bool = False
    time_limit: int | None = None
    submit_host: str = ""
    submit_line: str = ""


class StepLaunched(Op, frozen=True, kw_only=True, tag="step_launched"):
    """Every node of the step confirmed its launch."""

    job_id: int
    attempt: int
    step_id: int
    start_at: float


class StepCancel(Op, frozen=True, kw_only=True, tag="step_cancel"):
    """The step is to end; committed before the first kill leaves.  `why`, `text`, `hard`: see `StepStop`."""

    job_id: int
    attempt: int
    step_id: int
    who: Who
    why: str = "cancelled"
    text: str = ""
    hard: bool = False
    #: Nodes that certainly hold nothing of it (their launch was refused or never sent).
    clear: tuple[str, ...] = ()


class StepGone(Op, frozen=True, kw_only=True, tag="step_gone"):
    """A node certainly holds nothing of a step (any more) and will not report it.

    `lost`: its supervisor died without an exit; the step is ended on its other nodes too and fails with
    signal 9.  `text`: how, for the step's client.
    """

    job_id: int
    attempt: int
    step_id: int
    node: str
    #: The exit, where the node still told it.
    exit: Exit | None = None
    lost: bool = False
    text: str = ""


class StepForget(Op, frozen=True, kw_only=True, tag="step_forget"):
    """A step that no node ever had: it never was, and a repeat of its request makes a new one."""

    job_id: int
    attempt: int
    step_id: int


class AllocComplete(Op, frozen=True, kw_only=True, tag="alloc_complete"):
    """The owner of an allocation is done with it; `exit` is his command's."""

    job_id: int
    who: Who
    exit: Exit = Exit()


class Suspend(Op, frozen=True, kw_only=True, tag="suspend"):
    """Stop running jobs, or let them go on; committed before the nodes are told."""

    targets: tuple[Target, ...]
    who: Who
    resume: bool = False


class SuspendTold(Op, frozen=True, kw_only=True, tag="suspend_told"):
    """These nodes carried out the last suspension (or, `suspended` false, the last resumption)."""

    job_id: int
    attempt: int
    nodes: tuple[str, ...]
    suspended: bool


class Preempt(Op, frozen=True, kw_only=True, tag="preempt"):
    """Make room of an attempt for job `by`, as told; refused unless exactly that attempt runs.

    `mode`: "cancel", "requeue" (a job that cannot be requeued is cancelled), "suspend", or "resume", which
    ends a suspension by preemption when the CPUs are free.  `grace_secs` only for the first two; without,
    and with a repeat when it is over, the attempt is fenced.
    """

    job_id: int
    attempt: int
    by: int
    mode: str
    grace_secs: int = 0


class PreemptTold(Op, frozen=True, kw_only=True, tag="preempt_told"):
    """These nodes' processes got the signals that tell of a preemption."""

    job_id: int
    attempt: int
    nodes: tuple[str, ...]


class WarnBegin(Op, frozen=True, kw_only=True, tag="warn_begin"):
    """Recorded before the signal that a job asked for ahead of its limit leaves, once an attempt."""

    job_id: int
    attempt: int


class WarnTold(Op, frozen=True, kw_only=True, tag="warn_told"):
    """These nodes' processes got that signal."""

    job_id: int
    attempt: int
    nodes: tuple[str, ...]


class ClientSeen(Op, frozen=True, kw_only=True, tag="client_seen"):
    """The client behind an attempt said for the first time that it lives."""

    job_id: int
    attempt: int


class TimeLimitSignalled(Op, frozen=True, kw_only=True, tag="time_limit"):
    """Recorded before the first signal of an attempt over its limit leaves."""

    job_id: int
    attempt: int


class PendingReasons(Op, frozen=True, kw_only=True, tag="reasons"):
    """What the last scheduling pass found, only for jobs whose reason changed."""

    #: (job_id, reason, free text)
    reasons: tuple[tuple[int, str, str], ...]
    #: Jobs whose dependency can never hold and that asked to be cancelled then.
    cancel: tuple[int, ...] = ()


class Deadline(Op, frozen=True, kw_only=True, tag="deadline"):
    """Pending jobs whose deadline passed."""

    job_ids: tuple[int, ...]


class NodeRegister(Op, frozen=True, kw_only=True, tag="node_register"):
    """An agent registered; `node` holds what it said, the overlay of the configuration is applied over
    it.  `held_by`: whose name it was when the registration was allowed (`Node.holder`), compared again at
    apply; None = not compared."""

    node: Node
    held_by: str | None = None


class NodeSilent(Op, frozen=True, kw_only=True, tag="node_silent"):
    """An agent announced its restart."""

    name: str
    reason: str


class NodeBack(Op, frozen=True, kw_only=True, tag="node_back"):
    """A beat came from a node that was silent or down."""

    name: str


class NodeDown(Op, frozen=True, kw_only=True, tag="node_down"):
    """A node missed its beats, or an administrator said so: all attempts on it are fenced."""

    name: str
    reason: str
    who: Who = Who()


class NodeUpdate(Op, frozen=True, kw_only=True, tag="node_update"):
    """An administrator's (or the agent's own) change.  `state`: "drain", "resume", "undrain", "fail",
    "idle" or empty."""

    names: tuple[str, ...]
    who: Who
    state: str = ""
    reason: str = ""
    weight: int | None = None
    comment: str | None = None


class OutboxAck(Op, frozen=True, kw_only=True, tag="outbox_ack"):
    """The database holds these rows: (job_id, attempt, seq)."""

    rows: tuple[tuple[int, int, int], ...]
    #: (job_id, attempt, step_id, seq)
    steps: tuple[tuple[int, int, int, int], ...] = ()


class Purge(Op, frozen=True, kw_only=True, tag="purge"):
    """Ended jobs leave memory, answers to old request ids are forgotten."""

    job_ids: tuple[int, ...]
    answers_before: float


class RaiseCommandVersion(Op, frozen=True, kw_only=True, tag="raise_command_version"):
    """Every member of the group applies operations up to version `to`; they may enter the log from now on."""

    to: int


class ReservationCreate(Op, frozen=True, kw_only=True, tag="reservation_create"):
    """Keep nodes, CPUs or licences for some users; an empty name is filled in.  Result: ReservationResult.

    `seen`: the newest change of another reservation (`Reservation.changed`) that it was compared with.
    """

    reservation: Reservation
    who: Who
    seen: int = 0


class ReservationUpdate(Op, frozen=True, kw_only=True, tag="reservation_update"):
    """A reservation as it is from now on.  `seen` as in `ReservationCreate`."""

    reservation: Reservation
    who: Who
    seen: int = 0


class ReservationDelete(Op, frozen=True, kw_only=True, tag="reservation_delete"):
    """It goes; jobs that wait for it are held, unless it says otherwise."""

    name: str
    who: Who


class ReservationExpire(Op, frozen=True, kw_only=True, tag="reservation_expire"):
    """The occurrence that is named by its times is over; the next one is given, or there is none."""

    name: str
    start_at: float
    end_at: float
    next_start: float | None = None
    next_end: float | None = None


AnyOp = (
    Configure
    | Submit
    | Cancel
    | Hold
    | Update
    | Requeue
    | DispatchBegin
    | DispatchCommit
    | DispatchAbort
    | FenceBegin
    | FenceConfirm
    | NodeComplete
    | StepCreate
    | StepLaunched
    | StepCancel
    | StepGone
    | StepForget
    | AllocComplete
    | Suspend
    | SuspendTold
    | Preempt
    | PreemptTold
    | WarnBegin
    | WarnTold
    | ClientSeen
    | TimeLimitSignalled
    | PendingReasons
    | Deadline
    | NodeRegister
    | NodeSilent
    | NodeBack
    | NodeDown
    | NodeUpdate
    | OutboxAck
    | Purge
    | RaiseCommandVersion
    | ReservationCreate
    | ReservationUpdate
    | ReservationDelete
    | ReservationExpire
)


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an operation had no effect: the stable code of spur_core.errors and the sentence."""

    code: str
    text: str


class OpResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="res"):
    """Base of results; `refusal` set = nothing was changed."""

    refusal: Refusal | None = None


class Done(OpResult, frozen=True, kw_only=True, tag="done"):
    """Nothing more to say."""


class SubmitResult(OpResult, frozen=True, kw_only=True, tag="submit"):
    job_id: int = 0


class DispatchResult(OpResult, frozen=True, kw_only=True, tag="dispatch"):
    #: The raw id of the run (an array task's own id).
    job_id: int = 0


class CompleteResult(OpResult, frozen=True, kw_only=True, tag="complete"):
    #: "accepted", "final", "unknown", "retry" or "wrong_node".
    verdict: str = ""


class StepResult(OpResult, frozen=True, kw_only=True, tag="step"):
    attempt: int = 0
    step_id: int = 0


class ReservationResult(OpResult, frozen=True, kw_only=True, tag="reservation"):
    #: The one that was made.
    name: str = ""


class TargetsResult(OpResult, frozen=True, kw_only=True, tag="targets"):
    """One entry per target in the request's order; None = done."""

    results: tuple[Refusal | None, ...] = ()


AnyResult = (
    Done | SubmitResult | DispatchResult | CompleteResult | StepResult | TargetsResult | ReservationResult
)
