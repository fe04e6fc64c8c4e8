"""Random lives of one job with up to two attempts and four steps, under crashes of everything but the log.

Invariants: no run twice, no exit lost, no signal to another run, no session deleted with an exit that nobody
acknowledged, an older attempt never beside a newer one, and at the end nothing is left and nothing is held.
The controller is the replicated state itself and the pure parts of launcher and recovery.
"""

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from life_node import Agent, Broken, Node

from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.recovery import policy
from spur_ctld.recovery.cohorts import Loss, Verdict
from spur_ctld.state import invariants, ops
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.machine import apply
from spur_ctld.state.records import Exit, Job, Partition, Request, Slice, StepAsk
from spur_ctld.state.records import Node as NodeRecord
from spur_ctld.state.settings import Settings
from spur_proto import controller_pb2 as pb

N1 = "n1"
ALICE = ops.Who(uid=1000, user="alice")
MOST_ATTEMPTS, MOST_STEPS = 2, 3
_SAID = {
    "accepted": pb.REPORT_VERDICT_ACCEPTED,
    "final": pb.REPORT_VERDICT_FINAL,
    "unknown": pb.REPORT_VERDICT_UNKNOWN,
    "retry": pb.REPORT_VERDICT_RETRY,
    "wrong_node": pb.REPORT_VERDICT_WRONG_NODE,
}


class Controller:
    """The state, and the effects that follow from it alone."""

    def __init__(self) -> None:
        self.state = ClusterState.empty()
        self.at = 1000.0
        #: Calls in flight to the agent, each to be answered, repeated or broken off.
        self.launches: list[RuntimeId] = []
        #: Launches whose answer was lost: to be probed.
        self.unsure: set[RuntimeId] = set()
        #: Orders to kill that may arrive at any time, more than once.
        self.kills: list[tuple[int, int, int | None]] = []
        #: What each run was said to have ended like, as the state took it.
        self.taken: dict[RuntimeId, tuple[int, int]] = {}
        self.do(
            ops.Configure(
                at=0,
                settings=Settings(max_batch_requeue=9),
                partitions=(Partition(name="main", default=True, nodes=(N1,)),),
            )
        )
        self.do(ops.NodeRegister(at=0, node=NodeRecord(name=N1, cpus=8, memory_mb=1000, boot_id="b")))
        request = Request(
            name="job", user="alice", uid=1000, gid=100, partitions=("main",), script=b"#!/bin/sh\n"
        )
        self.job_id = self.do(ops.Submit(at=0, request=request)).job_id

    def do(self, op):
        """Apply one operation; the state must be sound afterwards."""
        self.at += 1
        op = msgspec.structs.replace(op, at=self.at)
        result, _ = apply(self.state, int(self.at), op)
        problems = invariants.check(self.state)
        if problems:
            raise Broken(f"after {op}: {problems}")
        return result

    @property
    def job(self) -> Job:
        return self.state.jobs[self.job_id]

    @property
    def active(self) -> bool:
        return self.job.state in ACTIVE_STATES

    # -- effects, each safe to repeat

    def dispatch(self, attempt: int) -> None:
        """DispatchBegin, then the launch leaves."""
        result = self.do(
            ops.DispatchBegin(
                at=0,
                job_id=self.job_id,
                attempt=attempt,
                partition="main",
                slices=(Slice(node=N1, cpus=4),),
                everywhere=True,
            )
        )
        if result.refusal is None:
            self.launches.append(RuntimeId(self.job_id, attempt, STEP_BATCH))

    def create_step(self, overlap: bool) -> None:
        """StepCreate, then the launch leaves."""
        job = self.job
        result = self.do(
            ops.StepCreate(
                at=0,
                job_id=self.job_id,
                attempt=job.run_attempt,
                who=ALICE,
                ask=StepAsk(num_tasks=1, exact=True, overlap=overlap),
            )
        )
        if result.refusal is None:
            self.launches.append(RuntimeId(self.job_id, result.attempt, result.step_id))

    def launched(self, rid: RuntimeId, here: bool) -> None:
        """A launch, or a probe in its stead, was answered."""
        self.unsure.discard(rid)
        ids = {"at": 0, "job_id": rid.job_id, "attempt": rid.run_attempt}
        if rid.step_id == STEP_BATCH:
            if here:
                self.do(ops.DispatchCommit(**ids, start_at=self.at))
            else:
                self.do(ops.DispatchAbort(**ids, reason="JobLaunchFailure", clear=()))
        elif here:
            self.do(ops.StepLaunched(**ids, step_id=rid.step_id, start_at=self.at))
        else:
            self.do(ops.StepCancel(**ids, step_id=rid.step_id, who=ops.Who(), why="launch"))

    def wanted_kills(self) -> list[tuple[int, int, int | None]]:
        """What fences and stopped steps ask for now."""
        job = self.job
        if not self.active:
            return []
        if job.fence is not None:
            return [(job.job_id, job.run_attempt, None)]
        return [(job.job_id, job.run_attempt, s.step_id) for s in job.steps.values() if s.stop is not None]

    def in_flight(self, attempt: int, step_id: int | None) -> bool:
        """A launch of that run may still arrive."""
        return any(
            r.run_attempt == attempt and step_id in (None, r.step_id) for r in (*self.launches, *self.unsure)
        )

    def kill_answered(self, kill: tuple[int, int, int | None], active: bool) -> None:
        """Nothing of it is there, and nothing can come any more: crossed off."""
        job_id, attempt, step_id = kill
        if active or self.in_flight(attempt, step_id):
            return
        if step_id is None:
            self.do(ops.FenceConfirm(at=0, job_id=job_id, attempt=attempt, node=N1))
        else:
            self.do(ops.StepGone(at=0, job_id=job_id, attempt=attempt, step_id=step_id, node=N1))

    def reported(self, rid: RuntimeId, code: int, signal: int) -> int:
        """ReportJobStatus."""
        result = self.do(
            ops.NodeComplete(
                at=0,
                job_id=rid.job_id,
                attempt=rid.run_attempt,
                step_id=rid.step_id,
                node=N1,
                exit=Exit(code=code, signal=signal),
                started_at=self.at,
                ended_at=self.at,
            )
        )
        if result.verdict == "accepted":
            if rid in self.taken:
                raise Broken(f"{rid}: its end was taken twice")
            self.taken[rid] = (code, signal)
        return _SAID[result.verdict]

    def lost(self, rid: RuntimeId) -> Verdict:
        """ReportStepdRecovery of a supervisor that died without an exit."""
        fixed = policy.fixed_verdict(policy.standing(self.state, N1, rid), policy.Life.GONE)
        if fixed is not None:
            return fixed
        op = policy.loss_op(self.state, Loss(rid, N1, "its supervisor is gone"), self.at)
        if op is not None:
            self.do(op)
        return Verdict.WAIT


