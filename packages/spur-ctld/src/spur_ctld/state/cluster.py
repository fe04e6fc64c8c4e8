"""The state itself: frozen records in dictionaries, and indexes that follow them.

Records are replaced through `put_job` and `drop_job`, which keep every index right; nobody else touches
the dictionaries of jobs.  Indexes are derived: a restored state rebuilds them.
"""

from collections.abc import Iterable

import msgspec

from spur_core.states import ACTIVE_STATES, JobState, NodeAvail
from spur_ctld.state import answers, versions
from spur_ctld.state.events import Event, OutboxGrew, RoomFreed
from spur_ctld.state.records import AcctRow, Answer, Job, Node, Partition, Slice, StepAcct
from spur_ctld.state.reservations import Reservation
from spur_ctld.state.settings import Settings

GresUse = dict[tuple[str, str], int]


class NodeUse:
    """What attempts hold on one node."""

    __slots__ = ("gres", "jobs", "layers", "memory_mb", "own_cpus", "parts")

    def __init__(self) -> None:
        #: CPUs of attempts that do not share them.
        self.own_cpus = 0
        #: Layer -> (attempts, their CPUs) of those that share.
        self.layers: dict[int, tuple[int, int]] = {}
        self.memory_mb = 0
        self.gres: GresUse = {}
        #: Jobs that hold something here.
        self.jobs: set[int] = set()
        #: The slice of each.
        self.parts: dict[int, Slice] = {}

    @property
    def cpus(self) -> int:
        """CPUs that somebody has, at least: those of the fullest layer."""
        if not self.layers:
            return self.own_cpus
        return self.own_cpus + max(cpus for _, cpus in self.layers.values())

    def add(self, job_id: int, part: Slice, sign: int) -> None:
        """Take (+1) or give back (-1) one slice."""
        if part.layer:
            jobs, cpus = self.layers.get(part.layer, (0, 0))
            self.layers[part.layer] = (jobs + sign, cpus + sign * part.cpus)
            if jobs + sign == 0:
                del self.layers[part.layer]
        else:
            self.own_cpus += sign * part.cpus
        self.memory_mb += sign * part.memory_mb
        for item in part.gres:
            key = (item.name, item.type)
            left = self.gres.get(key, 0) + sign * item.count
            if left:
                self.gres[key] = left
            else:
                self.gres.pop(key, None)
        if sign > 0:
            self.jobs.add(job_id)
            self.parts[job_id] = part
        else:
            self.jobs.discard(job_id)
            self.parts.pop(job_id, None)


