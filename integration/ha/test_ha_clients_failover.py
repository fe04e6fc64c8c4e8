"""Commands while the leading controller dies, freezes or hands over."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from matrix_kit import Held
from testkit.relay import Relay


def submitted(cluster: Any) -> list[str]:
    """Ids of all jobs that any controller knows."""
    out: str = cluster.ok("squeue", "-h", "-a", "-t", "all", "-o", "%i")
    return out.split()


@pytest.mark.parametrize(
    "fault",
    ["crash_before:Submit", "crash_after:Submit", "stop_at:Submit"],
    ids=["before the commit", "before the reply", "frozen before the commit"],
)
def test_a_submission_through_a_failover_is_one_job(ha: Any, fault: str) -> None:
    cluster = ha()
    armed = cluster.armed_leader(fault)
    done, secs = cluster.timed("sbatch", "--parsable", "-o", "/dev/null", "--wrap", cluster.body("exit 3"))
    assert done.returncode == 0, done.stderr
    # An election takes up to two seconds here, three on a slow machine.
    assert secs < 12
    if fault.startswith("stop"):
        assert cluster.frozen(armed)
        cluster.thaw(armed)
    else:
        assert not cluster.running(armed)
        cluster.start(armed, wait=True)
    job = done.stdout.strip()
    cluster.until(lambda: cluster.state_or_nothing(job) == "FAILED", "it has ended")
    assert submitted(cluster) == [job]
    cluster.settle()
    assert cluster.faults({job: 3}, set()) == []


def test_a_requeue_through_a_failover_happens_once(ha: Any) -> None:
    cluster = ha()
    held = Held(cluster).runs()
    armed = cluster.armed_leader("crash_after:Requeue")
    done, _ = cluster.timed("scontrol", "requeue", held.job)
    assert done.returncode == 0, done.stderr
    assert not cluster.running(armed)
    held.runs(2, 180)  # Slurm's two minutes of a requeued job's patience are part of it
    held.ends_well(["0", "1"])


def test_after_the_reply_nothing_is_lost(ha: Any) -> None:
    """The leader dies as soon as the client has its answer."""
    cluster = ha()
    leader = cluster.leader()
    job = cluster.submit("exit 4")
    cluster.kill(leader)
    assert job in submitted(cluster)
    cluster.until(lambda: cluster.state_or_nothing(job) == "FAILED", "it has ended")
    cluster.settle()
    assert cluster.faults({job: 4}, set()) == []


@pytest.mark.parametrize("fault", ["crash_before:StepCreate", "crash_after:StepCreate"])
def test_a_step_through_a_failover_runs_once(ha: Any, fault: str) -> None:
    cluster = ha()
    held = Held(cluster, "-n2").runs()
    armed = cluster.armed_leader(fault)
    note = f"echo $SLURM_STEP_ID >> {cluster.work}/steps; exit 5"
    done, _ = cluster.timed("srun", "--overlap", "--jobid", held.job, "-n1", "sh", "-c", note)
    assert done.returncode == 5, done.stderr
    assert not cluster.running(armed)
    # What the leader died with may be given up; then another step is made, and only that one runs.
    assert len((cluster.work / "steps").read_text().splitlines()) == 1
    cluster.start(armed, wait=True)
    held.ends_well(["0"])


def test_an_allocation_given_back_through_a_failover_ends_once(ha: Any) -> None:
    cluster = ha()
    armed = cluster.armed_leader("crash_after:AllocComplete")
    done, _ = cluster.timed("salloc", "-n1", "sh", "-c", "echo $SLURM_JOB_ID; exit 6")
    assert done.returncode == 6, done.stderr
    assert "Unable to clean up" not in done.stderr
    cluster.until(lambda: not cluster.running(armed), "the leader died")
    job = done.stdout.strip()
    words = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode")
    cluster.until(lambda: cluster.run(*words).stdout == "FAILED|6:0\n", "it has ended with its code")
    cluster.settle()
    assert cluster.left() == []


def test_how_soon_commands_go_elsewhere(ha: Any) -> None:
    """The first controller of the list dies, not leading and then leading."""
    cluster = ha()

    def quickest() -> float:
        tries = [cluster.timed("squeue", "-h") for _ in range(3)]
        assert [done.returncode for done, _ in tries] == [0, 0, 0], tries
        return float(min(secs for _, secs in tries))

    first = cluster.controllers[0]
    cluster.lead(cluster.controllers[1])
    usual = quickest()
    cluster.kill(first)
    assert quickest() < usual + 0.5
    cluster.start(first, wait=True)
    cluster.lead(first)
    cluster.kill(first)
    done, secs = cluster.timed("squeue", "-h")
    assert done.returncode == 0, done.stderr
    # An election takes up to two seconds, or two of them, and the machine may be busy.
    assert secs < usual + 8


@pytest.fixture
def relays() -> Iterator[list[Relay]]:
    """Those that a test makes; all are ended."""
    made: list[Relay] = []
    yield made
    for one in made:
        one.stop()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_clients_that_wait_go_on(ha: Any, relays: list[Relay], how: str) -> None:
    """srun, salloc and sbatch --wait, each knowing only a way to the leader, which they lose."""
    cluster = ha()
    leader = cluster.leader()

    def begin(*argv: str) -> Any:
        relays.append(Relay(cluster.address(leader)))
        return cluster.begin(*argv, SPUR_CONTROLLER_ADDR=relays[-1].address)

    gate = cluster.work / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    inside = f"{wait}; unset SPUR_CONTROLLER_ADDR; srun sh -c 'exit 6'"  # a new client must know who lives
    clients = {
        5: begin("srun", "-n2", "sh", "-c", f"{wait}; echo rank $SLURM_PROCID; exit 5"),
        6: begin("salloc", "-n1", "sh", "-c", inside),
        7: begin("sbatch", "--wait", "-o", "/dev/null", "--wrap", f"{wait}; exit 7"),
    }
    cluster.until(lambda: cluster.ok("squeue", "-h", "-o", "%t").split() == ["R"] * 3, "all run")
    cluster.until(lambda: all(one.learned.is_set() for one in relays), "all know who else there is")
    (cluster.kill if how == "killed" else cluster.freeze)(leader)
    cluster.leader(other_than=leader)
    gate.touch()
    for code, client in clients.items():
        out, err = client.communicate(timeout=60)
        assert client.returncode == code, (client.args, out, err)
        if code == 5:
            assert sorted(out.split("\n")[:-1]) == ["rank 0", "rank 1"]
    if how == "frozen":
        cluster.thaw(leader)
    cluster.settle()
    assert cluster.left() == []


def test_every_command_finds_the_group_through_any_member(ha: Any) -> None:
    """With one controller dead and through each of the others alone."""
    cluster = ha()
    held = Held(cluster).runs()
    cluster.kill(cluster.followers()[0])
    for name in [*cluster.followers(), cluster.leader()]:
        env = cluster.only(name)
        for words in (
            ("squeue", "-h", "-o", "%i"),
            ("sinfo", "-h"),
            ("sacct", "-n", "-j", held.job),
            ("scontrol", "show", "job", held.job),
            ("scontrol", "update", f"JobId={held.job}", f"Comment={name}"),
            ("srun", "--overlap", "--jobid", held.job, "true"),
        ):
            done, _ = cluster.timed(*words, **env)
            assert done.returncode == 0, (name, words, done.stderr)
    job = cluster.submit("sleep 60")
    done, _ = cluster.timed("scancel", job, **cluster.only(cluster.followers()[0]))
    assert done.returncode == 0
    held.ends_well(["0"])


def test_a_frozen_controller_costs_a_second_and_no_majority_is_told(ha: Any) -> None:
    cluster = ha()
    first = cluster.controllers[0]
    cluster.freeze(first)
    try:
        cluster.leader(other_than=first)
        done, secs = cluster.timed("squeue", "-h")
        assert done.returncode == 0, done.stderr
        assert secs < 3
        second = cluster.followers()[-1]
        second = second if second != first else cluster.followers()[0]
        cluster.freeze(second)
        try:
            done, secs = cluster.timed("squeue", "-h", SPUR_RETRY_SECS="1")
            assert done.returncode == 1
            assert secs < 20
            done, _ = cluster.timed("sinfo", "-h", SPUR_STALE_OK="1")
            assert done.returncode == 0, done.stderr
            assert "node[1-3]" in done.stdout
            assert "has not heard of a leader for" in done.stderr
            pinged = cluster.run("scontrol", "ping")
            assert pinged.returncode == 0
            assert pinged.stdout.count("is DOWN") == 2
            assert pinged.stdout.count("is UP") == 1
        finally:
            cluster.thaw(second)
    finally:
        cluster.thaw(first)
    cluster.settle()


def test_ping_takeover_and_sdiag(ha: Any) -> None:
    cluster = ha()
    seen = set()
    for number in (1, 2, 3, 1):
        assert cluster.run("scontrol", "takeover", str(number)).returncode == 0
        name = cluster.controllers[number - 1]
        assert cluster.leader() == name
        lines = cluster.ok("scontrol", "ping").splitlines()
        assert [line.split("(")[1].split(")")[0] for line in lines[:3]].index("primary") == number - 1
        assert all(line.endswith(" is UP") for line in lines[:3])
        assert lines[3].startswith(f"Controller {number} at {cluster.address(name)} leads, term ")
        told = cluster.ok("sdiag")
        assert f"\tLeader:       {number} at {cluster.address(name)}\n" in told
        seen.add(next(line for line in told.splitlines() if "Term:" in line))
    assert len(seen) >= 3
    before = cluster.leader()
    assert cluster.run("scontrol", "takeover").returncode == 0
    assert cluster.leader(other_than=before)
    assert cluster.run("scontrol", "takeover", "9").returncode == 1
    for name in cluster.controllers:
        cluster.kill(name)
    pinged = cluster.run("scontrol", "ping")
    assert pinged.returncode == 1
    assert pinged.stdout.count("is DOWN") == 3


def test_a_planned_stop_hands_over_and_no_command_notices(ha: Any) -> None:
    """SIGTERM to each leader in turn, while commands are called one after the other."""
    import signal

    cluster = ha()
    jobs: list[str] = []
    for _ in range(3):
        leader = cluster.leader()
        with contextlib.suppress(ProcessLookupError):
            import os

            os.kill(cluster.pid(leader), signal.SIGTERM)
        for _ in range(4):
            job = cluster.submit("exit 2")
            assert job
            jobs.append(job)
        cluster.until(lambda leader=leader: not cluster.running(leader), "it has stopped", 10)
        cluster.start(leader, wait=True)
    cluster.settle()
    assert cluster.faults(dict.fromkeys(jobs, 2), set()) == []
