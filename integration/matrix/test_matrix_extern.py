"""Rows 1, 2, 4, 7 to 9, 13 and 30 for extern steps, by which `salloc` allocations live: they have no process
of their own, so a lost supervisor is replaced and what runs in the allocation goes on."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from matrix_kit import IS_ROOT, edit_descriptor, events, journal
from step_kit import AGENTS, Step, allocate, extern_of, kill_agents, over, restart_agents, start_agents
from testkit.crash_cluster import alive, until

from spur_core.ids import STEP_EXTERN

pytestmark = pytest.mark.node
Make = Callable[..., Step]


class Guest:
    """A process that somebody has put into an allocation's group on the first node (root has groups)."""

    def __init__(self, one: Step) -> None:
        self.child = subprocess.Popen(["sleep", "600"])
        (started,) = [r for r in journal(one.sessions(step=STEP_EXTERN)[0]) if r["event"] == "Started"]
        self.groups = started["cgroup"]
        assert bool(self.groups) is IS_ROOT
        for group in self.groups:
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write(str(self.child.pid))

    def lives_where_it_was(self) -> bool:
        with open(f"/proc/{self.child.pid}/cgroup") as file:
            inside = file.read().count(f"/step_{STEP_EXTERN}\n")
        return self.child.poll() is None and inside == len(self.groups)


@pytest.fixture
def guests() -> Iterator[Callable[[Step], Guest]]:
    """Puts processes into allocations; none outlives the test."""
    made: list[Guest] = []

    def make(one: Step) -> Guest:
        made.append(Guest(one))
        return made[-1]

    yield make
    for guest in made:
        guest.child.kill()
        guest.child.wait()


@pytest.fixture
def one(two: Any, step: Make) -> Step:
    """An allocation of two nodes with a step that runs in it."""
    made = step(two, "alloc").prepare().begin()
    return made.runs()


def goes_on(one: Step, guest: Guest, tasks: dict[int, int]) -> None:
    """Nothing in the allocation was touched; its step ends with its own code, more can be made."""
    assert guest.lives_where_it_was()
    assert one.tasks() == tasks
    assert all(alive(pid) for pid in tasks.values())
    assert one.client_alive()
    one.open()
    assert one.status() == 5, one.said()
    assert one.history() == ("FAILED", "5:0")
    one.job_goes_on()
    over(one.cluster, [one])
    # As root the guest goes with the allocation's group.
    until(lambda: guest.child.poll() is not None or not IS_ROOT, "the guest is ended with the allocation")


def restored(one: Step, old: list[int]) -> None:
    """Wait until both nodes have an extern supervisor again, the first a new one."""
    until(
        lambda: len(now := extern_of(one)) == 2 and now[0] != old[0] and all(map(alive, now)),
        "another supervisor holds the allocation",
        30,
    )
    until(lambda: "Started" in events(one.sessions(step=STEP_EXTERN)[0]), "it has taken over")
    assert one.cluster.state_or_nothing(one.job) == "RUNNING"


def test_row_02_an_allocation_is_given_up_while_the_agents_are_away(two: Any, one: Step) -> None:
    """It ends once they are back, with what runs in it; its client hears of it."""
    tasks = one.tasks()
    kill_agents(two)
    one.close()
    assert all(alive(pid) for pid in tasks.values())
    start_agents(two)
    assert one.status() in (137, 143), one.said()
    until(lambda: not two.queued(), "the queue is empty")
    one.ended()
    assert not any(alive(pid) for pid in tasks.values())


def test_row_04_the_agent_dies_between_start_and_answer(two: Any, step: Make) -> None:
    """The allocation is found held and is the launch's success."""
    two.kill(AGENTS[0])
    two.start(AGENTS[0], wait=True, faults="crash_after:started")
    one = step(two, "alloc")
    salloc = subprocess.Popen(
        ["salloc", "--no-shell", "-Q", "-J", "held", "-N2", "-n2"], env=two.env, cwd=two.work
    )
    until(lambda: not two.running(AGENTS[0]), "the agent is dead")
    two.start(AGENTS[0], wait=True)
    assert salloc.wait(60) == 0
    one.job = two.ok("squeue", "-h", "-t", "R", "-n", "held", "-o", "%i").strip()
    assert [path.name.split(".")[1] for path in one.sessions(step=STEP_EXTERN)] == ["1", "1"]
    one.job_goes_on()
    over(two, [one])


def test_row_07_the_supervisor_dies(one: Step, guests: Any) -> None:
    """13.7: a new one is started for the same run on the same group."""
    guest, old, tasks = guests(one), extern_of(one), one.tasks()
    os.kill(old[0], signal.SIGKILL)
    restored(one, old)
    goes_on(one, guest, tasks)


@pytest.mark.parametrize("point", ["crash_after:ExitObserved", "crash_after:CleanupDone"])
def test_row_08_the_supervisor_dies_after_the_exit_was_recorded(two: Any, step: Make, point: str) -> None:
    """An end that is on the disk is an end: nothing is restored."""
    restart_agents(two, point)
    one = step(two, "alloc").prepare()
    until(lambda: len(extern_of(one)) == 2, "it is held")
    over(two, [one])
    logs = "".join(two.log(agent).read_text() for agent in AGENTS)
    assert f"event=restored step={one.job}." not in logs


def test_row_09_supervisor_and_agents_die_together(two: Any, one: Step, guests: Any) -> None:
    guest, old, tasks = guests(one), extern_of(one), one.tasks()
    kill_agents(two)
    os.kill(old[0], signal.SIGKILL)
    start_agents(two)
    restored(one, old)
    goes_on(one, guest, tasks)


def test_row_13_the_pid_was_used_again(two: Any, one: Step, guests: Any) -> None:
    """The stranger gets no signal, a new supervisor takes over."""
    guest, old, tasks = guests(one), extern_of(one), one.tasks()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            kill_agents(two)
            os.kill(old[0], signal.SIGKILL)
            session = one.sessions(step=STEP_EXTERN)[0]
            edit_descriptor(session, lambda d: d.update(stepd_pid=stranger.pid))
            start_agents(two)
            restored(one, [stranger.pid])
            goes_on(one, guest, tasks)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_row_30_one_node_comes_back_without_its_supervisor(two: Any, one: Step, guests: Any) -> None:
    """The other node's is left as it is, the allocation is not fenced."""
    guest, old, tasks = guests(one), extern_of(one), one.tasks()
    two.kill(AGENTS[0])
    os.kill(old[0], signal.SIGKILL)
    two.start(AGENTS[0], wait=True)
    restored(one, old)
    assert extern_of(one)[1] == old[1]
    goes_on(one, guest, tasks)


def test_row_30_a_supervisor_that_cannot_be_replaced_costs_the_allocation(crash: Any) -> None:
    """As for batch then; an allocation does not go back to the queue."""
    cluster = crash(nodes=2)
    job = allocate(cluster, 2)
    one = Step(cluster, "alloc")
    one.job = job
    until(lambda: len(extern_of(one)) == 2, "it is held")
    cluster.kill(AGENTS[0])
    os.kill(extern_of(one)[0], signal.SIGKILL)
    cluster.start(AGENTS[0], wait=True, faults="crash_before:ready")
    until(lambda: cluster.state_or_nothing(job) == "NODE_FAIL", "the allocation has ended")
    cluster.settle()
    assert cluster.left() == []