class ClusterState:
    """Everything the log decided so far."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.jobs: dict[int, Job] = {}
        self.nodes: dict[str, Node] = {}
        #: In configuration order.
        self.partitions: dict[str, Partition] = {}
        self.outbox: dict[tuple[int, int], AcctRow] = {}
        #: By (job, attempt, step): rows of steps that are not part of their job's row.
        self.step_outbox: dict[tuple[int, int, int], StepAcct] = {}
        self.reservations: dict[str, Reservation] = {}
        #: In the order in which they came, which snapshots keep.
        self.answers: dict[str, Answer] = {}
        #: Their bytes, at least: what leaves elsewhere is not taken off.
        self._answers_bytes = 0
        self.next_job_id = 1
        self.acct_seq = 0
        #: Index of the last applied entry.
        self.applied = 0
        #: The latest instant that any entry was stamped with; leaders with slower clocks do not go behind it.
        self.time = 0.0
        #: The version of operations that the group uses: every member applies it.
        self.command_version = versions.FIRST
        #: When it rose to that; nodes that registered before may have said more than was kept.
        self.raised_at = 0.0
        # Derived.
        self.pending: set[int] = set()
        self.active: set[int] = set()
        self.by_array: dict[int, set[int]] = {}
        self.use: dict[str, NodeUse] = {}
        #: (uid, name) -> ids of jobs not over, for `singleton`.
        self.by_name: dict[tuple[int, str], set[int]] = {}
        #: Licences that active jobs hold.
        self.licenses_used: dict[str, int] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._events: list[Event] = []

    @classmethod
    def empty(cls) -> "ClusterState":
        """The state before the first entry."""
        return cls()

    # -- jobs

    def put_job(self, job: Job) -> None:
        """Add or replace a record; resources follow `held` of active jobs."""
        old = self.jobs.get(job.job_id)
        if old is not None:
            self._unindex(old, job)
        self.jobs[job.job_id] = job
        self._index(job, old)

    def drop_job(self, job_id: int) -> None:
        """Forget a record."""
        old = self.jobs.pop(job_id, None)
        if old is not None:
            self._unindex(old, None)

    def take_id(self) -> int:
        """The next job id; ids are never given twice."""
        job_id = max(self.next_job_id, self.settings.first_job_id)
        self.next_job_id = job_id + 1
        return job_id

    def _index(self, job: Job, old: Job | None) -> None:
        if job.state is JobState.PENDING:
            self.pending.add(job.job_id)
        elif job.state in ACTIVE_STATES:
            self.active.add(job.job_id)
        if job.array_job_id is not None:
            self.by_array.setdefault(job.array_job_id, set()).add(job.job_id)
        if job.state is JobState.PENDING or job.state in ACTIVE_STATES:
            self.by_name.setdefault((job.request.uid, job.request.name), set()).add(job.job_id)
        self._take_licenses(job, +1)
        if old is None or not _same_holding(old, job):
            for part in holding(job):
                self.use_of(part.node).add(job.job_id, part, +1)

    def _unindex(self, old: Job, new: Job | None) -> None:
        self.pending.discard(old.job_id)
        self.active.discard(old.job_id)
        self._take_licenses(old, -1)
        if old.array_job_id is not None and (new is None or new.array_job_id != old.array_job_id):
            members = self.by_array.get(old.array_job_id, set())
            members.discard(old.job_id)
            if not members:
                self.by_array.pop(old.array_job_id, None)
        key = (old.request.uid, old.request.name)
        names = self.by_name.get(key)
        if names is not None:
            names.discard(old.job_id)
            if not names:
                del self.by_name[key]
        if new is not None and _same_holding(old, new):
            return
        freed = holding(old)
        for part in freed:
            self.use_of(part.node).add(old.job_id, part, -1)
        if freed:
            kept = {part.node for part in holding(new)} if new is not None else set()
            lent = new is not None and is_lent(new) and not is_lent(old)
            gone = tuple(part.node for part in freed if lent or part.node not in kept)
            if gone:
                self.emit(RoomFreed(gone))

    def _take_licenses(self, job: Job, sign: int) -> None:
        if job.licenses and job.state in ACTIVE_STATES:
            for name, count in job.licenses:
                left = self.licenses_used.get(name, 0) + sign * count
                if left:
                    self.licenses_used[name] = left
                else:
                    self.licenses_used.pop(name, None)

    def why_no_licenses(self, wanted: Iterable[tuple[str, int]]) -> str:
        """Why so many licences cannot be taken now; empty when they can."""
        total = dict(self.settings.licenses)
        for name, count in wanted:
            if self.licenses_used.get(name, 0) + count > total.get(name, 0):
                return f"not enough licences of {name} are free"
        return ""

    def use_of(self, node: str) -> NodeUse:
        """The live counters of one node."""
        found = self.use.get(node)
        if found is None:
            found = self.use[node] = NodeUse()
        return found

    def array_members(self, array_job_id: int) -> list[Job]:
        """Every record of an array, by id."""
        return [self.jobs[job_id] for job_id in sorted(self.by_array.get(array_job_id, ()))]

    # -- nodes

    def schedulable(self, node: Node) -> bool:
        """Whether new work may go there now."""
        return node.avail is NodeAvail.UP and not node.drain and not node.fail

    def why_not(self, part: Slice, partition: str) -> str:
        """Why this slice of a job of the partition does not fit now; empty when it does."""
        node = self.nodes.get(part.node)
        if node is None or not self.schedulable(node):
            return f"node {part.node} is not available"
        use = self.use.get(part.node) or NodeUse()
        if self._apart(use, part, partition):
            return f"node {part.node} has jobs that share no CPUs with it"
        taken = use.layers.get(part.layer, (0, 0))[1] if part.layer else use.cpus
        if taken + part.cpus > node.cpus:
            return f"node {part.node} has not enough free CPUs"
        if node.memory_mb and use.memory_mb + part.memory_mb > node.memory_mb:
            return f"node {part.node} has not enough free memory"
        have = {(item.name, item.type): item.count for item in node.gres}
        for item in part.gres:
            key = (item.name, item.type)
            if use.gres.get(key, 0) + item.count > have.get(key, 0):
                return f"node {part.node} has not enough free {item.name}"
        return ""

    def _apart(self, use: NodeUse, part: Slice, partition: str) -> bool:
        """Whether who shares CPUs would meet others than those of its partition that share, too."""
        if not part.layer:
            return bool(use.layers)
        others = (self.jobs[job_id] for job_id in use.jobs)
        return any(job.partition != partition or not layer_of(job) for job in others)

    # -- small things

    def intern(self, blob: bytes) -> bytes:
        """One copy of equal scripts and environments."""
        if len(self._blobs) > 4096:
            self._blobs.clear()
        return self._blobs.setdefault(blob, blob)

    def emit(self, event: Event) -> None:
        """Tell the shell; collected per operation."""
        self._events.append(event)

    def take_events(self) -> tuple[Event, ...]:
        """What was emitted since the last call, without repeats, in order."""
        # Events are tuples: two kinds with equal fields are equal, so the kind is part of the key.
        events = tuple({(type(event), event): event for event in self._events}.values())
        self._events.clear()
        return events

    def remember(self, key: str, result: bytes, at: float) -> None:
        """Keep the answer to a request id."""
        if len(result) > answers.LARGEST:
            return
        answer = self.answers[key] = Answer(result=result, at=at)
        self._answers_bytes += answers.weight(key, answer)
        if self._answers_bytes > answers.MOST_BYTES:
            self.weigh_answers()
            if self._answers_bytes > answers.MOST_BYTES:
                for gone in answers.surplus(self.answers):
                    del self.answers[gone]
                self.weigh_answers()

    def weigh_answers(self) -> None:
        """Take the sum anew."""
        self._answers_bytes = answers.total(self.answers)

    def put_row(self, row: AcctRow) -> None:
        """Queue a row for the database; it replaces an older version."""
        self.outbox[row.job_id, row.attempt] = row
        self.emit(OutboxGrew())

    def put_step_row(self, row: StepAcct) -> None:
        """Queue a step's row for the database; it replaces an older version."""
        self.step_outbox[row.job_id, row.attempt, row.step.step_id] = row
        self.emit(OutboxGrew())

    def next_seq(self) -> int:
        """Version numbers of accounting rows only grow."""
        self.acct_seq += 1
        return self.acct_seq


