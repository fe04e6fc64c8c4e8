"""Rows 1, 2, 4, 7 to 9, 11, 13 and 30 for steps inside allocations, their clients being real ones.

What holds for a batch job's own step is in the other files; what happens to extern steps is in
test_matrix_extern.py.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from matrix_kit import DAEMON, IS_ROOT, edit_descriptor, events
from step_kit import (
    AGENTS,
    KINDS,
    Client,
    Step,
    extern_of,
    kill_agents,
    over,
    restart_agents,
    start_agents,
)
from testkit.crash_cluster import alive, until

pytestmark = pytest.mark.node
Make = Callable[..., Step]


@pytest.fixture
def all_kinds(two: Any, step: Make) -> Callable[..., list[Step]]:
    """Makes a running step of each kind, all at once."""

    def make(**how: Any) -> list[Step]:
        steps = [step(two, kind, **how).prepare().begin() for kind in KINDS]
        return [one.runs() for one in steps]

    return make


def wait_for_events(steps: list[Step], event: str) -> None:
    """Until every session of the steps has it in its journal."""
    for one in steps:
        sessions = one.sessions()
        assert len(sessions) == one.nodes
        for session in sessions:
            until(lambda path=session: event in events(path), f"{one.kind}: {event}")  # type: ignore[misc]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_row_01_agents_die_under_running_steps(two: Any, all_kinds: Any, how: signal.Signals) -> None:
    """Every step goes on and is adopted, its client waits for it, what it prints then arrives."""
    steps = all_kinds()
    before = [(one.tasks(), one.supervisors(), extern_of(one)) for one in steps]
    told = two.ok("squeue", "-h", "-o", "%i %T %N %r"), two.ok("squeue", "-hs", "-o", "%i %j %N")
    kill_agents(two, how)
    assert all(one.client_alive() for one in steps)
    start_agents(two)
    until(lambda: set(two.ok("sinfo", "-h", "-N", "-o", "%t").split()) == {"mix"}, "the nodes are back")
    assert (two.ok("squeue", "-h", "-o", "%i %T %N %r"), two.ok("squeue", "-hs", "-o", "%i %j %N")) == told
    assert [(one.tasks(), one.supervisors(), extern_of(one)) for one in steps] == before
    for one in steps:
        assert all("Signalled" not in events(path) for path in one.sessions())
        assert one.client_alive()
        one.open()
        assert one.status() == 5, one.said()
        assert [f"through-{rank}" in one.said() for rank in range(one.nodes)] == [True] * one.nodes
        assert one.history() == ("FAILED", "5:0")
        one.job_goes_on()
    over(two, steps)


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        ("exit 7", 7, ("FAILED", "7:0")),
        ("kill -9 $$", 137, ("FAILED", "0:9")),
        ("true", 0, ("COMPLETED", "0:0")),
    ],
)
def test_row_02_steps_end_while_the_agents_are_away(
    two: Any, all_kinds: Any, last: str, code: int, told: tuple[str, str]
) -> None:
    """Exit, signal and last words reach the client and the history after the restart, once."""
    steps = all_kinds(last=last)
    kill_agents(two)
    for one in steps:
        one.open()
    wait_for_events(steps, "ExitObserved")
    assert all(one.client_alive() for one in steps)
    start_agents(two)
    for one in steps:
        assert one.status() == code, (one.kind, one.said())
        assert "through-0" in one.said()
        assert one.history() == told
        one.job_goes_on()
    over(two, steps)


@pytest.mark.parametrize(("kind", "agent"), [("alloc", AGENTS[0]), ("alloc", AGENTS[1]), ("pty", AGENTS[0])])
def test_row_04_the_agent_dies_between_start_and_answer(two: Any, step: Make, kind: str, agent: str) -> None:
    """The step is found alive and is the launch's success: each task runs once, the client never knows."""
    one = step(two, kind).prepare(*(("-w", "node1") if kind == "pty" else ()))
    two.kill(agent)
    two.start(agent, wait=True, faults="crash_after:started")
    one.begin()
    until(lambda: not two.running(agent), "the agent is dead")
    until(lambda: len(one.tasks()) == one.nodes, "user code runs")
    two.start(agent, wait=True)
    one.runs()
    one.open()
    assert one.status() == 5, one.said()
    assert one.history() == ("FAILED", "5:0")
    over(two, [one])


def test_row_07_the_supervisors_of_steps_die(two: Any, all_kinds: Any) -> None:
    """Its tasks are killed through their groups, its client ends with 137, the job goes on."""
    steps = all_kinds(before=DAEMON)
    for one in steps:
        os.kill(one.supervisors()[0], signal.SIGKILL)
    lost(steps)
    over(two, steps)


