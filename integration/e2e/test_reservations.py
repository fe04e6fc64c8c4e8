"""Reservations and licences on a real cluster, through the command line only."""

import getpass
import os
import pwd
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ME = getpass.getuser()
QUIET = "sleep 600"


@pytest.fixture
def cluster(shared: Any) -> Iterator[Any]:
    """The shared cluster, left without jobs and reservations."""
    yield shared
    shared.run("scancel", "-u", ME)
    shared.until(lambda: not shared.ok("squeue", "-h").strip(), "no jobs")
    for line in shared.ok("scontrol", "-o", "show", "reservation").splitlines():
        if line.startswith("ReservationName="):
            shared.ok("scontrol", "delete", line.split()[0])
    shared.until(shared.idle, "idle nodes")


def create(cluster: Any, name: str, *words: str) -> str:
    return str(cluster.ok("scontrol", "create", f"ReservationName={name}", f"Users={ME}", *words))


def reason(cluster: Any, job: str) -> str:
    return str(cluster.ok("squeue", "-h", "-o", "%r", "-j", job).strip())


def column(cluster: Any, job: str, letter: str) -> str:
    return str(cluster.ok("squeue", "-h", "-o", letter, "-j", job).strip())


def waits_for(cluster: Any, job: str, text: str) -> None:
    cluster.until(lambda: text in reason(cluster, job), f"{job} waits for {text}: {reason(cluster, job)}")


def test_maintenance_keeps_others_off_and_lets_its_own_in(cluster: Any) -> None:
    out = create(cluster, "maint", "StartTime=now", "Duration=60", "Nodes=ALL", "Flags=MAINT")
    assert out == "Reservation created: maint\n"
    assert cluster.ok("sinfo", "-h", "-o", "%t %D").strip() == "maint 2"
    outside = cluster.sbatch("--wrap", "true")
    waits_for(cluster, outside, "ReqNodeNotAvail, Reserved for maintenance")
    inside = cluster.sbatch(
        "--reservation=maint", "-o", "in.out", "--wrap", "env | grep ^SLURM_JOB_RESERVATION"
    )
    cluster.wait(inside, "COMPLETED")
    assert (cluster.work / "in.out").read_text() == "SLURM_JOB_RESERVATION=maint\n"
    assert cluster.history(inside, "Reservation,ReqReservation", "-X") == [["maint", "maint"]]
    assert cluster.queue_state(outside) == "PD"
    shown = cluster.ok("scontrol", "show", "job", outside)
    assert "Reason=ReqNodeNotAvail,_Reserved_for_maintenance" in shown
    cluster.ok("scontrol", "delete", "reservation", "maint")
    cluster.wait(outside, "COMPLETED")


def test_what_would_run_into_one_waits_and_what_ends_before_starts(cluster: Any) -> None:
    create(cluster, "soon", "StartTime=now+10minutes", "Duration=60", "Nodes=ALL")
    long = cluster.sbatch("-t", "60", "--wrap", "true")
    waits_for(cluster, long, "ReqNodeNotAvail")
    short = cluster.sbatch("-t", "5", "--wrap", "true")
    cluster.wait(short, "COMPLETED")
    assert cluster.queue_state(long) == "PD"
    endless = cluster.sbatch("-t", "UNLIMITED", "--wrap", "true")
    waits_for(cluster, endless, "ReqNodeNotAvail")
    # Its own job waits for it to begin.
    own = cluster.sbatch("--reservation=soon", "-t", "1", "--wrap", "true")
    waits_for(cluster, own, "Reservation")
    cluster.ok("scontrol", "update", "ReservationName=soon", "StartTime=now")
    cluster.wait(own, "COMPLETED")


