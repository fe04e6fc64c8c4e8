"""Malformed, huge and absurd requests: refused with a sentence, at once, and nobody else notices."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from spur_proto import accounting_pb2 as ap
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

U32, U64 = 2**32 - 1, 2**64 - 1
#: What a bad request may be answered with; never INTERNAL, UNKNOWN, or silence.
REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED")

#: Field of a submission -> values that are refused.
SUBMISSIONS: dict[str, list[Any]] = {
    "memory_per_node_mb": [U64, 2**63, 2**53],
    "memory_per_cpu_mb": [U64],
    "min_nodes": [0, U32],
    "max_nodes": [0, U32],
    "num_tasks": [0, U32],
    "tasks_per_node": [0, U32],
    "cpus_per_task": [0, U32],
    "begin_at": [math.nan, math.inf, -1.0, 1e300],
    "deadline_at": [math.nan, math.inf, 1.0],
    "nice": [-(2**31), 2**31 - 1],
    "umask": [U32],
    "array": ["0-4000000", "0-3999999999999", "-1", "0-9:0", "9-1", "1-10%-5", "1," * 100000, "," * 4000000],
    "dependency": [
        "afterok:" + ":".join(map(str, range(1, 100001))),
        "1:" * 2000000 + "1",
        "afterok:-1",
        "after:1+x",
        "?,",
    ],
    "nodelist": ["n[0-1000000]", "n" + "[0-99]" * 10, "n[0-65535]", "[" * 1000000, "a," * 3000000, "n[1-"],
    "exclude": ["n[0-1000000]"],
    "constraint": ["(" * 100000, "&" * 1000, "a|" * 1000000],
    "gres": [["gpu:99999999999999999999"], ["gpu:1"] * 100000, ["gpu:-1"], ["x" * 1000000]],
    "name": ["x" * 5000, "a\0b"],
    "comment": ["x" * 4000000, "\0"],
    "partition": ["debug," * 1000000, "nope"],
    "work_dir": ["relative", "/a\0", "/" + "x" * 5000],
    "stdout_path": ["/x\0", "x" * 5000],
    "rlimits": [["NOFILE=x"], ["NOFILE=0:0"] * 100000, ["NOFILE=9999999999999999999:1"], ["=1"], ["A=-2"]],
    "warn_signal": ["x" * 1000000, "9@99999999999999"],
    "script": [b"", b"#!/bin/sh\n\0", b"x" * 8_000_000, b"x" * 9_000_000],
    "argv": [[b"\0"], [b""] * 1000000],
    "environment": [[b""], [b"A=\0"], [b"=x"], [b"A=1"] * 600000],
    "open_mode": ["x" * 1000000],
    "submit_line": ["x" * 300000],
}

#: Field of a change -> values that are refused.
CHANGES: dict[str, list[Any]] = {
    "memory_per_node_mb": [U64, 2**63],
    "memory_per_cpu_mb": [U64],
    "min_nodes": [0, U32],
    "max_nodes": [U32],
    "num_tasks": [U32],
    "cpus_per_task": [U32],
    "begin_at": [math.nan, math.inf, -1.0, 1e300],
    "nice": [-(2**31), 2**31 - 1],
    "comment": ["x" * 7000000, "x" * 70000, "\0"],
    "name": ["\0", "x" * 7000000],
    "account": ["x" * 7000000],
    "stdout_path": ["\0"],
    "work_dir": ["relative", "/\0"],
    "dependency": ["1:" * 2000000 + "1", "afterok:" + ":".join(map(str, range(1, 30001)))],
    "req_nodelist": ["n[0-65535]", "[" * 4000000, "[" * 60000],
    "constraint": ["(" * 100000],
    "gres": ["gpu:1," * 100000, "gpu:1"],
    "partition": ["nope"],
    "hold": [99],
}


def rows(table: dict[str, list[Any]]) -> list[Any]:
    """(field, value) each, with a short id."""
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in table.items()
        for number, value in enumerate(values)
    ]


@pytest.fixture(scope="module")
def own(target: Any, stranger: str) -> int:
    """A held job of the stranger's."""
    return int(target.submit(stranger).message.job_id)


def swiftly(target: Any, call: Callable[[], Any], most: float = 5.0) -> Any:
    """Its answer, while others are served."""
    begun = time.monotonic()
    with target.responsive():
        answer = call()
    assert time.monotonic() - begun < most
    return answer


@pytest.mark.parametrize(("field", "value"), rows(SUBMISSIONS))
def test_submissions(target: Any, stranger: str, field: str, value: Any) -> None:
    answer = swiftly(target, lambda: target.submit(stranger, **{field: value}))
    assert answer.code in REFUSALS, answer
    assert 0 < len(answer.text) < 1100
    assert "internal" not in answer.text


