"""Random life of a small cluster, checked against a model that only counts.

After every operation the invariants hold; at any moment a snapshot is the state; and what must never happen
does not: an attempt dispatched twice, a run with two ends, a report of an old attempt with an effect.
"""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.state import codec, events, ops
from spur_ctld.state.cluster import launch_nodes
from spur_ctld.state.ops import Who
from spur_ctld.state.records import Gres
from spur_ctld.state.reservations import Reservation
from spur_ctld.state.settings import Settings
from spur_ctld.state.step_rows import waits_for

NODES = ("n1", "n2", "n3")
WHO = st.sampled_from(
    [Who(uid=1000, user="alice"), Who(uid=1001, user="bob"), Who(uid=0, user="root", admin=True)]
)


def has(*states):
    """A rule's precondition: some job is in one of these states."""
    return lambda self: any(job.state in states for job in self.sim.state.jobs.values())


def make_machine(sim_class):
    """The machine around the `Sim` of the tests."""

    class Life(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.sim = sim_class(nodes=3, settings=Settings(max_batch_requeue=3, licenses=(("m", 3),)))
            #: (job, attempt) that were dispatched, and how they ended for good.
            self.dispatched = set()
            self.ended = {}
            #: (job, attempt, step) that were made.
            self.made = set()
            self.boots = itertools.count(2)

        # -- help

        def watch(self):
            """Read the events as the shell would."""
            for event in self.sim.events:
                if isinstance(event, events.DispatchRequested):
                    key = (event.job_id, event.attempt)
                    assert key not in self.dispatched
                    self.dispatched.add(key)
                elif isinstance(event, events.JobEnded):
                    job = self.sim.job(event.job_id)
                    assert job.state is event.state
                    if (event.job_id, event.attempt) in self.dispatched:
                        assert (event.job_id, event.attempt) not in self.ended
                        self.ended[event.job_id, event.attempt] = event.state

        def pick(self, data, states):
            found = sorted(job.job_id for job in self.sim.state.jobs.values() if job.state in states)
            return self.sim.job(data.draw(st.sampled_from(found))) if found else None

        def attempt_near(self, data, job):
            return max(1, job.run_attempt + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])))

        def pick_step(self, data):
            """(job, step id) of a step that is not over, or of one that never was."""
            found = [(job, step) for job in self.sim.state.jobs.values() for step in (*job.steps, 99)]
            found = [pair for pair in found if pair[0].steps]
            return data.draw(st.sampled_from(found)) if found else None

        # -- operations

        @rule(data=st.data())
        def submit(self, data):
            srun = data.draw(st.booleans())
            alloc = not srun and data.draw(st.booleans())
            array = data.draw(st.sampled_from([(), (), ((0, 3, 1),), ((1, 1, 1), (5, 9, 2))]))
            self.sim.submit(
                srun=srun,
                alloc_only=alloc,
                array=() if srun or alloc else array,
                array_throttle=data.draw(st.integers(0, 2)),
                held=data.draw(st.integers(0, 4)) == 0,
                requeue=data.draw(st.integers(0, 3)) > 0,
                request_id=data.draw(st.sampled_from(["", "", "r1", "r2"])),
                dependency=data.draw(st.sampled_from(["", "", "afterok:1", "singleton"])),
                reservation=data.draw(st.sampled_from(["", "", "r", "q", "r,q"])),
            )
            self.watch()

        @rule(data=st.data())
        def dispatch(self, data):
            job = self.pick(data, {JobState.PENDING, JobState.RUNNING})
            if job is None:
                return
            tasks = [first for first, _, _ in job.array_pending]
            task = data.draw(st.sampled_from([None, 99, *tasks])) if tasks else None
            nodes = data.draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))
            attempt = job.run_attempt + 1 + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1]))
            before = {name: self.sim.state.use_of(name).cpus for name in NODES}
            result = self.sim.begin(
                job.job_id,
                tuple(nodes),
                cpus=data.draw(st.integers(1, 3)),
                task=task,
                attempt=attempt,
                everywhere=data.draw(st.integers(0, 4)) > 0,
                gres=data.draw(st.sampled_from([(), (), (Gres(name="gpu", count=1),)])),
            )
            if result.refusal is None:
                assert self.sim.job(result.job_id).run_attempt == attempt
                assert all(self.sim.state.use_of(name).cpus > before[name] for name in nodes)
            self.watch()

        @precondition(has(JobState.PENDING))
        @rule(data=st.data(), count=st.integers(1, 3))
        def start_what_fits(self, data, count):
            """A pass of a scheduler that is always right."""
            for job_id in sorted(self.sim.state.pending)[:count]:
                job = self.sim.job(job_id)
                nodes = [
                    name
                    for name, node in self.sim.state.nodes.items()
                    if self.sim.state.schedulable(node) and self.sim.state.use_of(name).cpus < node.cpus
                ]
                if not nodes or job.priority == 0:
                    continue
                picked = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=2, unique=True))
                task = job.array_pending[0][0] if job.array_pending else None
                free = 3 - self.sim.state.licenses_used.get("m", 0)
                count = data.draw(st.integers(0, free))
                more = {"licenses": (("m", count),) if count else ()}
                if (name := job.request.reservation.partition(",")[0]) in self.sim.state.reservations:
                    more["reservation"] = name
                result = self.sim.begin(job_id, tuple(picked), task=task, **more)
                assert result.refusal is None
                self.watch()
                if data.draw(st.booleans()):
                    self.sim.commit(result.job_id)
                    self.watch()

        @precondition(lambda self: not all(map(self.sim.state.schedulable, self.sim.state.nodes.values())))
        @rule(data=st.data())
        def keep(self, data):
            """Reservations come, go on and go; nobody who runs in one loses it."""
            who, name = data.draw(WHO), data.draw(st.sampled_from("rq"))
            kept = Reservation(
                name=name,
                start_at=10.0,
                end_at=20.0,
                first_start=10.0,
                first_end=20.0,
                nodes=(data.draw(st.sampled_from(NODES)),),
                flags=data.draw(st.sampled_from([(), ("NO_HOLD_JOBS_AFTER_END",)])),
            )
            kind = data.draw(st.sampled_from(["create", "update", "delete", "expire", "next"]))
            if kind == "create":
                op = ops.ReservationCreate(at=0, reservation=kept, who=who, seen=10**9)
            elif kind == "update":
                op = ops.ReservationUpdate(at=0, reservation=kept, who=who, seen=10**9)
            elif kind == "delete":
                op = ops.ReservationDelete(at=0, name=name, who=who)
            else:
                later = (30.0, 40.0) if kind == "next" else (None, None)
                op = ops.ReservationExpire(
                    at=0, name=name, start_at=10.0, end_at=20.0, next_start=later[0], next_end=later[1]
                )
            self.sim.do(op)
            self.watch()

        @rule()
        def heal(self):
            """All nodes back in service."""
            for name in NODES:
                self.sim.register(name, boot=self.sim.state.nodes[name].boot_id)
            root = Who(uid=0, user="root", admin=True)
            assert self.sim.do(ops.NodeUpdate(at=0, names=NODES, who=root, state="resume")).refusal is None
            self.watch()

        @precondition(has(JobState.CONFIGURING, JobState.COMPLETING))
        @rule(data=st.data())
        def commit(self, data):
            job = self.pick(data, {JobState.CONFIGURING, JobState.COMPLETING})
            if job is not None:
                self.sim.commit(job.job_id, self.attempt_near(data, job))
                self.watch()

        @precondition(has(JobState.CONFIGURING))
        @rule(data=st.data())
        def abort(self, data):
            job = self.pick(data, {JobState.CONFIGURING})
            if job is None:
                return
            clear = data.draw(st.sets(st.sampled_from(launch_nodes(job))))
            self.sim.abort(
                job.job_id,
                data.draw(st.sampled_from(["retry", "hold", "fail"])),
                clear=sorted(clear),
                attempt=self.attempt_near(data, job),
            )
            self.watch()

        @precondition(has(*ACTIVE_STATES))
        @rule(data=st.data())
        def complete(self, data):
            job = self.pick(data, ACTIVE_STATES | TERMINAL_STATES | {JobState.PENDING})
            if job is None:
                return
            attempt = self.attempt_near(data, job)
            node = data.draw(st.sampled_from(NODES))
            before = codec.digest(self.sim.state)
            verdict = self.sim.complete(
                job.job_id,
                node,
                attempt=attempt,
                code=data.draw(st.sampled_from([0, 0, 3])),
                signal=data.draw(st.sampled_from([0, 0, 9])),
                oom=data.draw(st.integers(0, 9)) == 0,
            )
            current = job.state in ACTIVE_STATES and attempt == job.run_attempt
            assert (verdict == "accepted") == (
                current and node in launch_nodes(job) and node not in job.exits
            )
            if verdict != "accepted":
                applied, self.sim.state.applied = self.sim.state.applied, self.sim.index - 1
                assert codec.digest(self.sim.state) == before
                self.sim.state.applied = applied
            self.watch()

        @precondition(has(JobState.RUNNING))
        @rule(data=st.data(), who=WHO)
        def make_step(self, data, who):
            job = self.pick(data, ACTIVE_STATES)
            exact = data.draw(st.booleans())
            result = self.sim.ask(
                job.job_id,
                who=who,
                num_tasks=data.draw(st.sampled_from([None, 1, 2, 4])),
                exact=exact,
                overlap=data.draw(st.integers(0, 3)) == 0,
                interactive=data.draw(st.integers(0, 9)) == 0,
                gres=data.draw(st.sampled_from([None, ()])),
                request_id=data.draw(st.sampled_from(["", "", "s1", "s2"])),
                attempt=self.attempt_near(data, job),
            )
            if result.refusal is None:
                now = self.sim.job(job.job_id)
                made = (now.job_id, result.attempt, result.step_id)
                # Only the repeat of a request may name a step again.
                assert made not in self.made or now.steps == job.steps
                self.made.add(made)
            self.watch()

        @precondition(lambda self: any(job.steps for job in self.sim.state.jobs.values()))
        @rule(
            data=st.data(), word=st.sampled_from(["up", "report", "report", "stop", "gone", "lost", "forget"])
        )
        def move_step(self, data, word):
            picked = self.pick_step(data)
            if picked is None:
                return
            job, step_id = picked
            attempt = self.attempt_near(data, job)
            node = data.draw(st.sampled_from(NODES))
            if word == "up":
                self.sim.step_up(job.job_id, step_id)
            elif word == "report":
                step = job.steps.get(step_id)
                verdict = self.sim.complete(
                    job.job_id,
                    node,
                    attempt=attempt,
                    step_id=step_id,
                    code=data.draw(st.sampled_from([0, 3])),
                )
                wanted = step is not None and node in waits_for(step) and attempt == job.run_attempt
                assert (verdict == "accepted") == wanted
            elif word == "stop":
                self.sim.stop(job.job_id, step_id, attempt=attempt, hard=data.draw(st.booleans()))
            elif word == "forget":
                done = self.sim.do(ops.StepForget(at=0, job_id=job.job_id, attempt=attempt, step_id=step_id))
                if done.refusal is None:
                    # It never was: an interactive one, which has a fixed id, may be made again.
                    self.made.discard((job.job_id, attempt, step_id))
            else:
                self.sim.gone(job.job_id, step_id, node, attempt=attempt, lost=word == "lost")
            self.watch()

        @precondition(has(JobState.RUNNING, JobState.SUSPENDED))
        @rule(data=st.data(), who=WHO, resume=st.booleans())
        def suspend(self, data, who, resume):
            job = self.pick(data, {JobState.RUNNING, JobState.SUSPENDED})
            self.sim.suspend(job.job_id, resume=resume, who=who)
            self.watch()
            job = self.sim.job(job.job_id)
            if job.untold and data.draw(st.booleans()):
                suspended = data.draw(st.booleans())
                self.sim.do(
                    ops.SuspendTold(
                        at=0,
                        job_id=job.job_id,
                        attempt=job.run_attempt,
                        nodes=job.untold[:1],
                        suspended=suspended,
                    )
                )

        @precondition(has(JobState.RUNNING, JobState.SUSPENDED))
        @rule(
            data=st.data(),
            mode=st.sampled_from(["cancel", "requeue", "suspend", "suspend", "resume"]),
            grace=st.sampled_from([0, 0, 3]),
        )
        def preempt(self, data, mode, grace):
            job = self.pick(data, {JobState.RUNNING, JobState.SUSPENDED})
            attempt = self.attempt_near(data, job)
            done = self.sim.do(
                ops.Preempt(at=0, job_id=job.job_id, attempt=attempt, by=99, mode=mode, grace_secs=grace)
            )
            assert attempt == job.run_attempt or done.refusal is not None
            self.watch()
            job = self.sim.job(job.job_id)
            if job.untold and data.draw(st.booleans()):
                self.sim.do(
                    ops.SuspendTold(
                        at=0,
                        job_id=job.job_id,
                        attempt=job.run_attempt,
                        nodes=job.untold,
                        suspended=job.state is JobState.SUSPENDED,
                    )
                )
            if job.push is not None and job.push.unwarned:
                self.sim.do(
                    ops.PreemptTold(
                        at=0, job_id=job.job_id, attempt=job.run_attempt, nodes=job.push.unwarned[:1]
                    )
                )

        @precondition(lambda self: any(j.request.alloc_only for j in self.sim.state.jobs.values()))
        @rule(data=st.data(), who=WHO)
        def done_with_it(self, data, who):
            job = self.pick(data, ACTIVE_STATES)
            if job is not None:
                self.sim.over(job.job_id, who=who, code=data.draw(st.sampled_from([0, 2])))
                self.watch()

        @rule(data=st.data(), who=WHO)
        def cancel(self, data, who):
            job = self.pick(data, set(JobState))
            if job is None:
                return
            array = job.array_job_id
            if array is not None and data.draw(st.booleans()):
                tasks = data.draw(st.sampled_from([None, ((0, 1, 1),), ((5, 5, 1),)]))
                self.sim.cancel(array, tasks=tasks, who=who)
            else:
                self.sim.cancel(job.job_id, who=who)
            self.watch()

        @precondition(has(JobState.PENDING))
        @rule(data=st.data(), who=WHO, mode=st.sampled_from(["hold", "uhold", "release", "release"]))
        def hold(self, data, who, mode):
            job = self.pick(data, {JobState.PENDING, JobState.RUNNING})
            if job is not None:
                self.sim.hold(job.job_id, mode, who=who)
                self.watch()

        @precondition(has(*ACTIVE_STATES, *TERMINAL_STATES))
        @rule(data=st.data(), who=WHO, hold=st.booleans())
        def requeue(self, data, who, hold):
            job = self.pick(data, set(JobState))
            if job is not None:
                self.sim.requeue(job.job_id, who=who, hold=hold)
                self.watch()

        @precondition(has(JobState.PENDING, JobState.RUNNING))
        @rule(data=st.data())
        def update(self, data):
            job = self.pick(data, {JobState.PENDING, JobState.RUNNING})
            if job is not None:
                self.sim.update(
                    job.job_id,
                    priority=data.draw(st.sampled_from([None, 0, 500, 2000])),
                    time_limit=data.draw(st.integers(60, 600)),
                )
                self.watch()

        @precondition(has(JobState.CONFIGURING, JobState.RUNNING))
        @rule(data=st.data())
        def fence(self, data):
            job = self.pick(data, ACTIVE_STATES)
            if job is None:
                return
            outcome = data.draw(st.sampled_from([JobState.PENDING, JobState.NODE_FAIL, JobState.TIMEOUT]))
            recovery = outcome is JobState.PENDING and data.draw(st.booleans())
            self.sim.fence(job.job_id, outcome, attempt=self.attempt_near(data, job), recovery=recovery)
            self.watch()

        @precondition(has(JobState.COMPLETING))
        @rule(data=st.data())
        def confirm(self, data):
            job = self.pick(data, {JobState.COMPLETING})
            if job is None:
                return
            targets = job.fence.targets if job.fence is not None else ()
            node = data.draw(st.sampled_from([*targets, *targets, *targets, *NODES]))
            self.sim.confirm(job.job_id, node, attempt=self.attempt_near(data, job))
            self.watch()

        @precondition(has(JobState.CONFIGURING, JobState.RUNNING))
        @rule(data=st.data())
        def once_more(self, data):
            """A whole requeue, so that higher attempts are common."""
            job = self.pick(data, {JobState.CONFIGURING, JobState.RUNNING})
            self.sim.requeue(job.job_id)
            for node in launch_nodes(job):
                self.sim.confirm(job.job_id, node, attempt=job.run_attempt)
            self.watch()

        @precondition(has(JobState.RUNNING))
        @rule(data=st.data())
        def time_limit(self, data):
            job = self.pick(data, {JobState.RUNNING})
            if job is not None:
                self.sim.do(ops.TimeLimitSignalled(at=0, job_id=job.job_id, attempt=job.run_attempt))

        @rule(name=st.sampled_from(NODES), by_admin=st.booleans(), luck=st.integers(0, 2))
        def lose(self, name, by_admin, luck):
            if luck:
                return
            self.sim.down(name, who=Who(uid=0, user="root", admin=True) if by_admin else None)
            for job_id in self.sim.state.use_of(name).jobs:
                assert self.sim.job(job_id).fence is not None
            self.watch()

        @rule(name=st.sampled_from(NODES), reboot=st.booleans(), cpus=st.sampled_from([4, 4, 4, 4, 4, 1]))
        def register(self, name, reboot, cpus):
            known = self.sim.state.nodes[name].boot_id
            boot = f"boot-{next(self.boots)}" if reboot else known
            # An older agent on one of the nodes says less.
            told = self.sim.told(cpus) if reboot or name != "n3" else None
            self.sim.register(name, cpus=cpus, boot=boot, inventory=told)
            if reboot:
                held = self.sim.state.use_of(name).jobs
                for job in map(self.sim.job, held):
                    assert job.fence is not None
                    assert name not in job.fence.targets
            self.watch()

        @rule(name=st.sampled_from(NODES), word=st.sampled_from(["drain", "undrain", "silence"]))
        def bother(self, name, word):
            if word == "silence":
                self.sim.do(ops.NodeSilent(at=0, name=name, reason="restart"))
                self.sim.do(ops.NodeBack(at=0, name=name))
            else:
                root = Who(uid=0, user="root", admin=True)
                self.sim.do(ops.NodeUpdate(at=0, names=(name,), who=root, state=word, reason="test"))

        @precondition(lambda self: len(self.sim.state.outbox) > 4)
        @rule()
        def forget(self):
            rows = tuple((row.job_id, row.attempt, row.seq) for row in self.sim.state.outbox.values())
            steps = [(*key, row.seq) for key, row in self.sim.state.step_outbox.items()]
            self.sim.do(ops.OutboxAck(at=0, rows=rows[::2], steps=tuple(steps[::2])))
            self.sim.do(ops.Purge(at=0, job_ids=tuple(self.sim.state.jobs), answers_before=self.sim.now - 20))

        @rule()
        def restart(self):
            """The controller goes on from a snapshot."""
            chunks = list(codec.freeze(self.sim.state))
            digest = codec.digest(self.sim.state)
            self.sim.machine.restore(chunks)
            assert codec.digest(self.sim.state) == digest

        @precondition(lambda self: self.sim.state.active)
        @rule()
        def settle(self):
            """When every fence is confirmed and every node reports, nothing holds anything."""
            for job_id in sorted(self.sim.state.active):
                job = self.sim.job(job_id)
                for node in launch_nodes(job):
                    if node in job.exits:
                        continue
                    self.sim.complete(job_id, node)
                    self.watch()
            assert not self.sim.state.active
            assert not any(job.steps for job in self.sim.state.jobs.values())
            assert all(use.cpus == 0 and not use.jobs for use in self.sim.state.use.values())

        @initialize()
        def begin(self):
            self.sim.name_things()
            for name in ("n1", "n2"):
                self.sim.register(name, inventory=self.sim.told())
            for _ in range(3):
                self.sim.submit()
            self.sim.submit(array=((0, 3, 1),), array_throttle=2)
            self.sim.submit(srun=True, min_nodes=2, max_nodes=2)
            self.sim.submit(alloc_only=True, script=b"", requeue=False)

    return Life


def test_random_lives(make_sim):
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        make_machine(make_sim), settings=settings(max_examples=250, stateful_step_count=50, deadline=None)
    )
