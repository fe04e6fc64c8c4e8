"""Steps in squeue, scontrol and scancel."""

import os

import pytest

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

BATCH, EXTERN = 0xFFFFFFFB, 0xFFFFFFFC


def step(job_id, number, **more):
    base = {
        "name": "prog",
        "state": c.JOB_STATE_RUNNING,
        "user": "root",
        "uid": os.getuid(),
        "partition": "debug",
        "num_tasks": 2,
        "num_cpus": 2,
        "num_nodes": 2,
        "nodelist": "n[1-2]",
        "start_at": 1796032700.0,
        "run_secs": 100.0,
        "alloc_tres": "cpu=2,mem=200M,node=2",
        "submit_host": "login",
    }
    return c.StepInfo(rid=c.RuntimeId(job_id=job_id, run_attempt=1, step_id=number), **(base | more))


@pytest.fixture
def listed(peer, refuse):
    """Script GetJobSteps with these steps; ids of which there is no job are refused."""

    def serve(*steps):
        import grpc

        known = {one.rid.job_id for one in steps}

        def answer(request):
            wanted = {(t.job_id, t.step_id if t.HasField("step_id") else None) for t in request.jobs}
            if any(job not in known for job, _ in wanted):
                raise refuse(grpc.StatusCode.NOT_FOUND, "Invalid job id specified", "no_such_job")
            found = [
                one
                for one in steps
                if not wanted or wanted & {(one.rid.job_id, None), (one.rid.job_id, one.rid.step_id)}
            ]
            return pb.GetJobStepsResponse(steps=found)

        peer.answers["GetJobSteps"] = answer
        return peer

    return serve


def test_squeue_steps(cli, listed):
    listed(step(12, 0), step(12, BATCH, name="batch"), step(9, 1, partition="big", nodelist="n1"))
    assert cli("squeue", "-s") == (
        0,
        "         STEPID     NAME PARTITION     USER      TIME NODELIST\n"
        "            9.1     prog       big     root      1:40 n1\n"
        "           12.0     prog     debug     root      1:40 n[1-2]\n"
        "       12.batch    batch     debug     root      1:40 n[1-2]\n",
        "",
    )


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["-s", "12.0"], "12.0\n"),
        (["-s12"], "12.0\n12.batch\n"),
        (["--steps=12.batch,9"], "9.1\n12.batch\n"),
        (["-s", "-j", "12"], "12.0\n12.batch\n"),
        (["-s", "-n", "BATCH"], "12.batch\n"),
        (["-s", "-S", "-i"], "12.batch\n12.0\n9.1\n"),
        (["-s", "--me"], "9.1\n12.0\n12.batch\n"),
        (["-s", "--notme"], ""),
        (["-s", "99,9"], "9.1\n"),
    ],
)
def test_which_steps(cli, listed, words, out):
    listed(step(12, 0), step(12, BATCH, name="batch"), step(9, 1))
    assert cli("squeue", "-h", "-o", "%i", *words) == (0, out, "")


def test_filters_of_the_controller(cli, listed):
    peer = listed()
    cli("squeue", "-s", "-p", "a,b", "-w", "n[1-2]", "-u", "root")
    request = peer.last("GetJobSteps")
    assert (list(request.partitions), list(request.nodes), list(request.users)) == (
        ["a", "b"],
        ["n1", "n2"],
        ["root"],
    )


def test_array_tasks_and_formats(cli, listed):
    listed(step(14, 0, array_job_id=12, array_task_id=3, time_limit_secs=600))
    form = "%i|%A|%l|%S|%U|%j"
    row = f"12_3.0|2|10:00|2026-11-30T09:58:20|{os.getuid()}|prog\n"
    assert cli("squeue", "-hs", "-o", form).out == row
    names = "stepid:.8,stepstate:|,jobid:|,numcpus:|,tres:"
    assert cli("squeue", "-hs", "-O", names).out == "  12_3.0RUNNING|14|2|cpu=2,mem=200M,node=2\n"


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["-s", "99"], "slurm_load_job_steps error: Invalid job id specified\n"),
        (["-s", "x"], "squeue: error: Invalid job id: x\n"),
        (["-s", "-l"], "squeue: error: --long cannot be combined with --steps\n"),
        (["-s", "-A", "x"], "squeue: error: --account cannot be combined with --steps\n"),
        (["-s", "-S", "!"], "squeue: error: Invalid sort specification: !\n"),
        (["-s", "-O", "bogus"], "squeue: error: Invalid job step format specification: bogus\n"),
    ],
)
def test_what_squeue_refuses(cli, listed, words, err):
    listed(step(12, 0))
    assert cli("squeue", *words) == (1, "", err)