@pytest.mark.parametrize(("field", "value"), rows(CHANGES))
def test_changes(target: Any, stranger: str, own: int, helpers: Any, field: str, value: Any) -> None:
    request = pb.UpdateJobRequest(targets=[pb.JobTarget(job_id=own)], **{field: value})
    answer = swiftly(target, lambda: helpers.ask(target.ctl.UpdateJob, request, stranger))
    assert answer.code in REFUSALS, answer
    assert 0 < len(answer.text) < 1100


def test_extreme_values_that_are_allowed_can_be_listed(
    target: Any, stranger: str, own: int, helpers: Any
) -> None:
    """Each field is within its bounds; together they must still fit into every listing and the database.

    What no node of the cluster could ever give is refused, as at submission.
    """
    targets = [pb.JobTarget(job_id=own)]
    for change, possible in (
        ({"num_tasks": 4_000_000}, False),
        ({"cpus_per_task": 4_000_000}, False),
        ({"min_nodes": 4_000_000}, False),
        ({"memory_per_node_mb": 1 << 40}, False),
        ({"time_limit_secs": U32 - 1}, True),
        ({"time_limit_delta_secs": 2**31 - 1}, True),
        ({"array_throttle": U32}, True),
        # Before the priority, which releases the job.
        ({"begin_at": 2e11}, True),
        ({"priority": U32}, True),
        ({"comment": "\ud7ff\U0010ffff" * 1000}, True),
    ):
        answer = helpers.ask(target.ctl.UpdateJob, pb.UpdateJobRequest(targets=targets, **change), stranger)
        assert answer.code == "OK", (change, answer)
        assert [not result.code for result in answer.message.results] == [possible], (change, answer)
        for detail in (False, True):
            listed = helpers.ask(target.ctl.GetJobs, pb.GetJobsRequest(detail=detail), stranger)
            assert listed.code == "OK", (change, listed)
        history = helpers.ask(target.acct.GetJobHistory, ap.GetJobHistoryRequest(), stranger)
        assert history.code == "OK", (change, history)
    for command in ("squeue", "sacct", "scontrol show job"):
        target.cluster.ok(*command.split())


def queries() -> dict[str, tuple[str, Any]]:
    """Word -> (rpc, request) that is absurd."""
    ctl, acct = pb, ap
    job = ctl.JobTarget
    lots = ",".join(map(str, range(0, 100000, 7)))
    return {
        "a million targets": ("CancelJob", ctl.CancelJobRequest(targets=[job(job_id=9999)] * 1_000_000)),
        "30,000 targets": ("CancelJob", ctl.CancelJobRequest(targets=[job(job_id=9999)] * 30_000)),
        "a wide array": (
            "CancelJob",
            ctl.CancelJobRequest(targets=[job(job_id=9999, array_tasks="0-4000000")] * 2000),
        ),
        "overlapping steps": (
            "GetJobs",
            ctl.GetJobsRequest(jobs=[job(job_id=9999, array_tasks="0-3999999:2,1-70000:2")]),
        ),
        "a long task list": ("GetJobs", ctl.GetJobsRequest(jobs=[job(job_id=9999, array_tasks=lots)])),
        "task lists": (
            "RequeueJob",
            ctl.RequeueJobRequest(targets=[job(job_id=9999, array_tasks=lots[:8000])] * 30),
        ),
        "states": ("GetJobs", ctl.GetJobsRequest(states=[1] * 200_000)),
        "no state": ("GetJobs", ctl.GetJobsRequest(states=[77])),
        "host lists": ("GetJobs", ctl.GetJobsRequest(nodes=["n[0-65535]"] * 500)),
        "a broken host list": ("GetJobs", ctl.GetJobsRequest(nodes=["[" * 100000])),
        "nodes": ("GetNodes", ctl.GetNodesRequest(names=["n[0-65535]"] * 500)),
        "page": ("GetJobs", ctl.GetJobsRequest(page_token="\u0661")),
        "page number": ("GetJobs", ctl.GetJobsRequest(page_token="9" * 5000)),
        "history page": ("GetJobHistory", acct.GetJobHistoryRequest(page_token="-1")),
        "history page number": ("GetJobHistory", acct.GetJobHistoryRequest(page_token="9" * 30)),
        "history state": ("GetJobHistory", acct.GetJobHistoryRequest(states=[77])),
        "history window": ("GetJobHistory", acct.GetJobHistoryRequest(window_start=math.nan)),
        "history window end": ("GetJobHistory", acct.GetJobHistoryRequest(window_end=-1e300)),
        "history names": ("GetJobHistory", acct.GetJobHistoryRequest(names=["x"] * 40000)),
        "history jobs": ("GetJobHistory", acct.GetJobHistoryRequest(jobs=[{"job_id": 7}] * 9000)),
        "history tasks": (
            "GetJobHistory",
            acct.GetJobHistoryRequest(jobs=[{"job_id": 7, "array_tasks": lots}]),
        ),
        "signal": ("CancelJob", ctl.CancelJobRequest(targets=[job(job_id=1)], signal=U32)),
        "job 0": ("CancelJob", ctl.CancelJobRequest(targets=[job(job_id=0)])),
    }