def lost(steps: list[Step]) -> None:
    """13.7 for numbered steps."""
    for one in steps:
        assert one.status() == 137, (one.kind, one.said())
        for pid in one.tasks().values():
            until(lambda pid=pid: not alive(pid), f"{one.kind}: its tasks are killed")  # type: ignore[misc]
        assert one.history() == ("FAILED", "0:9")
        one.job_goes_on()


@pytest.mark.parametrize("point", ["crash_after:ExitObserved", "crash_after:push", "crash_after:CleanupDone"])
@pytest.mark.parametrize("kind", ["alloc", "pty"])
def test_row_08_the_supervisor_dies_after_the_exit_was_recorded(
    two: Any, step: Make, point: str, kind: str
) -> None:
    """The exit is told from the journal, to the history and to the client."""
    one = step(two, kind, before=DAEMON).prepare()
    restart_agents(two, point)
    one.begin().runs().open()
    assert one.status() == 5, one.said()
    assert one.history() == ("FAILED", "5:0")
    one.job_goes_on()
    over(two, [one])


def test_row_09_supervisors_and_agents_die_together(two: Any, all_kinds: Any) -> None:
    """The tasks go on unwatched until the agents are back; then as row 7.

    A terminal ends with the supervisor that holds it and hangs up its task, which here does not care.
    """
    steps = all_kinds(before="trap '' HUP")
    kill_agents(two)
    for one in steps:
        os.kill(one.supervisors()[0], signal.SIGKILL)
    assert all(alive(pid) for one in steps for pid in one.tasks().values())
    assert all(one.client_alive() for one in steps)
    start_agents(two)
    lost(steps)
    over(two, steps)


def test_row_11_tasks_exit_and_children_stay(two: Any, all_kinds: Any) -> None:
    """The exit is recorded at once, daemons of the step are killed with it; the job's others are not."""
    note = two.work / f"daemons-{os.urandom(4).hex()}"
    note.touch()
    note.chmod(0o666)
    steps = all_kinds(before=f"setsid sh -c 'echo $$ >> {note}; exec sleep 600' & true")
    until(lambda: len(note.read_text().split()) == 6, "the daemons are there")
    daemons = [int(word) for word in note.read_text().split()]
    for one in steps:
        one.open()
        assert one.status() == 5
        one.job_goes_on()
    for pid in daemons:
        until(lambda pid=pid: not alive(pid), "daemons are killed")  # type: ignore[misc]
    over(two, steps)


def test_row_13_pids_of_supervisors_were_used_again(two: Any, all_kinds: Any) -> None:
    """The number is a stranger's now: he gets no signal, the step counts as lost."""
    steps = all_kinds()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            kill_agents(two)
            for one in steps:
                os.kill(one.supervisors()[0], signal.SIGKILL)
                edit_descriptor(one.sessions()[0], lambda d: d.update(stepd_pid=stranger.pid))
                if not IS_ROOT:
                    # The kernel gives a number to nobody else while a session that has it lives, and without
                    # groups the session is all that the tasks are known by.
                    os.kill(one.tasks()[0], signal.SIGKILL)
            start_agents(two)
            lost(steps)
            over(two, steps)
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("kind", ["two", "alloc"])
def test_row_30_one_node_of_a_step_comes_back_stale(two: Any, step: Make, kind: str) -> None:
    """The step is ended on its other node too, once; the job and what else runs in it go on."""
    one = step(two, kind).prepare().begin().runs()
    first = one.sessions()[0]
    (pid,) = one.supervisors()[1:]
    two.kill(AGENTS[1])
    os.kill(pid, signal.SIGKILL)
    two.start(AGENTS[1], wait=True)
    lost([one])
    assert not first.exists() or "ExitObserved" in events(first)
    over(two, [one])


def test_row_07_the_supervisor_of_a_terminals_own_job_dies(two: Any, step: Make) -> None:
    """`srun --pty` with a job of its own: the allocation ends, as if its shell had been killed."""
    one = step(two, "pty")
    one.client = Client(two, "srun", "-J", "own", "--pty", "sh", "-c", one.body, terminal=True)
    until(lambda: len(one.tasks()) == 1, "it runs")
    one.job = until(
        lambda: two.ok("squeue", "-h", "-t", "R", "-n", "own", "-o", "%i").strip(), "it is listed"
    )
    os.kill(one.supervisors()[0], signal.SIGKILL)
    assert one.status() == 137, one.said()
    until(lambda: not two.queued(), "the queue is empty")
    assert [row for row in two.rows() if row[0] == one.job] == [(one.job, "FAILED", "0:9")]
    assert not any(alive(pid) for pid in one.tasks().values())