def test_one_node_of_two(cluster: Any) -> None:
    create(cluster, "one", "StartTime=now", "Duration=60", "NodeCnt=1")
    kept = cluster.ok("sinfo", "-h", "-t", "resv", "-o", "%N").strip()
    assert kept in ("node1", "node2")
    jobs = [cluster.sbatch("--exclusive", "--wrap", QUIET) for _ in range(2)]
    cluster.wait(jobs[0], "RUNNING")
    assert column(cluster, jobs[0], "%N") != kept
    waits_for(cluster, jobs[1], "Resources")
    own = cluster.sbatch("--reservation=one", "--wrap", QUIET)
    cluster.wait(own, "RUNNING")
    assert (column(cluster, own, "%N"), column(cluster, own, "%v")) == (kept, "one")
    refused = cluster.run("scontrol", "delete", "ReservationName=one")
    assert refused.returncode == 1
    assert refused.stderr == "delete_reservation reservationname=one: Requested reservation is in use\n"


def test_a_magnetic_one_draws_its_users_jobs(cluster: Any) -> None:
    create(cluster, "pull", "StartTime=now", "Duration=60", "Nodes=node2", "Flags=MAGNETIC")
    assert "Flags=SPEC_NODES,MAGNETIC" in cluster.ok("scontrol", "show", "reservation", "pull")
    text = "echo in=$SLURM_JOB_RESERVATION; sleep 600"
    first = cluster.sbatch("-t", "30", "--exclusive", "-o", "drawn.out", "--wrap", text)
    cluster.wait(first, "RUNNING")
    assert (column(cluster, first, "%N"), column(cluster, first, "%v")) == ("node2", "pull")
    path = cluster.work / "drawn.out"
    cluster.until(lambda: path.exists() and path.read_text() == "in=pull\n", "its output")
    # Where it has no room they run as others do.
    second = cluster.sbatch("-t", "30", "--exclusive", "--wrap", QUIET)
    cluster.wait(second, "RUNNING")
    assert (column(cluster, second, "%N"), column(cluster, second, "%v")) == ("node1", "(null)")
    third = cluster.sbatch("-t", "30", "--exclusive", "--wrap", QUIET)
    waits_for(cluster, third, "Resources")
    cluster.ok("scancel", first)
    cluster.wait(third, "RUNNING")
    assert (column(cluster, third, "%N"), column(cluster, third, "%v")) == ("node2", "pull")
    assert cluster.history(third, "Reservation,ReqReservation", "-X") == [["pull", ""]]
    # Nobody else's.
    cluster.ok("scancel", third)
    cluster.until(lambda: not column(cluster, third, "%t"), "it is gone")
    cluster.ok("scontrol", "update", "ReservationName=pull", "Users=nobody")
    fourth = cluster.sbatch("-t", "30", "--exclusive", "--wrap", QUIET)
    waits_for(cluster, fourth, "Resources")


def test_deleting_holds_who_waits(cluster: Any) -> None:
    create(cluster, "later", "StartTime=now+1day", "Duration=60", "Nodes=node1")
    job = cluster.sbatch("--reservation=later", "--wrap", "true")
    waits_for(cluster, job, "Reservation")
    cluster.ok("scontrol", "delete", "ReservationName=later")
    assert reason(cluster, job) == "ReservationDeleted"
    cluster.ok("scontrol", "release", job)
    cluster.wait(job, "COMPLETED")


def test_daily_and_skip(cluster: Any) -> None:
    create(cluster, "daily", "StartTime=now", "Duration=10", "Nodes=node1", "Flags=DAILY")
    shown = cluster.ok("scontrol", "show", "reservation", "daily")
    assert "Flags=DAILY,SPEC_NODES" in shown
    assert "State=ACTIVE" in shown
    assert cluster.ok("scontrol", "update", "ReservationName=daily", "skip") == "Reservation updated.\n"
    assert "State=INACTIVE" in cluster.ok("scontrol", "show", "reservation", "daily")
    table = cluster.ok("sinfo", "-T").splitlines()
    assert table[0].split() == ["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"]
    assert table[1].split()[:2] == ["daily", "INACTIVE"]


