"""What --json of sinfo, sacct and sdiag holds: the keys of Slurm's data parser."""

import json

import pytest

from spur_core.ids import STEP_BATCH
from spur_core.states import NodeFlag
from spur_proto import accounting_pb2 as acct
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0


def number(value, infinite=False):
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


@pytest.fixture
def told(cli):
    def run(*words):
        result = cli(*words)
        assert (result.code, result.err) == (0, "")
        found = json.loads(result.out)
        assert found["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.44"
        assert found["meta"]["slurm"]["cluster"] == "alpha"
        assert (found["errors"], found["warnings"]) == ([], [])
        return found

    return run


JOB = acct.JobHistory(
    job_id=39,
    array_job_id=38,
    array_task_id=2,
    cluster="alpha",
    name="wrap",
    user="alice",
    gid=4000000,
    account="phys",
    partition="debug",
    qos="normal",
    state=c.JOB_STATE_FAILED,
    reason="NonZeroExitCode",
    exit=c.ExitStatus(code=3),
    submit_at=NOW - 100,
    eligible_at=NOW - 100,
    start_at=NOW - 90,
    end_at=NOW - 30,
    time_limit_secs=630,
    req_cpus=4,
    alloc_cpus=4,
    req_nodes=1,
    alloc_nodes=1,
    req_mem_mb=16000,
    nodelist="n[1-2]",
    req_tres="cpu=4,mem=16000M,node=1,gres/gpu=2",
    alloc_tres="cpu=4,mem=16000M,node=1,billing=4,gres/gpu=2,gres/gpu:h100=2",
    priority=7,
    work_dir="/home/alice",
    kill_uid=4000001,
    flags="SchedMain,StartRecieved",
    stdout_path="/home/alice/o",
    steps=[
        acct.StepHistory(
            step_id=STEP_BATCH,
            name="batch",
            state=c.JOB_STATE_FAILED,
            exit=c.ExitStatus(signal=9),
            start_at=NOW - 90,
            end_at=NOW - 30,
            num_tasks=1,
            alloc_cpus=4,
            num_nodes=1,
            nodelist="n1",
            alloc_tres="cpu=4",
            user_secs=1.5,
            system_secs=0.25,
            max_rss_kb=1780,
            max_rss_node="n1",
        )
    ],
)


@pytest.fixture
def history(peer):
    waiting = acct.JobHistory(
        job_id=40,
        array_job_id=40,
        array_pending="2-3%2",
        cluster="alpha",
        state=c.JOB_STATE_PENDING,
        submit_at=NOW - 10,
        time_limit_secs=0xFFFFFFFF,
        req_mem_mb=100,
        req_mem_per_cpu=True,
    )
    peer.answers["GetJobHistory"] = acct.GetJobHistoryResponse(jobs=[JOB, waiting])
    return peer


def test_sacct_jobs(told, history):
    first, waiting = told("sacct", "-a", "--json", "-o", "jobid")["jobs"]
    steps = first.pop("steps")
    assert first == {
        "account": "phys",
        "comment": {"administrator": "", "job": "", "system": ""},
        "allocation_nodes": 1,
        "array": {
            "job_id": 38,
            "limits": {"max": {"running": {"tasks": 0}}},
            "task_id": number(2),
            "task": "",
        },
        "association": {"account": "phys", "cluster": "alpha", "partition": "", "user": "alice", "id": 0},
        "block": "",
        "cluster": "alpha",
        "constraints": "",
        "container": "",
        "derived_exit_code": {
            "status": ["SUCCESS"],
            "return_code": number(0) | {"set": True},
            "signal": {"id": number(None), "name": ""},
        },
        "time": {
            "elapsed": 60,
            "eligible": NOW - 100,
            "end": NOW - 30,
            "planned": number(10),
            "start": NOW - 90,
            "submission": NOW - 100,
            "suspended": 0,
            "limit": number(11),
            "system": {"seconds": 0, "microseconds": 250000},
            "total": {"seconds": 1, "microseconds": 750000},
            "user": {"seconds": 1, "microseconds": 500000},
        },
        "exit_code": {
            "status": ["ERROR"],
            "return_code": number(3),
            "signal": {"id": number(None), "name": ""},
        },
        "extra": "",
        "failed_node": "",
        "flags": ["SchedMain", "StartRecieved"],
        "group": "4000000",
        "het": {"job_id": 0, "job_offset": number(None)},
        "job_id": 39,
        "name": "wrap",
        "licenses": "",
        "mcs": {"label": ""},
        "nodes": "n[1-2]",
        "partition": "debug",
        "hold": False,
        "priority": number(7),
        "qos": "normal",
        "qosreq": "normal",
        "required": {"CPUs": 4, "memory_per_cpu": number(None), "memory_per_node": number(16000)},
        "kill_request_user": "4000001",
        "restart_cnt": 0,
        "reservation": {"id": 0, "name": "", "requested": ""},
        "script": "",
        "segment_size": 0,
        "stdin_expanded": "",
        "stdout_expanded": "/home/alice/o",
        "stderr_expanded": "",
        "stdin": "",
        "stdout": "/home/alice/o",
        "stderr": "",
        "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
        "submit_line": "",
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 4},
                {"type": "mem", "name": "", "id": 2, "count": 16000},
                {"type": "node", "name": "", "id": 4, "count": 1},
                {"type": "billing", "name": "", "id": 5, "count": 4},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 2},
                {"type": "gres", "name": "gpu:h100", "id": 0, "count": 2},
            ],
            "requested": [
                {"type": "cpu", "name": "", "id": 1, "count": 4},
                {"type": "mem", "name": "", "id": 2, "count": 16000},
                {"type": "node", "name": "", "id": 4, "count": 1},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 2},
            ],
        },
        "used_gres": "",
        "user": "alice",
        "wckey": {"wckey": "", "flags": []},
        "working_directory": "/home/alice",
    }
    assert [step["step"]["id"] for step in steps] == ["39.batch"]
    assert waiting["nodes"] == "None assigned"
    assert waiting["state"] == {"current": ["PENDING"], "reason": "None"}
    assert waiting["array"]["task"] == "2-3"
    assert waiting["array"]["limits"]["max"]["running"]["tasks"] == 2
    assert waiting["time"]["limit"] == number(None, infinite=True)
    assert (waiting["time"]["start"], waiting["time"]["end"]) == (0, 0)
    assert waiting["required"]["memory_per_cpu"] == number(100)