class Life(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.ctl = Controller()

    def agent(self) -> Agent:
        assert self.node.agent is not None
        return self.node.agent

    def up(self) -> bool:
        return self.node.agent is not None

    def pick(self, data: st.DataObject, found):
        return data.draw(st.sampled_from(sorted(found, key=repr)))

    # -- what the controller starts

    @precondition(lambda self: self.ctl.job.state is JobState.PENDING)
    @precondition(lambda self: self.ctl.job.run_attempt < MOST_ATTEMPTS)
    @rule()
    def dispatch(self) -> None:
        self.ctl.dispatch(self.ctl.job.run_attempt + 1)

    @precondition(lambda self: self.ctl.job.state is JobState.PENDING and self.ctl.job.run_attempt)
    @rule()
    def dispatch_of_a_late_proposer(self) -> None:
        """It has not heard of the attempt that was, and proposes its number again."""
        self.ctl.dispatch(self.ctl.job.run_attempt)

    @precondition(lambda self: self.ctl.job.state is JobState.RUNNING)
    @precondition(lambda self: self.ctl.job.next_step_id < MOST_STEPS)
    @rule(overlap=st.booleans())
    def create_step(self, overlap: bool) -> None:
        self.ctl.create_step(overlap)

    @precondition(lambda self: self.ctl.launches and self.up())
    @rule(data=st.data(), fate=st.sampled_from(["answered", "answered", "answered", "repeated", "unheard"]))
    def launch_arrives(self, data: st.DataObject, fate: str) -> None:
        rid = self.pick(data, self.ctl.launches)
        here = self.agent().launch(rid)
        if fate == "repeated":
            return
        self.ctl.launches.remove(rid)
        if fate == "answered":
            self.ctl.launched(rid, here)
        else:
            self.ctl.unsure.add(rid)

    @precondition(lambda self: self.ctl.unsure and self.up())
    @rule(data=st.data())
    def probe(self, data: st.DataObject) -> None:
        rid = self.pick(data, self.ctl.unsure)
        self.ctl.launched(rid, self.agent().probe(rid))

    # -- ends

    @precondition(lambda self: any(s.running for s in self.node.supervisors.values()))
    @rule(data=st.data(), code=st.sampled_from([0, 0, 3]))
    def task_ends(self, data: st.DataObject, code: int) -> None:
        rid = self.pick(data, [r for r, s in self.node.supervisors.items() if s.running])
        self.node.supervisors[rid].end_task(code, 0)

    @rule(secs=st.sampled_from([0.0, 1.0, 40.0]))
    def time_passes(self, secs: float) -> None:
        self.node.pass_time(secs)

    @precondition(lambda self: self.up() and any(self.agent().owed()))
    @rule(data=st.data(), heard=st.booleans())
    def report(self, data: st.DataObject, heard: bool) -> None:
        self.tell(self.pick(data, self.agent().owed()), heard)

    def tell(self, rid: RuntimeId, heard: bool = True) -> None:
        found = self.agent().table[rid].exit
        assert found is not None
        said = self.ctl.reported(rid, found.code, found.signal)
        if heard:
            self.agent().answered(rid, said)

    @precondition(lambda self: self.up() and any(self.agent().lost()))
    @rule(data=st.data())
    def tell_loss(self, data: st.DataObject) -> None:
        self.loss(self.pick(data, self.agent().lost()))

    def loss(self, rid: RuntimeId) -> None:
        if self.ctl.lost(rid) is Verdict.FORGET:
            self.agent().forget(rid)

    # -- orders

    @precondition(lambda self: self.ctl.active)
    @rule(what=st.sampled_from(["cancel", "requeue", "requeue"]))
    def end_job(self, what: str) -> None:
        targets = (ops.Target(job_id=self.ctl.job_id),)
        if what == "cancel":
            self.ctl.do(ops.Cancel(at=0, targets=targets, who=ALICE))
        else:
            self.ctl.do(ops.Requeue(at=0, targets=targets, who=ALICE))

    @precondition(lambda self: self.ctl.active and self.ctl.job.steps)
    @rule(data=st.data())
    def end_step(self, data: st.DataObject) -> None:
        step_id = self.pick(data, self.ctl.job.steps)
        job = self.ctl.job
        self.ctl.do(
            ops.StepCancel(at=0, job_id=job.job_id, attempt=job.run_attempt, step_id=step_id, who=ALICE)
        )

    @precondition(lambda self: self.ctl.wanted_kills())
    @rule(data=st.data())
    def send_kill(self, data: st.DataObject) -> None:
        self.ctl.kills.append(self.pick(data, self.ctl.wanted_kills()))

    @precondition(lambda self: self.ctl.kills and self.up())
    @rule(data=st.data(), again=st.booleans())
    def kill_arrives(self, data: st.DataObject, again: bool) -> None:
        """However late, and perhaps once more later."""
        kill = self.pick(data, self.ctl.kills)
        if not again:
            self.ctl.kills.remove(kill)
        self.kill(kill)

    def kill(self, kill: tuple[int, int, int | None]) -> None:
        others = {r: s.running for r, s in self.node.supervisors.items() if r.run_attempt != kill[1]}
        active = self.agent().cancel(*kill)
        for rid, ran in others.items():
            if ran and rid not in self.node.tasks():
                raise Broken(f"a kill of {kill} ended {rid}")
        if kill in self.ctl.wanted_kills():
            self.ctl.kill_answered(kill, active)

    # -- crashes

    @precondition(lambda self: self.node.supervisors)
    @rule(data=st.data())
    def supervisor_dies(self, data: st.DataObject) -> None:
        self.node.kill_supervisor(self.pick(data, self.node.supervisors))

    @precondition(lambda self: self.up())
    @rule()
    def agent_dies(self) -> None:
        """Calls in flight break off: whether they arrived is not known."""
        self.node.agent = None
        self.ctl.unsure.update(self.ctl.launches)
        self.ctl.launches.clear()

    @precondition(lambda self: not self.up())
    @rule()
    def agent_starts(self) -> None:
        self.node.agent = Agent(self.node)

    # -- the end of all

    def teardown(self) -> None:
        """Let everything come to rest; then nothing may be owed, held or left."""
        self.settle()
        ctl, node = self.ctl, self.node
        assert not ctl.active, ctl.job
        assert not node.disk, f"sessions are left: {list(node.disk)}"
        assert not node.supervisors
        assert not node.orphans
        assert ctl.state.use[N1].cpus == 0 if N1 in ctl.state.use else True
        for rid, (code, signal) in node.exits.items():
            taken = ctl.taken.get(rid)
            assert taken in (None, (code, signal)), f"{rid} ended {code}:{signal}, taken as {taken}"
        if ctl.job.state in (JobState.COMPLETED, JobState.FAILED):
            last = RuntimeId(ctl.job_id, ctl.job.run_attempt, STEP_BATCH)
            assert ctl.taken[last] == node.exits[last]

    def settle(self) -> None:
        ctl, node = self.ctl, self.node
        for _ in range(60):
            if node.agent is None:
                self.agent_starts()
            for rid in list(ctl.launches):
                ctl.launches.remove(rid)
                ctl.launched(rid, self.agent().launch(rid))
            for rid in sorted(ctl.unsure):
                ctl.launched(rid, self.agent().probe(rid))
            for supervisor in list(node.supervisors.values()):
                supervisor.end_task(0, 0)
            node.pass_time(40.0)
            for rid in list(self.agent().owed()):
                self.tell(rid)
            for rid in list(self.agent().lost()):
                self.loss(rid)
            for kill in [*ctl.kills, *ctl.wanted_kills()]:
                self.kill(kill)
            ctl.kills.clear()
            if not (ctl.active or node.disk or node.supervisors or node.orphans):
                return


# Found by chance in seconds when a rule of the product is broken; 2,000 lives a run.
TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=2000,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