MISTAKES = [
    (
        ("sbatch", "--reservation=nope", "--wrap", "true"),
        "sbatch: error: Batch job submission failed: Requested reservation is invalid",
    ),
    (
        ("scontrol", "create", "reservation", "StartTime=now", "Duration=5", f"Users={ME}", "Nodes=nope"),
        "Error creating the reservation: Invalid node name specified",
    ),
    (
        (
            "scontrol",
            "create",
            "reservation",
            "StartTime=now",
            "Duration=5",
            "Users=nobody-such",
            "Nodes=node1",
        ),
        "Error creating the reservation: Invalid user id",
    ),
    (("scontrol", "delete", "ReservationName=nope"), "Requested reservation is invalid"),
    (("scontrol", "update", "ReservationName=nope", "Duration=5"), "Requested reservation is invalid"),
    (("sbatch", "-L", "nope", "--wrap", "true"), "Invalid license specification"),
    (("scontrol", "show", "reservation", "nope"), "Reservation nope not found"),
]


@pytest.mark.parametrize(("argv", "text"), MISTAKES, ids=[" ".join(row[0][:3]) for row in MISTAKES])
def test_mistakes(shared: Any, argv: tuple[str, ...], text: str) -> None:
    done = shared.run(*argv)
    assert text in done.stderr
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_others_are_kept_out(cluster: Any) -> None:
    name = next(user.pw_name for user in pwd.getpwall() if user.pw_uid not in (0, os.geteuid()))
    token = {"SPUR_AUTH_TOKEN": cluster.ok("spur", "token", "user", "--user", name).strip()}
    create(cluster, "mine", "StartTime=now", "Duration=60", "Nodes=node1")
    done = cluster.run("sbatch", "--reservation=mine", "--wrap", "true", env=token)
    assert "Access denied to requested reservation" in done.stderr
    done = cluster.run("scontrol", "delete", "ReservationName=mine", env=token)
    assert done.stderr == "delete_reservation reservationname=mine: Access/permission denied\n"
    done = cluster.run(
        "scontrol", "create", "res", "StartTime=now", "Duration=5", f"Users={name}", "Nodes=node2", env=token
    )
    assert done.stderr == "Error creating the reservation: Access/permission denied\n"
    assert "ReservationName=mine" in cluster.ok("scontrol", "show", "reservation", env=token)


def test_licences(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(1, "--cpus", "8")
    try:
        conf = cluster.folder / "spur.conf"
        conf.write_text(conf.read_text() + "\n[licenses]\nmatlab = 2\nplot = 1\n")
        cluster.restart("spurctld-1", "--kill")
        cluster.until(cluster.idle, "the node is back")
        first = cluster.sbatch(
            "-L", "matlab:1", "-o", "l.out", "--wrap", "env | grep ^SLURM_JOB_LIC; sleep 600"
        )
        both = cluster.sbatch("-L", "matlab:2", "--wrap", QUIET)
        cluster.wait(first, "RUNNING")
        waits_for(cluster, both, "Licenses")
        either = cluster.sbatch("-L", "matlab:2|plot", "--wrap", QUIET)
        cluster.wait(either, "RUNNING")
        assert column(cluster, either, "%W") == "plot:1"
        assert cluster.ok("scontrol", "-o", "show", "licenses") == (
            "LicenseName=matlab Total=2 Used=1 Free=1 Reserved=0 Remote=no\n"
            "LicenseName=plot Total=1 Used=1 Free=0 Reserved=0 Remote=no\n"
        )
        refused = cluster.run("sbatch", "-L", "matlab:3", "--wrap", "true")
        assert "Invalid license specification" in refused.stderr
        path = cluster.work / "l.out"
        cluster.until(
            lambda: path.exists() and path.read_text() == "SLURM_JOB_LICENSES=matlab:1\n", "its output"
        )
        cluster.ok("scancel", first)
        cluster.wait(both, "RUNNING")
        assert cluster.history(both, "Licenses", "-X") == [["matlab:2"]]
        assert "Licenses=matlab:2 LicensesAlloc=matlab:2 " in cluster.ok("scontrol", "show", "job", both)
    finally:
        cluster.down()