def test_sacct_steps(told, history):
    (step,) = told("sacct", "-j", "39", "--json=v0.0.40")["jobs"][0]["steps"]
    assert step == {
        "time": {
            "elapsed": 60,
            "end": number(NOW - 30),
            "start": number(NOW - 90),
            "suspended": 0,
            "limit": number(11),
            "system": {"seconds": 0, "microseconds": 250000},
            "total": {"seconds": 1, "microseconds": 750000},
            "user": {"seconds": 1, "microseconds": 500000},
        },
        "exit_code": {
            "status": ["SIGNALED"],
            "return_code": number(0) | {"set": True},
            "signal": {"id": number(9), "name": "KILL"},
        },
        "nodes": {"count": 1, "range": "n1", "list": ["n1"]},
        "tasks": {"count": 1},
        "pid": "",
        "CPU": {"requested_frequency": {"min": number(None), "max": number(None)}, "governor": ""},
        "kill_request_user": "4000001",
        "state": ["FAILED"],
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": number(None)}},
        "step": {"id": "39.batch", "name": "batch", "stdin": "", "stdout": "", "stderr": ""},
        "task": {"distribution": "Unknown"},
        "tres": {
            "requested": {
                "max": [{"type": "mem", "name": "", "id": 2, "count": 1822720, "task": 0, "node": "n1"}],
                "min": [],
                "average": [],
                "total": [{"type": "cpu", "name": "", "id": 1, "count": 1750}],
            },
            "consumed": {"max": [], "min": [], "average": [], "total": []},
            "allocated": [{"type": "cpu", "name": "", "id": 1, "count": 4}],
        },
    }
    assert told("sacct", "-X", "--json")["jobs"][0]["steps"] == []
    assert len(told("sacct", "-j", "39.batch", "--json")["jobs"][0]["steps"]) == 1


