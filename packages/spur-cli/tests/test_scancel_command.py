"""scancel: what is sent, what is silent, and the exit codes."""

import os

import pytest

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb


def job(job_id, **more):
    base = {"name": "w", "partition": "debug", "uid": os.getuid(), "state": c.JOB_STATE_RUNNING}
    return c.JobInfo(job_id=job_id, **(base | more))


@pytest.fixture
def cancels(peer):
    """Script the answers: job id -> (code, text), all others are done."""

    def serve(refusals=None, jobs=()):
        def answer(request):
            results = []
            for target in request.targets:
                code, text = (refusals or {}).get(target.job_id, ("", ""))
                results.append(pb.TargetResult(target=target, code=code, text=text))
            return pb.CancelJobResponse(results=results)

        peer.answers["CancelJob"] = answer
        peer.answers["GetJobs"] = pb.GetJobsResponse(jobs=jobs)
        return peer

    return serve


def targets(peer):
    return [
        (t.job_id, t.array_tasks, t.step_id if t.HasField("step_id") else None)
        for t in peer.last("CancelJob").targets
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["12"], [(12, "", None)]),
        (["12", "13"], [(12, "", None), (13, "", None)]),
        (["12,13"], [(12, "", None), (13, "", None)]),
        (["12_4"], [(12, "4", None)]),
        (["12_[1-3,5]"], [(12, "1-3,5", None)]),
        (["12_*"], [(12, "*", None)]),
        (["12.0", "13.batch"], [(12, "", 0), (13, "", 0xFFFFFFFB)]),
        (["-Q", "12"], [(12, "", None)]),
    ],
)
def test_success_is_silent(cli, cancels, words, expected):
    peer = cancels()
    assert cli("scancel", *words) == (0, "", "")
    assert targets(peer) == expected
    assert not peer.last("CancelJob").HasField("signal")


@pytest.mark.parametrize(
    ("words", "signal", "batch", "full"),
    [
        (["-s", "USR1"], 10, False, False),
        (["--signal=SIGUSR2", "-b"], 12, True, False),
        (["-s", "2", "-f"], 2, False, True),
        (["-s", "KILL"], None, False, False),
    ],
)
def test_signals(cli, cancels, words, signal, batch, full):
    peer = cancels()
    assert cli("scancel", "7", *words).code == 0
    request = peer.last("CancelJob")
    assert (request.signal if request.HasField("signal") else None) == signal
    assert (request.batch_only, request.full) == (batch, full)


def test_verbose_lines(cli, cancels):
    cancels()
    assert cli("scancel", "-v", "12", "13.0").err == (
        "scancel: Terminating job 12\nscancel: Terminating step 13.0\n"
    )
    assert cli("scancel", "-v", "-s", "TERM", "12").err == "scancel: Signal 15 to job 12\n"


@pytest.mark.parametrize("code", ["no_such_job", "already_done", "wrong_state"])
def test_a_job_that_is_over_is_no_error(cli, cancels, code):
    cancels({1: (code, "Job/step already completing or completed")})
    assert cli("scancel", "1") == (0, "", "")
    verbose = cli("scancel", "-v", "1")
    assert verbose.code == 0
    assert verbose.err.endswith(
        "scancel: error: Kill job error on job id 1: Job/step already completing or completed\n"
    )


def test_somebody_elses_job(cli, cancels):
    cancels({140: ("access_denied", "Access/permission denied")})
    assert cli("scancel", "139", "140") == (
        210,
        "",
        "scancel: error: Kill job error on job id 140: Access/permission denied\n",
    )


@pytest.mark.parametrize(
    ("words", "err"),
    [
        ([], "scancel: error: No job identification provided\n"),
        (["bogus"], "scancel: error: Invalid job id bogus\n"),
        (["-s", "XYZ", "1"], "Unknown job signal: XYZ\n"),
        (
            ["-t", "CD", "1"],
            "Invalid job state specified: CD\nValid job states are PENDING, RUNNING, and SUSPENDED\n",
        ),
        (["-u", "no_such_user_here"], "scancel: error: Invalid user name: no_such_user_here\n"),
        (
            ["--bogus"],
            "scancel: unrecognized option '--bogus'\nTry \"scancel --help\" for more information\n",
        ),
    ],
)
def test_bad_words(cli, cancels, words, err):
    peer = cancels()
    assert cli("scancel", *words) == (1, "", err)
    assert not peer.requests


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["-n", "x"], [2]),
        (["-p", "gpu"], [2]),
        (["-t", "PENDING"], [3]),
        (["-t", "running"], [1, 2]),
        (["--me"], [1, 2, 3]),
        (["-u", str(os.getuid())], [1, 2, 3]),
        (["-w", "n7"], [1]),
        (["-A", "acc"], [3]),
    ],
)
def test_filters(cli, cancels, words, ids):
    peer = cancels(
        jobs=[
            job(1, nodelist="n[6-7]"),
            job(2, name="x", partition="gpu,debug"),
            job(3, state=c.JOB_STATE_PENDING, account="acc"),
            job(4, uid=54321, name="other"),
            job(5, state=c.JOB_STATE_COMPLETED),
        ]
    )
    assert cli("scancel", *words) == (0, "", "")
    assert [target[0] for target in targets(peer) if target[0] != 4] == ids


def test_filters_that_match_nothing(cli, cancels):
    peer = cancels(jobs=[job(1)])
    assert cli("scancel", "-n", "zzz") == (0, "", "")
    assert "No active jobs match ALL job filters" in cli("scancel", "-v", "-n", "zzz").err
    assert not [name for name, _, _ in peer.requests if name == "CancelJob"]


def test_interactive_asks(cli, cancels):
    peer = cancels(jobs=[job(1), job(2)])
    result = cli("scancel", "-i", "1", "2", stdin=b"n\ny\n")
    assert result.out == (
        "Cancel job_id=1 name=w partition=debug [y/n]? Cancel job_id=2 name=w partition=debug [y/n]? "
    )
    assert targets(peer) == [(2, "", None)]