def holding(job: Job) -> tuple[Slice, ...]:
    """The slices whose resources the job holds now; of CPUs that it lent only the ids."""
    if job.state not in ACTIVE_STATES or not job.held:
        return ()
    held = set(job.held)
    parts = tuple(part for part in job.slices if part.node in held)
    if is_lent(job):
        return tuple(msgspec.structs.replace(part, cpus=0) for part in parts)
    return parts


def layer_of(job: Job) -> int:
    """The layer of shared CPUs that the attempt is in, on all its nodes; 0 = it has CPUs of its own."""
    return job.slices[0].layer if job.slices else 0


def is_lent(job: Job) -> bool:
    """Whether others may use the CPUs of the attempt, which is stopped."""
    return job.push is not None and job.push.lent


def _same_holding(old: Job, new: Job) -> bool:
    return (
        old.held == new.held
        and old.slices is new.slices
        and (old.state in ACTIVE_STATES) == (new.state in ACTIVE_STATES)
        and is_lent(old) == is_lent(new)
    )


def launch_nodes(job: Job) -> tuple[str, ...]:
    """The nodes on which the attempt has a supervisor that lives as long as its part there: all of them.  On
    those without a task of the job it only holds the place for steps."""
    if job.everywhere or job.request.srun:
        return tuple(part.node for part in job.slices)
    return tuple(part.node for part in job.slices[:1])


def deciding_nodes(job: Job) -> tuple[str, ...]:
    """The nodes whose exits decide the run: a batch script's, those of a stand-alone srun's tasks; none of an
    allocation, which somebody else ends."""
    if job.request.alloc_only:
        return ()
    if not job.request.srun:
        return tuple(part.node for part in job.slices[:1])
    busy = tuple(part.node for part in job.slices if part.ranks) if job.everywhere else ()
    return busy or tuple(part.node for part in job.slices)


def main_nodes(job: Job) -> tuple[str, ...]:
    """The nodes of the step that the job lives by: those that decide the run, or all of an allocation."""
    return deciding_nodes(job) or launch_nodes(job)


def holds_only(job: Job, node: str) -> bool:
    """Whether the attempt's supervisor on `node` has no task of its own."""
    return node not in deciding_nodes(job)


def attempt_of(job: Job) -> int:
    """The attempt that the record's present life is about: the running one, or the next."""
    return job.run_attempt if job.dispatch_at is not None else job.run_attempt + 1


def total(parts: Iterable[Slice]) -> tuple[int, int, GresUse]:
    """(cpus, memory, gres) over slices."""
    cpus = memory = 0
    gres: GresUse = {}
    for part in parts:
        cpus += part.cpus
        memory += part.memory_mb
        for item in part.gres:
            gres[item.name, item.type] = gres.get((item.name, item.type), 0) + item.count
    return cpus, memory, gres
