"""Seeded rounds of V2 and V20: jobs of several kinds, and a leader that dies at a point drawn by lot.

SPUR_HA_ROUNDS and SPUR_HA_SEED choose how many and which; the seed is in every failure.
"""

import contextlib
import os
import random
import signal

import pytest
from testkit.crash_cluster import supervisor_in
from testkit.ha_cluster import HaCluster

ROUNDS = int(os.environ.get("SPUR_HA_ROUNDS", "4"))
SEED = int(os.environ.get("SPUR_HA_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
POINTS = [
    "Submit",
    "DispatchBegin",
    "dispatch_begun",
    "launch_sent",
    "launches_answered",
    "DispatchCommit",
    "Cancel",
    "Requeue",
    "fence_begun",
    "kill_sent",
    "FenceBegin",
    "FenceConfirm",
    "NodeComplete",
    "exit_told",
]
#: A point that is only passed, not entered.
ONLY_AFTER = {"dispatch_begun", "launch_sent", "launches_answered", "fence_begun", "kill_sent", "exit_told"}


def fault(chance: random.Random) -> str:
    """KIND:POINT."""
    point = chance.choice(POINTS)
    kinds = ["crash_after"] if point in ONLY_AFTER else ["crash_before", "crash_after", "stop_at"]
    return f"{chance.choice(kinds)}:{point}"


def kill_supervisors(cluster: HaCluster, job: str) -> None:
    """All of the job's, on every node."""
    for path in cluster.sessions():
        if path.name.startswith(f"{job}.") and (pid := supervisor_in(path)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_round(cluster: HaCluster, number: int) -> None:
    chance = random.Random(SEED * 1000 + number)
    armed_with = fault(chance)
    note = f"seed {SEED}, round {number}, {armed_with}"
    gate = cluster.work / f"gate-round-{SEED}-{number}"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; "
    armed = cluster.armed_leader(armed_with)
    codes: dict[str, int] = {}
    cancelled: set[str] = set()

    def submit(last: str, *options: str) -> str:
        job = cluster.submit(last, *options)
        assert job, note
        return job

    codes[submit("exit 3", "-N2")] = 3
    long = submit(wait + "exit 4", *chance.choice([(), ("-N2",)]))
    codes[long] = 4
    cluster.until(lambda: cluster.state_or_nothing(long) == "RUNNING", f"it runs; {note}")
    what = chance.choice(["cancel", "requeue", "supervisors", "nothing"])
    if what == "cancel":
        assert cluster.run("scancel", long).returncode == 0, note
        del codes[long]
        cancelled.add(long)
    elif what == "requeue":
        assert cluster.run("scontrol", "requeue", long).returncode == 0, note
    elif what == "supervisors":
        kill_supervisors(cluster, long)
    codes[submit("exit 5")] = 5
    gate.touch()
    if "stop_at" in armed_with:
        with contextlib.suppress(AssertionError):
            cluster.until(lambda: cluster.frozen(armed), "it is frozen", 3)
        if cluster.frozen(armed):
            cluster.leader(other_than=armed)
            chance.choice([cluster.thaw, cluster.kill])(armed)
        else:
            # It would freeze in some later round, beside one that is dead there.
            cluster.kill(armed)
    else:
        with contextlib.suppress(AssertionError):
            cluster.until(lambda: not cluster.running(armed), "it is dead", 3)
        if cluster.running(armed):
            # The point was not on the way of these jobs: any other instant will do.
            cluster.kill(armed)
    cluster.leader(other_than="" if cluster.running(armed) else armed)
    cluster.start(armed, wait=True)
    try:
        cluster.settle(180)
        assert cluster.faults(codes, cancelled) == []
    except AssertionError as error:
        raise AssertionError(f"{note}, {what}: {error}") from None
    restarts = {n for job, n in cluster.noted() if job == long}
    assert len(restarts) <= 2, f"{note}, {what}: runs {restarts} of job {long}"
