"""`spur explain`: jobs that wait, run, are over, are forgotten or never were."""

import pytest

from spur_proto import accounting_pb2 as a
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0


def job(**fields):
    return c.JobInfo(**{"job_id": 12, "name": "wrap", **fields})


def over(state, **fields):
    told = {"start_at": NOW - 75, "end_at": NOW, "nodelist": "n[1-2]", "reason": "None", **fields}
    return job(state=state, stdout_path="/p/slurm-12.out", **told)


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (
            job(
                state=c.JOB_STATE_PENDING,
                reason="Resources",
                waits_for="It is the first in line; it is expected to start by 2026-11-30T11:00:00 on n1",
                start_at=NOW + 3600,
                sched_nodes="n1",
            ),
            [
                "Job 12 (wrap) waits: Resources.",
                "  It is the first in line; it is expected to start by 2026-11-30T11:00:00 on n1.",
            ],
        ),
        (
            job(state=c.JOB_STATE_PENDING, reason="Priority", start_at=NOW + 3600, sched_nodes="n1"),
            [
                "Job 12 (wrap) waits: Priority.",
                "  It is expected to start by 2026-11-30T11:00:00 on n1.",
            ],
        ),
        (
            job(
                state=c.JOB_STATE_PENDING,
                reason="Dependency",
                dependency="afterok:11(unfulfilled)",
                restarts=1,
            ),
            [
                "Job 12 (wrap) waits: Dependency.",
                "  It depends on afterok:11(unfulfilled).",
                "  It was started once before.",
            ],
        ),
        (
            job(state=c.JOB_STATE_PENDING, reason="BeginTime", begin_at=NOW + 60, restarts=2),
            [
                "Job 12 (wrap) waits: BeginTime.",
                "  It may not begin before 2026-11-30T10:01:00.",
                "  It was started 2 times before.",
            ],
        ),
        (job(state=c.JOB_STATE_PENDING), ["Job 12 (wrap) waits to be looked at."]),
        (
            job(state=c.JOB_STATE_RUNNING, nodelist="n1", start_at=NOW, end_at=NOW + 60),
            [
                "Job 12 (wrap) runs on n1 since 2026-11-30T10:00:00.",
                "  It must end by 2026-11-30T10:01:00.",
            ],
        ),
        (
            job(state=c.JOB_STATE_RUNNING, nodelist="n1", start_at=NOW, array_job_id=9, array_task_id=3),
            ["Job 9_3 (wrap) runs on n1 since 2026-11-30T10:00:00."],
        ),
        (
            job(state=c.JOB_STATE_SUSPENDED, nodelist="n1", suspend_at=NOW),
            ["Job 12 (wrap) is suspended on n1 since 2026-11-30T10:00:00; scontrol resume lets it go on."],
        ),
        (
            job(state=c.JOB_STATE_CONFIGURING, nodelist="n1"),
            ["Job 12 (wrap) is being started on n1."],
        ),
        (job(state=c.JOB_STATE_COMPLETING, nodelist="n1"), ["Job 12 (wrap) is being ended on n1."]),
        (
            over(c.JOB_STATE_COMPLETED),
            ["Job 12 (wrap) ended well at 2026-11-30T10:00:00, 00:01:15 after its start, on n[1-2]."],
        ),
        (
            over(c.JOB_STATE_FAILED, exit=c.ExitStatus(code=3), reason="NonZeroExitCode"),
            [
                "Job 12 (wrap) failed with exit code 3 at 2026-11-30T10:00:00, 00:01:15 after its start,"
                " on n[1-2].",
                "  Its output is in /p/slurm-12.out.",
            ],
        ),
        (
            over(c.JOB_STATE_FAILED, exit=c.ExitStatus(signal=11, core_dumped=True), state_desc="odd"),
            [
                "Job 12 (wrap) failed with signal 11 and a core dump at 2026-11-30T10:00:00, 00:01:15 after"
                " its start, on n[1-2].",
                "  Reason: odd.",
                "  Its output is in /p/slurm-12.out.",
            ],
        ),
        (
            over(c.JOB_STATE_TIMEOUT, time_limit_secs=60, reason="TimeLimit"),
            [
                "Job 12 (wrap) reached its time limit of 00:01:00 and was ended at 2026-11-30T10:00:00,"
                " 00:01:15 after its start, on n[1-2].",
                "  Its output is in /p/slurm-12.out.",
            ],
        ),
        (
            job(state=c.JOB_STATE_CANCELLED, end_at=NOW, kill_uid=0),
            ["Job 12 (wrap) was cancelled by root at 2026-11-30T10:00:00, before it started."],
        ),
        (
            over(c.JOB_STATE_CANCELLED, kill_uid=4294967),
            [
                "Job 12 (wrap) was cancelled by user 4294967 at 2026-11-30T10:00:00, 00:01:15 after its"
                " start, on n[1-2]."
            ],
        ),
        (
            over(c.JOB_STATE_NODE_FAIL, reason="NodeDown"),
            [
                "Job 12 (wrap) was lost with a node at 2026-11-30T10:00:00, 00:01:15 after its start,"
                " on n[1-2].",
                "  Reason: NodeDown.",
                "  Its output is in /p/slurm-12.out.",
            ],
        ),
    ],
)
def test_what_is_said_of_a_job(cli, peer, record, lines):
    peer.answers["GetJobs"] = pb.GetJobsResponse(jobs=[record])
    assert cli("spur", "explain", "12") == (0, "".join(f"{line}\n" for line in lines), "")
    assert peer.last("GetJobs").detail


def test_a_job_that_the_controller_has_forgotten(cli, peer, missing_job):
    def gone(request):
        raise missing_job()

    peer.answers["GetJobs"] = gone
    known = a.JobHistory(job_id=12, name="old", state=c.JOB_STATE_OUT_OF_MEMORY, start_at=NOW - 5, end_at=NOW)
    peer.answers["GetJobHistory"] = a.GetJobHistoryResponse(jobs=[known])
    said = "Job 12 (old) ran out of memory at 2026-11-30T10:00:00, 00:00:05 after its start.\n"
    assert cli("spur", "explain", "12") == (0, said, "")
    peer.answers["GetJobHistory"] = a.GetJobHistoryResponse()
    assert cli("spur", "explain", "12") == (1, "", "spur explain: error: 12: Invalid job id specified\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no job was given"),
        (["x"], "Invalid job id x"),
        (["12.0"], "name a job, not a step"),
    ],
)
def test_words_that_name_no_job(cli, words, text):
    assert cli("spur", "explain", *words) == (1, "", f"spur explain: error: {text}\n")
