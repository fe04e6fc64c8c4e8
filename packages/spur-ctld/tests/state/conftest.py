"""A cluster in a test: operations go through their encoding, and the state is checked after each."""

from collections.abc import Iterator
from typing import Any

import pytest

from spur_core.states import JobState
from spur_ctld.state import codec, invariants, ops
from spur_ctld.state.apply_complete import step_of
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import Event
from spur_ctld.state.inventory import DeviceSet, Inventory
from spur_ctld.state.log_machine import LogMachine
from spur_ctld.state.records import (
    Exit,
    Gres,
    Job,
    Node,
    Partition,
    Request,
    Slice,
    Step,
    StepAsk,
)
from spur_ctld.state.settings import Settings

ALICE = ops.Who(uid=1000, user="alice")
BOB = ops.Who(uid=1001, user="bob")
ADMIN = ops.Who(uid=0, user="root", admin=True)


class Sim:
    """A state machine with a clock that moves one second an operation.

    Attributes:
        events: of the last operation.
    """

    def __init__(self, nodes: int = 2, cpus: int = 4, settings: Settings | None = None) -> None:
        self.machine = LogMachine()
        self.now = 1000.0
        self.index = 0
        self.events: tuple[Event, ...] = ()
        self.machine.on_events = self._on_events
        names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.do(
            ops.Configure(
                at=self.now,
                settings=settings or Settings(),
                partitions=(Partition(name="main", default=True, nodes=names),),
            )
        )
        for name in names:
            self.register(name, cpus=cpus)

    def _on_events(self, events: tuple[Event, ...]) -> None:
        self.events = events

    @property
    def state(self) -> ClusterState:
        return self.machine.state

    def do(self, op: Any) -> Any:
        """Apply `op` at the next second; the state must be sound afterwards, and a refusal change nothing."""
        self.index += 1
        self.now += 1
        self.events = ()
        op = type(op)(
            **{name: getattr(op, name) for name in op.__struct_fields__ if name != "at"}, at=self.now
        )
        before = codec.digest(self.state)
        result = codec.decode_result(self.machine.apply(self.index, codec.encode_op(op)))
        problems = invariants.check(self.state)
        assert not problems, "\n".join(problems)
        if result.refusal is not None:
            assert not self.events
            after = self.state
            applied, after.applied = after.applied, self.index - 1
            assert codec.digest(after) == before
            after.applied = applied
        return result

    def job(self, job_id: int) -> Job:
        return self.state.jobs[job_id]

    def row(self, job_id: int, attempt: int = 1) -> Any:
        """The row of a run that waits to be written."""
        return self.state.outbox[job_id, attempt]

    # -- operations in a word

    def register(self, name: str, cpus: int = 4, boot: str = "boot-1", **more: Any) -> Any:
        fields: dict[str, Any] = {"memory_mb": 1000, "gres": (Gres(name="gpu", count=2),), "address": "::1"}
        fields.update(more)
        return self.do(ops.NodeRegister(at=0, node=Node(name=name, cpus=cpus, boot_id=boot, **fields)))

    def name_things(self) -> None:
        """From now on dispatches give names; nodes tell their inventories with `told`."""
        self.do(ops.RaiseCommandVersion(at=0, to=4))

    def told(self, cpus: int = 4) -> Inventory:
        """Two sockets if the CPUs are even, and one GPU near each."""
        half = cpus // 2
        near = (f"0-{half - 1}", f"{half}-{cpus - 1}") if cpus % 2 == 0 else ("0", "0")
        return Inventory(
            sockets=tuple((part,) for part in near) if cpus % 2 == 0 else ((f"0-{cpus - 1}",),),
            devices=tuple(DeviceSet(name="gpu", indices=str(at), near=part) for at, part in enumerate(near)),
        )

    def submit(self, *, who: ops.Who = ALICE, array: Any = (), **more: Any) -> int:
        op_fields = {
            "request_id",
            "array_throttle",
            "priority",
            "priority_given",
            "held",
            "held_by_admin",
        } & more.keys()
        op_values = {name: more.pop(name) for name in op_fields}
        fields: dict[str, Any] = {"name": "job", "partitions": ("main",), "script": b"#!/bin/sh\n"}
        fields.update(more)
        request = Request(user=who.user, uid=who.uid or 0, gid=100, **fields)
        result = self.do(ops.Submit(at=0, request=request, array=array, **op_values))
        assert result.refusal is None, result.refusal
        return int(result.job_id)

    def begin(
        self, job_id: int, nodes: Any = ("n1",), cpus: int = 1, task: int | None = None, **more: Any
    ) -> Any:
        attempt = more.pop("attempt", None)
        if attempt is None:
            attempt = self.job(job_id).run_attempt + 1
        everywhere = more.pop("everywhere", True)
        time_limit = more.pop("time_limit", None)
        partition = more.pop("partition", "main")
        taken = {name: more.pop(name) for name in ("reservation", "licenses") if name in more}
        ranks = more.pop("ranks", None) or [()] * len(nodes)
        slices = tuple(
            Slice(node=name, cpus=cpus, ranks=own, **more) for name, own in zip(nodes, ranks, strict=True)
        )
        return self.do(
            ops.DispatchBegin(
                at=0,
                job_id=job_id,
                attempt=attempt,
                partition=partition,
                slices=slices,
                task=task,
                everywhere=everywhere,
                time_limit=time_limit,
                **taken,
            )
        )

    def commit(self, job_id: int, attempt: int = 0) -> Any:
        attempt = attempt or self.job(job_id).run_attempt
        return self.do(ops.DispatchCommit(at=0, job_id=job_id, attempt=attempt, start_at=self.now))

    def run(self, job_id: int, nodes: Any = ("n1",), **more: Any) -> int:
        """Dispatch and commit; the id of the record that runs."""
        result = self.begin(job_id, nodes, **more)
        assert result.refusal is None, result.refusal
        assert self.commit(result.job_id).refusal is None
        return int(result.job_id)

    def complete(self, job_id: int, node: str = "n1", *, attempt: int = 0, **more: Any) -> str:
        """A node's report; the verdict."""
        job = self.state.jobs.get(job_id)
        fields: dict[str, Any] = {
            "exit": Exit(code=more.pop("code", 0), signal=more.pop("signal", 0), oom=more.pop("oom", False)),
            "step_id": step_of(job) if job is not None else 0,
            "started_at": self.now,
            "ended_at": self.now + 0.5,
        }
        fields.update(more)
        attempt = attempt or (job.run_attempt if job is not None else 1)
        result = self.do(ops.NodeComplete(at=0, job_id=job_id, attempt=attempt, node=node, **fields))
        return str(result.verdict)

    def abort(self, job_id: int, outcome: str = "retry", clear: Any = ("n1",), **more: Any) -> Any:
        attempt = more.pop("attempt", self.job(job_id).run_attempt)
        return self.do(
            ops.DispatchAbort(
                at=0,
                job_id=job_id,
                attempt=attempt,
                reason="JobLaunchFailure",
                outcome=outcome,
                clear=tuple(clear),
                **more,
            )
        )

    def confirm(self, job_id: int, node: str = "n1", attempt: int = 0) -> Any:
        attempt = attempt or self.job(job_id).run_attempt
        return self.do(ops.FenceConfirm(at=0, job_id=job_id, attempt=attempt, node=node))

    def fence(self, job_id: int, outcome: JobState = JobState.PENDING, **more: Any) -> Any:
        attempt = more.pop("attempt", self.job(job_id).run_attempt)
        fields = {"reason": "None"} | more
        return self.do(ops.FenceBegin(at=0, job_id=job_id, attempt=attempt, outcome=outcome, **fields))

    def _targets(self, job_id: int, tasks: Any) -> tuple[ops.Target, ...]:
        return (ops.Target(job_id=job_id, tasks=tasks),)

    def cancel(self, job_id: int, tasks: Any = None, who: ops.Who = ALICE) -> Any:
        """None, or the refusal of the only target."""
        return self.do(ops.Cancel(at=0, targets=self._targets(job_id, tasks), who=who)).results[0]

    def hold(self, job_id: int, mode: str = "hold", tasks: Any = None, who: ops.Who = ALICE) -> Any:
        op = ops.Hold(at=0, targets=self._targets(job_id, tasks), who=who, mode=mode)
        return self.do(op).results[0]

    def requeue(self, job_id: int, tasks: Any = None, who: ops.Who = ALICE, **more: Any) -> Any:
        op = ops.Requeue(at=0, targets=self._targets(job_id, tasks), who=who, **more)
        return self.do(op).results[0]

    def update(self, job_id: int, tasks: Any = None, who: ops.Who = ALICE, **changes: Any) -> Any:
        import msgspec

        own = {"priority", "array_throttle", "time_limit_delta"} & changes.keys()
        explicit = {name: changes.pop(name) for name in own}
        packed = {name: msgspec.msgpack.encode(value) for name, value in changes.items()}
        op = ops.Update(at=0, targets=self._targets(job_id, tasks), who=who, changes=packed, **explicit)
        return self.do(op).results[0]

    # -- steps

    def ask(self, job_id: int, who: ops.Who = ALICE, **more: Any) -> Any:
        """Ask for a step; the result."""
        own = {"name", "request_id", "interactive", "pty", "time_limit", "attempt"} & more.keys()
        fields = {"name": "s", "attempt": self.job(job_id).run_attempt}
        fields |= {name: more.pop(name) for name in own}
        return self.do(ops.StepCreate(at=0, job_id=job_id, who=who, ask=StepAsk(**more), **fields))

    def step(self, job_id: int, **more: Any) -> int:
        """A step that runs; its id."""
        result = self.ask(job_id, **more)
        assert result.refusal is None, result.refusal
        assert self.step_up(job_id, result.step_id).refusal is None
        return int(result.step_id)

    def step_up(self, job_id: int, step_id: int) -> Any:
        return self.do(
            ops.StepLaunched(
                at=0,
                job_id=job_id,
                attempt=self.job(job_id).run_attempt,
                step_id=step_id,
                start_at=self.now,
            )
        )

    def steps(self, job_id: int) -> dict[int, Step]:
        return self.job(job_id).steps

    def stop(self, job_id: int, step_id: int, who: ops.Who = ALICE, **more: Any) -> Any:
        attempt = more.pop("attempt", self.job(job_id).run_attempt)
        return self.do(
            ops.StepCancel(at=0, job_id=job_id, attempt=attempt, step_id=step_id, who=who, **more)
        ).refusal

    def gone(self, job_id: int, step_id: int, node: str = "n1", **more: Any) -> Any:
        attempt = more.pop("attempt", self.job(job_id).run_attempt)
        return self.do(
            ops.StepGone(at=0, job_id=job_id, attempt=attempt, step_id=step_id, node=node, **more)
        ).refusal

    def step_row(self, job_id: int, step_id: int, attempt: int = 1) -> Any:
        """The row of a step that waits to be written."""
        return self.state.step_outbox[job_id, attempt, step_id].step

    def suspend(self, job_id: int, resume: bool = False, who: ops.Who = ALICE) -> Any:
        op = ops.Suspend(at=0, targets=self._targets(job_id, None), who=who, resume=resume)
        return self.do(op).results[0]

    def alloc(self, nodes: Any = ("n1", "n2"), cpus: int = 4, **more: Any) -> int:
        """An allocation that runs."""
        fields = {"alloc_only": True, "script": b"", "requeue": False}
        job_id = self.submit(min_nodes=len(nodes), **fields)
        return self.run(job_id, nodes, cpus=cpus, **more)

    def over(self, job_id: int, who: ops.Who = ALICE, **end: Any) -> Any:
        """The owner is done with his allocation."""
        return self.do(ops.AllocComplete(at=0, job_id=job_id, who=who, exit=Exit(**end))).refusal

    def down(self, name: str, who: ops.Who | None = None) -> Any:
        return self.do(ops.NodeDown(at=0, name=name, reason="Not responding", who=who or ops.Who()))

    def saved_and_restored(self) -> None:
        """A snapshot of the state is the state."""
        again = codec.restore(list(codec.freeze(self.state)))
        assert codec.digest(again) == codec.digest(self.state)
        assert not invariants.check(again)


@pytest.fixture
def sim() -> Iterator[Sim]:
    """Two nodes of four CPUs, 1000 MiB and two GPUs; checked once more at the end."""
    built = Sim()
    yield built
    built.saved_and_restored()


@pytest.fixture
def make_sim() -> type[Sim]:
    return Sim


@pytest.fixture
def alice() -> ops.Who:
    return ALICE


@pytest.fixture
def bob() -> ops.Who:
    return BOB


@pytest.fixture
def admin() -> ops.Who:
    return ADMIN