@pytest.mark.parametrize("word", queries())
def test_questions(target: Any, stranger: str, helpers: Any, word: str) -> None:
    name, request = queries()[word]
    call = getattr(target.acct if name == "GetJobHistory" else target.ctl, name)
    answer = swiftly(target, lambda: helpers.ask(call, request, stranger), 15.0)
    assert answer.code in ("OK", *REFUSALS), answer
    assert len(answer.text) < 1100


@pytest.mark.parametrize(
    "body", [b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f", b"\x08" * 1000, b"\x0a\x02\xc3\x28"]
)
def test_bytes_that_are_no_message(target: Any, stranger: str, body: bytes) -> None:
    controller = target.controller_token()
    for method in ("SubmitJob", "GetJobs", "CancelJob", "UpdateJob"):
        answer = target.raw(f"/slurm.SlurmController/{method}", body, stranger)
        assert answer.code in (*REFUSALS, "OK"), (method, answer)
    node = target.node_token("node1")
    for method in ("RegisterAgent", "Heartbeat", "ReportJobStatus"):
        answer = target.raw(f"/slurm.SlurmController/{method}", body, node)
        assert answer.code in (*REFUSALS, "PERMISSION_DENIED"), (method, answer)
    for method in ("LaunchJob", "CancelJob", "ProbeStepd"):
        answer = target.raw(f"/slurm.SlurmAgent/{method}", body, controller, node="node1")
        assert answer.code in REFUSALS, (method, answer)
    for method in ("StreamJobOutput", "InteractiveSession"):
        answer = target.raw(f"/slurm.SlurmAgent/{method}", body, stranger, node="node1")
        assert answer.code in REFUSALS, (method, answer)
    for method in ("/slurm.SlurmAgent/Nope", "/nothing", "/a/b/c"):
        assert target.raw(method, body, controller, node="node1").code == "UNIMPLEMENTED"
        assert target.raw(method, body, stranger).code == "UNIMPLEMENTED"


def test_what_a_node_may_not_say(target: Any, helpers: Any) -> None:
    """A node that lies about its size would overflow the scheduler's sums."""
    token = target.node_token("ghost")
    good = {"node": "ghost", "cpus": 1, "port": 1, "memory_mb": 1}
    for bad in (
        {"memory_mb": U64},
        {"tmp_disk_mb": U64},
        {"cpus": U32},
        {"cpus": 0},
        {"port": 70000},
        {"boot_at": math.nan},
        {"agent_start_at": math.inf},
        {"gres": [common_pb2.GresCount(name="gpu", count=U64)]},
    ):
        answer = helpers.ask(target.ctl.RegisterAgent, pb.RegisterAgentRequest(**{**good, **bad}), token)
        assert answer.code == "INVALID_ARGUMENT", (bad, answer)
    assert "ghost" not in target.cluster.ok("sinfo", "-h", "-N", "-o", "%N")


def test_many_large_jobs_do_not_break_the_listing(target: Any, stranger: str, helpers: Any) -> None:
    jobs = []
    with target.responsive():
        for _ in range(50):
            answer = target.submit(
                stranger, comment="x" * 65536, command="y" * 65536, submit_line="z" * 262144
            )
            jobs.append(answer.message.job_id)
    page = helpers.ask(target.ctl.GetJobs, pb.GetJobsRequest(), stranger)
    assert page.code == "OK"
    assert page.message.ByteSize() < 10 << 20
    assert page.message.next_page_token
    listed = target.cluster.ok("squeue", "-h", "-o", "%i").split()
    assert set(map(str, jobs)) <= set(listed)
    helpers.ask(
        target.ctl.CancelJob, pb.CancelJobRequest(targets=[pb.JobTarget(job_id=j) for j in jobs]), stranger
    )


def test_long_dependencies_do_not_stop_the_scheduler(
    target: Any, stranger: str, own: int, helpers: Any
) -> None:
    named = ":".join(map(str, range(1, 20001)))
    made = []
    with target.responsive():
        for _ in range(3):
            answer = target.submit(stranger, dependency=f"afterany:{named}:{own}", hold=False)
            assert answer.code == "OK"
            made.append(answer.message.job_id)
        target.works()
    request = pb.CancelJobRequest(targets=[pb.JobTarget(job_id=job) for job in made])
    assert not any(r.code for r in helpers.ask(target.ctl.CancelJob, request, stranger).message.results)


def test_the_cluster_has_not_noticed(target: Any) -> None:
    """Last in this module: nothing of the above left a trace."""
    target.works()
