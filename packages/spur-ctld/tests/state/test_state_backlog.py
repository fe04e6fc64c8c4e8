"""The queue that is kept from pass to pass is the one that is made anew, whatever happens in between."""

import random

import pytest

from spur_ctld.state import ops
from spur_ctld.state.pending import pending_views
from spur_ctld.state.records import Partition
from spur_ctld.state.settings import Settings


class Books:
    """A ledger: the state, and nobody hears of changes."""

    def __init__(self, sim):
        self.sim = sim

    @property
    def state(self):
        return self.sim.state


class Numbers:
    """Priorities that change all at once."""

    def __init__(self):
        self.version = 0

    def of(self, job):
        return (job.priority * (job.job_id * 7 + self.version)) % 13 + 1 if job.priority else 0


@pytest.fixture
def kept(sim):
    from spur_ctld.scheduling.backlog import Backlog

    numbers = Numbers()
    return Backlog(Books(sim), numbers), numbers


def queue_of(backlog, now):
    for _ in backlog.catch_up(now):
        pass
    return backlog.queue(now)


def agree(sim, backlog, numbers, now):
    found = queue_of(backlog, now)
    fresh = pending_views(sim.state, now, {}, numbers.of)
    assert found.views == fresh.views
    assert sorted(found.gated) == sorted(fresh.gated)
    assert sorted(found.never) == sorted(fresh.never)
    assert found.starts_matter == fresh.starts_matter


def test_only_what_changed_is_looked_at_again(sim, kept, monkeypatch):
    from spur_ctld.scheduling import backlog as module

    backlog, numbers = kept
    for _ in range(5):
        sim.submit()
    waiting = sim.submit(dependency="afterany:1")
    queue_of(backlog, sim.now)
    looked = []
    made = module.look

    def look(state, job, *rest):
        looked.append(job.job_id)
        return made(state, job, *rest)

    monkeypatch.setattr(module, "look", look)
    queue_of(backlog, sim.now)
    assert looked == [waiting]
    looked.clear()
    late = sim.submit()
    sim.do(ops.PendingReasons(at=0, reasons=((2, "Resources", ""),)))
    queue_of(backlog, sim.now)
    assert sorted(looked) == [2, waiting, late]
    looked.clear()
    numbers.version += 1
    agree(sim, backlog, numbers, sim.now)
    assert sorted(looked) == list(range(1, late + 1))


def test_a_begin_time_comes_without_an_event(sim, kept):
    backlog, numbers = kept
    job_id = sim.submit(begin_at=sim.now + 100)
    assert queue_of(backlog, sim.now).gated == [(job_id, "BeginTime", "")]
    assert queue_of(backlog, sim.now + 90).views == []
    (view,) = queue_of(backlog, sim.now + 101).views
    assert view.job_id == job_id
    agree(sim, backlog, numbers, sim.now + 101)


def test_it_knows_which_jobs_ask_for_something_else_than_at_the_last_look(sim, kept):
    backlog, _ = kept
    one, other = sim.submit(), sim.submit()
    queue_of(backlog, sim.now)
    sim.do(ops.PendingReasons(at=0, reasons=((one, "Resources", ""),)))
    assert sim.update(other, num_tasks=3) is None
    assert not backlog.asks_otherwise(sim.job(one))
    assert backlog.asks_otherwise(sim.job(other))
    queue_of(backlog, sim.now)
    assert not backlog.asks_otherwise(sim.job(other))


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_queue_made_anew(make_sim, seed):
    from spur_ctld.scheduling.backlog import Backlog

    chance = random.Random(seed)
    sim = make_sim(nodes=4, cpus=4)
    numbers = Numbers()
    backlog = Backlog(Books(sim), numbers)

    def submit():
        more = {}
        if chance.random() < 0.3:
            more["begin_at"] = sim.now + chance.randint(1, 60)
        elif chance.random() < 0.3 and sim.state.jobs:
            kind = chance.choice(["after", "afterok", "afternotok", "afterany"])
            more["dependency"] = f"{kind}:{chance.choice(sorted(sim.state.jobs))}"
            more["kill_on_invalid_dependency"] = chance.random() < 0.5
        if chance.random() < 0.2:
            more.update(array=[(0, 5, 1)], array_throttle=chance.choice([0, 2]))
        if chance.random() < 0.2:
            more["held"] = True
        sim.submit(partitions=chance.choice([("main",), ("other",), ("main", "other")]), **more)

    def change_partitions():
        names = tuple(sim.state.nodes)
        tier = chance.randint(1, 3)
        accounts = chance.choice([(), ("physics",)])
        parts = (
            Partition(name="main", default=True, nodes=names),
            Partition(name="other", nodes=names, priority_tier=tier, allow_accounts=accounts),
        )
        sim.do(ops.Configure(at=0, settings=Settings(), partitions=parts))

    def start():
        queue = pending_views(sim.state, sim.now, {}, numbers.of)
        if queue.views:
            view = chance.choice(queue.views)
            task = view.tasks[0] if view.tasks else None
            sim.begin(view.job_id, nodes=(chance.choice(sorted(sim.state.nodes)),), task=task)

    def end():
        running = sorted(sim.state.active)
        if running:
            job_id = chance.choice(running)
            sim.commit(job_id)
            sim.complete(job_id)

    def update():
        pending = sorted(sim.state.pending)
        if pending:
            change = chance.choice([{"nice": chance.randint(0, 9)}, {"num_tasks": 2}])
            sim.update(chance.choice(pending), **change)

    def cancel():
        if sim.state.pending:
            sim.cancel(chance.choice(sorted(sim.state.pending)))

    def hold():
        if sim.state.pending:
            sim.hold(chance.choice(sorted(sim.state.pending)), chance.choice(["hold", "release"]))

    def explain():
        queue = pending_views(sim.state, sim.now, {}, numbers.of)
        sim.do(ops.PendingReasons(at=0, reasons=tuple((view.job_id, "Priority", "") for view in queue.views)))

    def age():
        numbers.version += 1

    acts = [submit, submit, submit, start, start, end, update, cancel, hold, explain, age, change_partitions]
    change_partitions()
    for _ in range(120):
        chance.choice(acts)()
        if chance.random() < 0.6:
            agree(sim, backlog, numbers, sim.now)
        elif chance.random() < 0.3:
            # Others act while it catches up.
            steps = backlog.catch_up(sim.now)
            next(steps, None)
            submit()
            for _ in steps:
                submit()
