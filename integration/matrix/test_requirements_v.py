"""Requirements V1 to V25 that need daemons; the others are `test_vNN_...` in the packages' own tests.

`docs/failure-matrix.md` says which test belongs to which requirement and against what fault it was tried.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from matrix_kit import AGAIN, BATCH, NOBODY_COMES, Held, Wire, events
from pmi_kit import Exchange
from step_kit import AGENTS, Step, allocate, extern_of, kill_agents, start_agents
from testkit.crash_cluster import alive, supervisor_in, until

from spur_core.linux import procfs
from spur_proto import controller_pb2 as pb

pytestmark = pytest.mark.node
Make = Callable[..., Step]
#: The term of a controller that has not been restarted.
TERM = 1
#: Between TERM and KILL of the graceful ends that are held back, seconds.
GRACE = 3


def running(pids: list[int]) -> bool:
    """Whether all of them are there and none is stopped."""
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids]
    return not {"Z", "X", "T", "t"} & set(states)


@contextlib.contextmanager
def refused(match: str) -> Any:
    """The call must be answered with an error."""
    with pytest.raises(grpc.RpcError, match=match):
        yield


def test_v01_what_was_meant_for_attempt_n_does_not_touch_attempt_n_plus_1(crash: Any, step: Make) -> None:
    """Every kind of order for attempt 1, delivered while attempt 2 has a step of the same number.

    Among them what releases a PMI exchange, which is the end of its step (docs/decisions/0020-pmi.md).
    """
    # The ended steps of attempt 1 are still there while the orders come.
    cluster = crash(nodes=1, waits={"spur_agent.keeper.ENDED_KEPT_SECS": 6.0})
    deaf = "trap '' TERM"
    one = step(cluster, "one", before=deaf, script=deaf).begin().runs()
    held, job = one.held, int(one.job)
    assert held is not None
    wire = Wire(cluster)
    first = Exchange(cluster, one.job, "first")
    # A graceful end of attempt 1, whose delayed kill falls due when attempt 2 runs.
    assert wire.cancel((job, 1, None), TERM, grace_secs=GRACE, reason="cancelled").active
    due = time.monotonic() + GRACE
    one.forget()
    held.again().runs(2)
    one.runs()
    assert first.client.code()
    second = Exchange(cluster, one.job, "second")
    shell, tasks = held.shell(), list(one.tasks().values())
    sessions = [*one.sessions(2), held.session(2), held.session(2, step=1)]
    everything = [shell, *tasks, *filter(None, map(supervisor_in, sessions))]
    assert len(everything) == 5
    used = cluster.ok("sinfo", "-h", "-o", "%C")

    for part in (None, 0, 1, BATCH):
        rid = (job, 1, part)
        # An explicit end, a signal that nobody survives, a graceful end, a reclaim after a heartbeat.
        assert not wire.cancel(rid, TERM, grace_secs=0, reason="cancelled").active
        assert not wire.cancel(rid, TERM, signal=signal.SIGKILL).active
        assert not wire.cancel(rid, TERM, grace_secs=1, reason="cancelled").active
        assert not wire.cancel(rid, TERM, grace_secs=0, reason="superseded").active
        with refused(rf"{job}\.2"):
            wire.suspend(rid, TERM)
        # Attempt 0 means nothing, never "the present one".
        with refused("attempt"):
            wire.cancel((job, 0, part), TERM, grace_secs=0, reason="cancelled")
        with refused("attempt"):
            wire.suspend((job, 0, part), TERM)
    # A heartbeat that was held back makes the controller itself reclaim what it names; a completion too late.
    wire.beat("node1", procfs.boot_id(), [(job, 1, BATCH), (job, 1, 0), (job, 1, 1)])
    until(lambda: f"obsolete step={job}.1." in cluster.log("spurctld-1").read_text(), "it reclaims")
    for part in (BATCH, 0, 1):
        assert wire.report("node1", (job, 1, part), 9) == pb.REPORT_VERDICT_FINAL
    # Only time can bring a delayed kill: of the first end and of the late ones.
    due = max(due, time.monotonic() + 1)
    until(lambda: time.monotonic() > due + 0.5, "the delayed kills were due", GRACE + 5)

    assert running(everything)
    assert (held.shell(), list(one.tasks().values())) == (shell, tasks)
    for session in sessions:
        assert not {"Signalled", "TeardownRequested"} & set(events(session))
    assert held.state() == "RUNNING"
    assert cluster.ok("sinfo", "-h", "-o", "%C") == used
    second.open()
    assert second.client.code() == 0, second.client.text()
    one.open()
    assert one.status() == 5, one.said()
    held.ends_well(["0", "1"])


def test_v02_the_controller_dies_between_the_agents_answers_and_the_commit(crash: Any) -> None:
    """The next one asks who holds the attempt: it is not begun again, here or elsewhere."""
    cluster = crash(nodes=2)
    cluster.kill("spurctld-1")
    cluster.start("spurctld-1", wait=True, faults="crash_after:launches_answered")
    until(lambda: cluster.ok("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * 2, "the nodes are there")
    held = Held(cluster)
    until(lambda: not cluster.running("spurctld-1"), "the controller is dead")
    until(lambda: cluster.runs_of(held.job) == 1, "user code runs")
    cluster.start("spurctld-1", wait=True)
    held.runs()
    held.ends_well(["0"])


def test_v02_the_controller_dies_before_a_launch_leaves(crash: Any) -> None:
    """The attempt was recorded and nobody has it: its number is spent, the job runs once."""
    cluster = crash(nodes=2, settings=AGAIN)
    cluster.kill("spurctld-1")
    cluster.start("spurctld-1", wait=True, faults="crash_after:dispatch_begun")
    until(lambda: cluster.ok("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * 2, "the nodes are there")
    held = Held(cluster)
    until(lambda: not cluster.running("spurctld-1"), "the controller is dead")
    assert cluster.runs_of(held.job) == 0
    cluster.start("spurctld-1", wait=True)
    held.runs()
    assert held.session(2).exists()
    held.ends_well()
    assert cluster.runs_of(held.job) == 1


def test_v03_batch_extern_and_numbered_steps_live_and_die_apart(crash: Any, step: Make) -> None:
    """Signalled, ended, lost and recovered one by one; no other step is affected."""
    cluster = crash(nodes=1, waits=NOBODY_COMES)
    held = Held(cluster, "-n4").runs()
    other = allocate(cluster, 1, "-n4")
    marks = cluster.work / "marks"
    marks.touch()
    marks.chmod(0o666)
    note = f"trap 'echo $SLURM_JOB_ID.$SLURM_STEP_ID >> {marks}' USR1"
    steps: dict[str, Step] = {}
    for job in (held.job, other):
        for number in (0, 1):
            one = step(cluster, "more", before=note, job=job, number=number).begin().runs()
            steps[one.id] = one
    a0, a1, b0, b1 = (steps[name] for name in (f"{held.job}.0", f"{held.job}.1", f"{other}.0", f"{other}.1"))
    wire = Wire(cluster)

    def untouched(*ones: Step) -> None:
        for one in ones:
            assert one.client_alive(), one.said()
            assert running(list(one.tasks().values()))
            assert not {"Signalled", "TeardownRequested"} & set(events(one.sessions()[0]))
        assert running([held.shell()])
        assert not {"Signalled", "TeardownRequested"} & set(events(held.session()))

    # Signalled.
    wire.cancel((int(held.job), 1, 0), TERM, signal=signal.SIGUSR1)
    until(lambda: marks.read_text() == f"{a0.id}\n", "step 0 has got it")
    untouched(a1, b0, b1)
    # Ended.
    wire.cancel((int(held.job), 1, 1), TERM, grace_secs=0, reason="cancelled")
    assert a1.status() == 137, a1.said()
    untouched(b0, b1)
    assert running(list(a0.tasks().values()))
    # Lost.
    os.kill(b0.supervisors()[0], signal.SIGKILL)
    assert b0.status() == 137, b0.said()
    untouched(b1)
    first = extern_of(b1)
    os.kill(first[0], signal.SIGKILL)
    until(lambda: extern_of(b1) != first and all(map(alive, extern_of(b1))), "extern is restored")
    untouched(b1)
    # Recovered.
    kill_agents(cluster)
    start_agents(cluster)
    untouched(b1)
    assert running(list(a0.tasks().values()))
    for one in (a0, b1):
        one.open()
        assert one.status() == 5, one.said()
        assert one.history() == ("FAILED", "5:0")
    assert marks.read_text() == f"{a0.id}\n"
    cluster.ok("scancel", other)
    held.ends_well(["0"])


@pytest.mark.root
def test_v25_supervisors_are_outside_the_agents_group(crash: Any, step: Make) -> None:
    """So no manager that ends the agent's group takes them along; nor are they in the job's."""
    cluster = crash(nodes=1, waits=NOBODY_COMES)
    one = step(cluster, "one").begin().runs()
    assert one.held is not None

    def groups(pid: int) -> set[str]:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        return {path for _, name, path in (line.split(":", 2) for line in lines) if name in ("", "memory")}

    agent = groups(cluster.pid(AGENTS[0]))
    for pid in [*one.supervisors(), *one.supervisors(BATCH)]:
        mine = groups(pid)
        assert not mine & agent
        assert all(path.endswith("/stepd") for path in mine)
    for pid in one.tasks().values():
        assert all(f"/job_{one.job}.1/" in path for path in groups(pid))
    one.open()
    assert one.status() == 5, one.said()
    one.held.ends_well(["0"])