def test_sinfo_rows(told, peer):
    big = c.GresCount(name="gpu", type="h100", count=2)
    same = {"base": c.NODE_BASE_MIXED, "sockets": 1, "cores_per_socket": 4, "threads_per_core": 1}
    peer.answers["GetNodes"] = pb.GetNodesResponse(
        nodes=[
            c.NodeInfo(
                name="n1",
                cpus=4,
                alloc_cpus=1,
                memory_mb=1000,
                alloc_memory_mb=100,
                free_memory_mb=500,
                cpu_load=25,
                features=["big", "fast"],
                gres=[big],
                gres_used=[c.GresCount(name="gpu", type="h100", count=1, indices="0")],
                weight=1,
                port=6818,
                **same,
            ),
            c.NodeInfo(
                name="n2",
                cpus=8,
                alloc_cpus=2,
                memory_mb=2000,
                free_memory_mb=700,
                weight=3,
                address="h2",
                **same,
            ),
            c.NodeInfo(
                name="n3",
                base=c.NODE_BASE_DOWN,
                flags=NodeFlag.DRAIN | NodeFlag.NOT_RESPONDING,
                cpus=4,
                reason="bad disk",
                reason_user="root",
                reason_at=NOW,
            ),
        ]
    )
    debug = c.PartitionInfo(
        name="debug",
        state="UP",
        node_names=["n1", "n2", "n3"],
        nodes="n[1-3]",
        total_nodes=3,
        total_cpus=16,
        min_nodes=1,
        max_time_secs=3600,
        priority_tier=1,
        priority_job_factor=1,
        oversubscribe="FORCE:4",
        is_default=True,
    )
    peer.answers["GetPartitions"] = pb.GetPartitionsResponse(partitions=[debug])
    peer.answers["Ping"] = pb.PingResponse(cluster_name="alpha")
    down, mixed = told("sinfo", "--json")["sinfo"]
    partition = mixed.pop("partition")
    assert mixed == {
        "port": 6818,
        "node": {"state": ["MIXED"]},
        "nodes": {
            "allocated": 2,
            "idle": 0,
            "other": 0,
            "total": 2,
            "hostnames": ["n1", "n2"],
            "addresses": ["n1", "h2"],
            "nodes": ["n1", "n2"],
        },
        "cpus": {
            "allocated": 3,
            "idle": 9,
            "other": 0,
            "total": 12,
            "minimum": 4,
            "maximum": 8,
            "load": {"minimum": 25, "maximum": 25},
            "per_node": {"max": number(None, infinite=True)},
        },
        "sockets": {"minimum": 1, "maximum": 1},
        "cores": {"minimum": 4, "maximum": 4},
        "threads": {"minimum": 1, "maximum": 1},
        "disk": {"minimum": 0, "maximum": 0},
        "memory": {
            "minimum": 1000,
            "maximum": 2000,
            "free": {"minimum": number(500), "maximum": number(700)},
            "allocated": 100,
        },
        "weight": {"minimum": 1, "maximum": 3},
        "features": {"total": "big,fast", "active": "big,fast"},
        "gres": {"total": "gpu:h100:2", "used": "gpu:h100:1(IDX:0)"},
        "cluster": "alpha",
        "comment": "",
        "extra": "",
        "reason": {"description": "", "time": number(None), "user": ""},
        "reservation": "",
    }
    assert down["node"]["state"] == ["DOWN", "NOT_RESPONDING", "DRAIN"]
    assert down["reason"] == {"description": "bad disk", "time": number(NOW), "user": "root"}
    assert down["memory"]["free"] == {"minimum": number(None), "maximum": number(None)}
    assert (partition["name"], partition["partition"]) == ("debug", {"state": ["UP"]})
    assert partition["nodes"] == {"allowed_allocation": "", "configured": "n[1-3]", "total": 3}
    assert partition["maximums"]["time"] == number(60)
    assert partition["maximums"]["oversubscribe"] == {"jobs": 4, "flags": ["force"]}
    keys = (
        "nodes accounts groups qos alternate tres cluster select_type cpus defaults grace_time maximums"
        " minimums name node_sets priority timeouts partition suspend_time topology"
    )
    assert " ".join(partition) == keys
    (one,) = told("sinfo", "--json", "-t", "down", "-o", "%x")["sinfo"]
    assert one["nodes"]["nodes"] == ["n3"]


def test_sdiag(told, peer):
    peer.answers["Ping"] = pb.PingResponse(hostname="ctl1", cluster_name="alpha")
    peer.answers["GetStatistics"] = pb.GetStatisticsResponse(
        at=NOW,
        since=NOW - 60,
        calls_open=1,
        jobs_submitted=3,
        scheduler=pb.SchedulerFigures(
            cycles=2, total_secs=0.002, last_secs=0.001, first_at=NOW - 60, whole=2
        ),
        by_method=[pb.CallCount(name="GetPartitions", count=2, total_secs=0.0004)],
        by_user=[pb.CallCount(name="alice", uid=1000, count=2, total_secs=0.0004)],
    )
    found = told("sdiag", "--json")["statistics"]
    assert found["req_time_start"] == number(NOW - 60)
    assert (found["jobs_submitted"], found["server_thread_count"]) == (3, 1)
    assert found["schedule_cycle_mean"] == 1000
    assert found["schedule_cycle_per_minute"] == 2
    assert found["schedule_exit"]["end_job_queue"] == 2
    assert found["rpcs_by_message_type"] == [
        {
            "message_type": "REQUEST_PARTITION_INFO",
            "type_id": 2009,
            "count": 2,
            "queued": 0,
            "dropped": 0,
            "cycle_last": 0,
            "cycle_max": 0,
            "total_time": 400,
            "average_time": number(200),
        }
    ]
    assert found["rpcs_by_user"] == [
        {"user_id": 1000, "user": "alice", "count": 2, "total_time": 400, "average_time": number(200)}
    ]
    assert found["bf_when_last_cycle"] == number(0) | {"set": True}
    wanted = (
        "parts_packed req_time req_time_start server_thread_count agent_queue_size agent_count"
        " agent_thread_count dbd_agent_queue_size gettimeofday_latency"
        " schedule_cycle_max schedule_cycle_last schedule_cycle_sum"
        " schedule_cycle_total schedule_cycle_mean schedule_cycle_mean_depth schedule_cycle_per_minute"
        " schedule_cycle_depth schedule_exit schedule_queue_length jobs_submitted jobs_started jobs_completed"
        " jobs_canceled jobs_failed jobs_pending jobs_running job_states_ts rpcs_by_message_type rpcs_by_user"
        " pending_rpcs pending_rpcs_by_hostlist"
    )
    assert not set(wanted.split()) - set(found)


def test_yaml(cli, history):
    out = cli("sacct", "-j", "39", "--yaml").out
    assert out.startswith('---\njobs:\n  -\n    account: "phys"\n')