def test_show_step(cli, listed):
    listed(
        step(12, BATCH, name="batch", num_cpus=1, distribution=""), step(12, 0, distribution="cyclic:block")
    )
    assert cli("scontrol", "show", "step", "12").out == (
        f"StepId=12.0 UserId={os.getuid()} StartTime=2026-11-30T09:58:20 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=debug NodeList=n[1-2]\n"
        "   Nodes=2 CPUs=2 Tasks=2 Name=prog Network=(null)\n"
        "   TRES=cpu=2,mem=200M,node=2\n"
        "   ResvPorts=(null)\n"
        "   CPUFreqReq=Default Dist=Cyclic\n"
        "   SrunHost:Pid=login:0\n"
        "\n"
        f"StepId=12.batch UserId={os.getuid()} StartTime=2026-11-30T09:58:20 TimeLimit=UNLIMITED\n"
        "   State=RUNNING Partition=debug NodeList=n[1-2]\n"
        "   Nodes=2 CPUs=1 Tasks=2 Name=batch Network=(null)\n"
        "   TRES=cpu=2,mem=200M,node=2\n"
        "   ResvPorts=(null)\n"
        "   CPUFreqReq=Default\n"
        "   SrunHost:Pid=(null):0\n"
        "\n"
    )
    line = cli("scontrol", "-o", "show", "step", "12.0").out
    assert line.count("\n") == 1
    assert all("=" in word for word in line.split())


@pytest.mark.parametrize(
    ("words", "err"),
    [(["99"], "Job step 99. not found\n"), (["12.7"], "Job step 12.7 not found\n")],
)
def test_steps_that_are_not_there(cli, listed, words, err):
    listed(step(12, 0))
    assert cli("scontrol", "show", "step", *words) == (1, "", err)


def test_no_steps_at_all(cli, listed):
    listed()
    assert cli("scontrol", "show", "step") == (0, "No job steps in the system\n", "")


@pytest.mark.parametrize(("keyword", "method"), [("suspend", "SuspendJob"), ("resume", "ResumeJob")])
def test_suspend_and_resume(cli, peer, keyword, method):
    def answer(request):
        results = [
            pb.TargetResult(target=t, code="wrong_state", text="Job is pending execution")
            if t.job_id == 13
            else pb.TargetResult(target=t)
            for t in request.targets
        ]
        return getattr(pb, f"{method}Response")(results=results)

    peer.answers[method] = answer
    assert cli("scontrol", keyword, "12") == (0, "", "")
    assert [t.job_id for t in peer.last(method).targets] == [12]
    assert cli("scontrol", keyword, "12,13") == (
        1,
        "",
        f"slurm_{keyword} error: Job is pending execution\nJob is pending execution for job 13\n",
    )


def test_several_steps_of_a_job_with_a_filter(cli, peer):
    job = c.JobInfo(job_id=12, partition="debug", uid=os.getuid(), state=c.JOB_STATE_RUNNING)
    peer.answers.update(GetJobs=pb.GetJobsResponse(jobs=[job]), CancelJob=pb.CancelJobResponse())
    assert cli("scancel", "-p", "debug", "12.0", "12.1", "12.extern") == (0, "", "")
    found = [(t.job_id, t.step_id) for t in peer.last("CancelJob").targets]
    assert found == [(12, 0), (12, 1), (12, EXTERN)]


def test_signals_for_a_step(cli, peer):
    peer.answers["CancelJob"] = pb.CancelJobResponse()
    assert cli("scancel", "-v", "-s", "USR1", "12.0") == (0, "", "scancel: Signal 10 to step 12.0\n")
    request = peer.last("CancelJob")
    assert (request.signal, request.batch_only, request.full) == (10, False, False)
    assert cli("scancel", "-v", "12.0").err == "scancel: Terminating step 12.0\n"
