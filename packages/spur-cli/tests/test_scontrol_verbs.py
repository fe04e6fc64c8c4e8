"""Verbs of scontrol that look, wait or sign: completing, wait_job, write, token."""

import base64
import json

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0


def test_what_is_being_ended(cli, peer):
    ending = c.JobInfo(job_id=7, state=c.JOB_STATE_COMPLETING, end_at=NOW - 65, nodelist="n[1-3]")
    peer.answers["GetJobs"] = pb.GetJobsResponse(jobs=[ending])
    peer.answers["GetNodes"] = pb.GetNodesResponse(
        nodes=[c.NodeInfo(name="n1"), c.NodeInfo(name="n2", base=c.NODE_BASE_DOWN)]
    )
    line = (
        "JobId=7 EndTime=2026-11-30T09:58:55 CompletingTime=00:01:05 "
        "Nodes(COMPLETING)=n[1,3] Nodes(DOWN)=n2 \n"
    )
    assert cli("scontrol", "completing") == (0, line, "")
    assert list(peer.last("GetJobs").states) == [c.JOB_STATE_COMPLETING]
    peer.answers["GetJobs"] = pb.GetJobsResponse()
    assert cli("scontrol", "completing") == (0, "", "")


def test_waiting_for_a_job(cli, peer):
    seen = iter([c.JOB_STATE_PENDING, c.JOB_STATE_CONFIGURING, c.JOB_STATE_RUNNING, c.JOB_STATE_COMPLETED])
    peer.answers["GetJobs"] = lambda request: pb.GetJobsResponse(
        jobs=[c.JobInfo(job_id=39, state=next(seen))]
    )
    assert cli("scontrol", "wait_job", "39") == (0, "", "scontrol: Nodes are ready for job 39\n")
    assert cli("scontrol", "wait_job", "39") == (1, "", "scontrol: Job 39 no longer running\n")
    assert cli("scontrol", "wait_job", "x") == (1, "", "Invalid job_id x\n")
    assert cli("scontrol", "wait_job") == (1, "", "too few arguments for keyword:wait_job\n")


def test_a_token_from_scontrol(cli, tmp_path):
    (tmp_path / "spur.conf").write_text('cluster_name = "alpha"\n[auth]\njwt_key = "' + "k" * 64 + '"\n')
    env = {"SPUR_CONF": str(tmp_path / "spur.conf")}
    found = cli("scontrol", "token", "username=root", "lifespan=60", env=env)
    assert (found.code, found.err) == (0, "")
    name, _, token = found.out.strip().partition("=")
    assert name == "SLURM_JWT"
    body = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (body["sub"], body["exp"]) == ("root", NOW + 60)
    for word in ("lifespan=x", "lifespan=0", "bogus=1"):
        refused = cli("scontrol", "token", word, env=env)
        assert (refused.code, refused.out) == (1, "")
        assert word in refused.err


def test_the_script_of_a_job(cli, peer, tmp_path, missing_job):
    script = b"#!/bin/sh\necho \xff\n"
    jobs = {39: c.JobInfo(job_id=39, batch=True, script=script), 40: c.JobInfo(job_id=40, batch=True)}
    jobs[41] = c.JobInfo(job_id=41)

    def answer(request):
        if request.jobs[0].job_id not in jobs:
            raise missing_job()
        return pb.GetJobsResponse(jobs=[jobs[request.jobs[0].job_id]])

    peer.answers["GetJobs"] = answer
    said = "batch script for job 39 written to slurm-39.sh\n"
    assert cli("scontrol", "write", "batch_script", "39") == (0, said, "")
    assert peer.last("GetJobs").script
    assert (tmp_path / "slurm-39.sh").read_bytes() == script
    assert cli("scontrol", "-Q", "write", "batch_script", "39", "copy") == (0, "", "")
    assert (tmp_path / "copy").read_bytes() == script
    jobs[39].script = b"#!/bin/sh\n"
    assert cli("scontrol", "write", "batch", "39", "-") == (0, "#!/bin/sh\n", "")
    for job, text in (
        ("40", "Access/permission denied"),
        ("41", "Job script not specified"),
        ("42", "Invalid job id specified"),
        ("x", "Invalid job id specified"),
    ):
        expected = (1, "", f"job script retrieval failed: {text}\n")
        assert cli("scontrol", "write", "batch_script", job) == expected
    unwritable = cli("scontrol", "write", "batch_script", "39", "no/such/file")
    assert unwritable == (1, "", "failed to open file `no/such/file`: No such file or directory\n")


def test_partitions_as_a_document(cli, peer):
    parts = [c.PartitionInfo(name="cpu", state="UP", nodes="n[1-2]"), c.PartitionInfo(name="gpu", state="UP")]
    peer.answers["GetPartitions"] = pb.GetPartitionsResponse(partitions=parts)
    peer.answers["Ping"] = pb.PingResponse(hostname="ctl1", cluster_name="alpha")
    found = cli("scontrol", "show", "part", "--json")
    assert (found.code, found.err) == (0, "")
    tree = json.loads(found.out)
    assert [part["name"] for part in tree["partitions"]] == ["cpu", "gpu"]
    assert tree["partitions"][0]["nodes"]["configured"] == "n[1-2]"
    assert (tree["meta"]["slurm"]["cluster"], tree["errors"], tree["warnings"]) == ("alpha", [], [])
    one = json.loads(cli("scontrol", "--json", "show", "partition=gpu").out)
    assert [part["name"] for part in one["partitions"]] == ["gpu"]
    assert cli("scontrol", "show", "part", "x", "--yaml") == (1, "", "Partition x not found\n")
    assert cli("scontrol", "show", "job", "1", "--json") == (
        1,
        "",
        "scontrol: error: --json of show job is not supported by this release\n",
    )
    assert cli("scontrol", "hold", "1", "--yaml").err == (
        "scontrol: error: --yaml of hold 1 is not supported by this release\n"
    )
