"""scontrol: records, changes and refusals."""

import pytest

from spur_core.states import NodeFlag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0
JOB = c.JobInfo(
    job_id=39,
    name="wrap",
    user="root",
    uid=0,
    gid=0,
    group="root",
    account="root",
    qos="normal",
    partition="debug",
    state=c.JOB_STATE_RUNNING,
    reason="None",
    priority=11213,
    requeue=True,
    batch=True,
    submit_at=NOW - 20,
    eligible_at=NOW - 20,
    start_at=NOW - 13,
    end_at=NOW + 647,
    time_limit_secs=660,
    run_secs=13,
    last_sched_at=NOW - 13,
    nodelist="n[1-2]",
    batch_host="n1",
    num_nodes=2,
    num_cpus=3,
    num_tasks=3,
    cpus_per_task=1,
    memory_per_cpu_mb=1000,
    gres=["gpu:2"],
    req_tres="cpu=3,mem=300M,node=2,billing=3",
    alloc_tres="cpu=3,mem=300M,node=2,billing=3",
    work_dir="/path",
    command="/path/a.sh 2",
    stdout_path="slurm-%j.out",
    submit_line="sbatch a.sh 2",
    submit_host="host",
)
RECORD = """\
JobId=39 JobName=wrap
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=11213 Nice=0 Account=root QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:13 TimeLimit=00:11:00 TimeMin=N/A
   SubmitTime=2026-11-30T09:59:40 EligibleTime=2026-11-30T09:59:40
   AccrueTime=2026-11-30T09:59:40
   StartTime=2026-11-30T09:59:47 EndTime=2026-11-30T10:10:47 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-30T09:59:47 Scheduler=Main
   Partition=debug AllocNode:Sid=host:0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=3 NumTasks=3 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=3,mem=300M,node=2,billing=3
   AllocTRES=cpu=3,mem=300M,node=2,billing=3
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Exclusive=NO Contiguous=0 Licenses=(null) LicensesAlloc=(null) Network=(null)
   Command=/path/a.sh 2
   WorkDir=/path
   StdErr=/path/slurm-39.out
   StdIn=/dev/null
   StdOut=/path/slurm-39.out
   TresPerNode=gres/gpu:2
   \n
"""
NODE = c.NodeInfo(
    name="n1",
    base=c.NODE_BASE_MIXED,
    cpus=4,
    alloc_cpus=1,
    memory_mb=16000,
    alloc_memory_mb=400,
    free_memory_mb=21285,
    cpu_load=132,
    gres=[c.GresCount(name="gpu", type="mi300x", count=2)],
    gres_used=[c.GresCount(name="gpu", type="mi300x", count=1)],
    sockets=1,
    cores_per_socket=4,
    threads_per_core=1,
    weight=1,
    features=["mi300x", "nvlink"],
    address="10.0.0.1",
    port=6818,
    hostname="n1",
    version="25.11.0",
    arch="x86_64",
    os="Linux 6.1.0 #1 SMP",
    boot_at=NOW - 100,
    agent_start_at=NOW - 50,
    partitions=["debug"],
    reason="bad disk",
    reason_user="root",
    reason_at=NOW,
)
NODE_RECORD = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=4\x20
   CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=1.32
   AvailableFeatures=mi300x,nvlink
   ActiveFeatures=mi300x,nvlink
   Gres=gpu:mi300x:2
   NodeAddr=10.0.0.1 NodeHostName=n1 Version=25.11.0
   OS=Linux 6.1.0 #1 SMP\x20
   RealMemory=16000 AllocMem=400 FreeMem=21285 Sockets=1 Boards=1
   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=debug\x20
   BootTime=2026-11-30T09:58:20 SlurmdStartTime=2026-11-30T09:59:10
   LastBusyTime=Unknown ResumeAfterTime=None
   CfgTRES=cpu=4,mem=16000M,billing=4,gres/gpu=2
   AllocTRES=cpu=1,mem=400M,gres/gpu=1
   CurrentWatts=0 AveWatts=0
   Reason=bad disk [root@2026-11-30T10:00:00]

"""
PARTITION = c.PartitionInfo(
    name="cpu",
    state="UP",
    nodes="c[01-02]",
    node_names=["c01", "c02"],
    total_nodes=2,
    total_cpus=16,
    total_memory_mb=64000,
    max_time_secs=86400,
    default_time_secs=3600,
    priority_tier=5,
    priority_job_factor=7,
    def_memory_per_cpu_mb=1000,
    tres="cpu=16,mem=62.50G,node=2,billing=16",
)
PARTITION_RECORD = """\
PartitionName=cpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED
   Nodes=c[01-02]
   PriorityJobFactor=7 PriorityTier=5 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerCPU=1000 MaxMemPerNode=UNLIMITED
   TRES=cpu=16,mem=62.50G,node=2,billing=16

"""


@pytest.fixture
def cluster(peer):
    def jobs(request):
        wanted = {target.job_id for target in request.jobs}
        found = [JOB] if not wanted or JOB.job_id in wanted else []
        return pb.GetJobsResponse(jobs=found)

    def done(answer):
        return lambda request: answer(results=[pb.TargetResult(target=t) for t in request.targets])

    peer.answers.update(
        GetJobs=jobs,
        GetNodes=pb.GetNodesResponse(nodes=[NODE]),
        GetPartitions=pb.GetPartitionsResponse(partitions=[PARTITION]),
        ListReservations=pb.ListReservationsResponse(),
        GetLicenses=pb.GetLicensesResponse(),
        GetConfig=pb.GetConfigResponse(
            entries=[
                pb.ConfigEntry(key="MinJobAge", value="300 sec"),
                pb.ConfigEntry(key="AuthType"),
            ],
            server_time=NOW,
        ),
        Ping=pb.PingResponse(hostname="ctl1", cluster_name="alpha"),
        UpdateJob=done(pb.UpdateJobResponse),
        RequeueJob=done(pb.RequeueJobResponse),
        UpdateNode=pb.UpdateNodeResponse(),
    )
    return peer


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["show", "job", "39"], RECORD),
        (["show", "job"], RECORD),
        (["sh", "jobs", "39"], RECORD),
        (["show", "job=39"], RECORD),
        (["show", "node", "n1"], NODE_RECORD),
        (["show", "part", "cpu"], PARTITION_RECORD),
        (["show", "partition"], PARTITION_RECORD),
        (["show", "re"], None),
        (["show", "res"], "No reservations in the system\n"),
        (["show", "reservation"], "No reservations in the system\n"),
        (["show", "lic"], "No licenses configured in Slurm.\n"),
        (["show", "daemons"], "slurmctld slurmd\n"),
        (["version"], "slurm 25.11.0\n"),
        (["ping"], "Slurmctld(primary) at ctl1 is UP\n"),
        (
            ["show", "config"],
            "Configuration data as of 2026-11-30T10:00:00\n"
            "AuthType                = (null)\n"
            "MinJobAge               = 300 sec\n"
            "\n"
            "Slurmctld(primary) at ctl1 is UP\n",
        ),
    ],
)
def test_show(cli, cluster, words, out):
    result = cli("scontrol", *words)
    if out is None:
        assert result.code == 1
        return
    assert result == (0, out, "")


def test_one_line_records_have_a_key_in_every_word(cli, cluster):
    for words in (["show", "job", "-o", "39"], ["-o", "show", "part"]):
        out = cli("scontrol", *words).out
        assert out.count("\n") == 1
        assert "  " not in out
    words = cli("scontrol", "show", "part", "-o").out.split()
    assert all("=" in word and word.partition("=")[2] for word in words)


def test_details(cli, cluster):
    out = cli("scontrol", "-d", "show", "job", "39").out
    assert "   DerivedExitCode=0:0\n" in out
    assert "   SubmitLine=sbatch a.sh 2\n" in out
    assert "   GresUsed=gpu:mi300x:1\n" in cli("scontrol", "-d", "show", "node").out


def test_what_a_job_has_on_each_node(cli, cluster):
    gres = (
        c.GresCount(name="gpu", type="a100", count=3, indices="0-1,3"),
        c.GresCount(name="tape", count=2),
    )
    chosen = c.NodeSlice(node="n1", cpus=5, memory_mb=100, gres=gres, cpu_ids="0-3,8")
    left = c.NodeSlice(node="n2", cpus=2, memory_mb=0)
    cluster.answers["GetJobs"] = pb.GetJobsResponse(jobs=[c.JobInfo(job_id=39, slices=[chosen, left])])
    out = cli("scontrol", "-d", "show", "job", "39").out
    assert "     Nodes=n1 CPU_IDs=0-3,8 Mem=100 GRES=gpu:a100:3(IDX:0-1,3),tape:2\n" in out
    assert "     Nodes=n2 CPUs=2 Mem=0 GRES=\n" in out


def test_an_array_shows_what_waits_first(cli, cluster):
    tasks = [
        c.JobInfo(job_id=13, array_job_id=13, array_pending="2-9%2", array_throttle=2),
        c.JobInfo(job_id=14, array_job_id=13, array_task_id=0),
        c.JobInfo(job_id=15, array_job_id=13, array_task_id=1),
    ]
    cluster.answers["GetJobs"] = pb.GetJobsResponse(jobs=tasks)
    lines = [line for line in cli("scontrol", "show", "job", "13").out.splitlines() if "JobId=" in line]
    assert lines == [
        "JobId=13 ArrayJobId=13 ArrayTaskId=2-9%2 ArrayTaskThrottle=2 JobName=",
        "JobId=15 ArrayJobId=13 ArrayTaskId=1 JobName=",
        "JobId=14 ArrayJobId=13 ArrayTaskId=0 JobName=",
    ]


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["show", "job", "9"], "slurm_load_jobs error: Invalid job id specified\n"),
        (["show", "job", "x"], "scontrol_print_job error: Invalid job id specified\n"),
        (["show", "node", "x"], "Node x not found\n"),
        (["show", "part", "x"], "Partition x not found\n"),
        (["show", "reservation", "x"], "Reservation x not found\n"),
        (["show", "bogus"], "invalid entity:bogus for keyword:show \n"),
        (["show", "step", "x"], "Invalid job step id specified: x\n"),
        (["suspend"], "too few arguments for keyword:suspend\n"),
        (["resume"], "too few arguments for keyword:resume\n"),
        (["bogus"], "invalid keyword: bogus\n"),
        (["reboot", "n1"], "scontrol: error: reboot is not supported by this release\n"),
        (["write", "config"], "scontrol: error: write config is not supported by this release\n"),
        (["write", "bogus"], "invalid write argument: bogus\n"),
        (["write", "batch_script"], "too few arguments for keyword:write\n"),
        (["update"], None),
        (["update", "JobId=1"], "No changes specified\n"),
        (
            ["update", "JobId=1", "bogus=1"],
            "Update of this parameter is not supported: bogus=1\nRequest aborted\n",
        ),
        (
            ["update", "JobId=1", "BurstBuffer=1"],
            "Update of this parameter is not supported: BurstBuffer=1\nRequest aborted\n",
        ),
        (
            ["update", "NodeName=n1", "State=DRAIN"],
            "You must specify a reason when DOWNING or DRAINING a node. Request denied\n",
        ),
        (["update", "PartitionName=x"], "No changes specified\n"),
        (
            ["update", "partition=x", "State"],
            "Update of this parameter is not supported: State\nRequest aborted\n",
        ),
        (["create", "partition", "Nodes=n1"], "PartitionName must be given.  Request aborted\n"),
        (["update", "JobId=1", "TimeLimit=x"], "Invalid TimeLimit value: x\nRequest aborted\n"),
        (["hold"], "too few arguments for keyword:hold\n"),
        (["hold", "x"], "Invalid job id specified for job x\n"),
    ],
)
def test_errors(cli, cluster, words, err):
    result = cli("scontrol", *words)
    assert (result.code, result.out) == (1, "")
    if err is not None:
        assert result.err == err
    assert result.err.count("\n") <= 2


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["hostnames", "n[1-3,5]"], "n1\nn2\nn3\nn5\n"),
        (["hostname", "n1"], "n1\n"),
        (["hostlist", "n3,n1,n2"], "n[3,1-2]\n"),
        (["hostlistsorted", "n3,n1,n2,n1"], "n[1-3]\n"),
    ],
)
def test_hostlists_need_no_controller(cli, free_port, words, out):
    env = {"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"}
    assert cli("scontrol", "show", *words, env=env) == (0, out, "")


def test_hostnames_of_the_environment(cli):
    assert cli("scontrol", "show", "hostnames", env={"SLURM_JOB_NODELIST": "a[1-2]"}).out == "a1\na2\n"
    assert cli("scontrol", "show", "hostnames") == (0, "", "scontrol: error: host list is empty\n")
    assert cli("scontrol", "show", "hostnames", "n[3-1]") == (
        1,
        "",
        "scontrol: error: Invalid range: 3-1\nInvalid hostlist: n[3-1]\n",
    )


@pytest.mark.parametrize(
    ("words", "action"),
    [(["hold", "1,2"], 1), (["uhold", "1", "2"], 2), (["release", "1,2"], 3)],
)
def test_holds_are_silent(cli, cluster, words, action):
    assert cli("scontrol", *words) == (0, "", "")
    request = cluster.last("UpdateJob")
    assert [target.job_id for target in request.targets] == [1, 2]
    assert request.hold == action


def test_hold_failure(cli, cluster):
    target = pb.JobTarget(job_id=9)
    cluster.answers["UpdateJob"] = pb.UpdateJobResponse(
        results=[pb.TargetResult(target=target, code="no_such_job", text="Invalid job id specified")]
    )
    assert cli("scontrol", "hold", "9") == (
        1,
        "",
        "slurm_suspend error: Invalid job id specified\nInvalid job id specified for job 9\n",
    )
    result = cli("scontrol", "update", "jobid=9", "comment=x")
    assert result == (1, "", "Invalid job id specified for job 9\n")


@pytest.mark.parametrize(
    ("words", "hold", "incomplete"),
    [
        (["requeue", "12_3"], False, False),
        (["requeuehold", "12_3"], True, False),
        (["requeue", "Incomplete", "12_3"], False, True),
    ],
)
def test_requeue(cli, cluster, words, hold, incomplete):
    assert cli("scontrol", *words) == (0, "", "")
    request = cluster.last("RequeueJob")
    assert (request.hold, request.incomplete_only) == (hold, incomplete)
    assert (request.targets[0].job_id, request.targets[0].array_tasks) == (12, "3")


def test_by_job_name(cli, cluster):
    assert cli("scontrol", "hold", "jobname=wrap").code == 0
    assert [target.job_id for target in cluster.last("UpdateJob").targets] == [39]
    assert cli("scontrol", "hold", "jobname=zzz") == (1, "", "Job name zzz not found\n")


@pytest.mark.parametrize(
    ("words", "wishes"),
    [
        (["TresPerJob=gres/gpu:4"], {"gres_total": ["gpu:4"]}),
        (
            ["TresPerTask=gres/gpu:h100:1", "TresPerJob="],
            {"gres_per_task": ["gpu:h100:1"], "gres_total": ["none"]},
        ),
        (["CpusPerTres=gres/gpu:2", "MemPerTres=gpu:1G"], {"cpus_per_gpu": 2, "memory_per_gpu_mb": 1024}),
        (["Contiguous=yes", "MinCPUsNode=4"], {"contiguous": True, "min_cpus": 4}),
        (["MinTmpDiskNode=1G"], {"tmp_disk_mb": 1024}),
        (
            ["ReqSockets=2", "ReqCores=4", "ReqThreads=1"],
            {"sockets_per_node": 2, "cores_per_socket": 4, "threads_per_core": 1},
        ),
        (["TimeMin=10"], {"time_min_secs": 600}),
        (["OverSubscribe=yes"], {"oversubscribe": True}),
        (["Switches=2@10"], {"switches": 2, "switches_wait_secs": 600}),
        (["ReqSwitch=1"], {"switches": 1}),
        (["Switches=0"], {"switches": 0}),
    ],
)
def test_update_what_a_job_asks_for(cli, cluster, words, wishes):
    assert cli("scontrol", "update", "JobId=39", *words) == (0, "", "")
    assert cluster.last("UpdateJob").wishes == c.JobWishes(**wishes)


@pytest.mark.parametrize(
    "word", ["CpusPerTres=2", "MemPerTres=license/x:3", "Contiguous=maybe", "TimeMin=x", "Switches=x@1"]
)
def test_values_that_cannot_be(cli, cluster, word):
    found = cli("scontrol", "update", "JobId=39", word)
    assert found.code == 1
    assert "Request aborted" in found.err


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["TasksPerNode=2", "WCKey=k", "StdIn=f"], {"tasks_per_node": 2, "wckey": "k", "stdin_path": "f"}),
        (["Deadline=now+1hour"], {"deadline_at": NOW + 3600}),
        (["OverSubscribe=no"], {"exclusive": True}),
        (["TimeLimit=30"], {"time_limit_secs": 1800}),
        (["timelimit=+30"], {"time_limit_delta_secs": 1800}),
        (["TimeLimit=-10"], {"time_limit_delta_secs": -600}),
        (["TimeLimit+=5"], {"time_limit_delta_secs": 300}),
        (["TimeLimit=UNLIMITED"], {"time_limit_secs": 0xFFFFFFFF}),
        (["Priority=5", "Nice=7"], {"priority": 5, "nice": 7}),
        (["SiteFactor=-12"], {"site_factor": -12}),
        (["SiteFactor=2147483645"], {"site_factor": 2147483645}),
        (["NumNodes=2-4", "NumTasks=8", "CPUsPerTask=2"], {"min_nodes": 2, "max_nodes": 4, "num_tasks": 8}),
        (["MinMemoryNode=4G"], {"memory_per_node_mb": 4096}),
        (["MinMemoryCPU=1G"], {"memory_per_cpu_mb": 1024}),
        (["Partition=x", "Account=a", "QOS=q", "Comment=a b"], {"partition": "x", "comment": "a b"}),
        (["Requeue=0"], {"requeue": False}),
        (["Requeue=yes"], {"requeue": True}),
        (["Name=new", "Dependency="], {"name": "new", "dependency": ""}),
        (["StartTime=now+1hour"], {"begin_at": NOW + 3600}),
        (["TresPerNode=gres/gpu:2"], {"gres": "gpu:2"}),
        (["ArrayTaskThrottle=3"], {"array_throttle": 3}),
        (["ExcNodeList=n1", "ReqNodeList=n2", "Features=f"], {"exc_nodelist": "n1", "req_nodelist": "n2"}),
    ],
)
def test_update_job(cli, cluster, words, fields):
    assert cli("scontrol", "update", "JobId=39", *words) == (0, "", "")
    request = cluster.last("UpdateJob")
    assert [target.job_id for target in request.targets] == [39]
    for name, value in fields.items():
        assert request.HasField(name)
        assert getattr(request, name) == value


def test_update_node(cli, cluster):
    words = ["update", "NodeName=n[1-2]", "State=drain", "Reason=bad disk", "Weight=5"]
    assert cli("scontrol", *words) == (0, "", "")
    request = cluster.last("UpdateNode")
    assert (request.names, request.state, request.reason, request.weight) == (
        "n[1-2]",
        "DRAIN",
        "bad disk",
        5,
    )


def test_prompt(cli, cluster):
    result = cli("scontrol", stdin=b"version\nbogus\nshow hostnames 'a[1-2]'\nexit\nversion\n")
    assert result.out == "scontrol: slurm 25.11.0\nscontrol: scontrol: a1\na2\nscontrol: "
    assert result.err == "invalid keyword: bogus\n"
    assert result.code == 1


def test_ping_with_no_controller(cli, free_port, peer, cluster):
    down = f"127.0.0.1:{free_port}"
    assert cli("scontrol", "ping", env={"SPUR_CONTROLLER_ADDR": down}) == (
        1,
        "Slurmctld(primary) at 127.0.0.1 is DOWN\n",
        "",
    )
    both = cli("scontrol", "ping", env={"SPUR_CONTROLLER_ADDR": f"{down},{peer.address}"})
    assert both == (
        0,
        "Slurmctld(primary) at 127.0.0.1 is DOWN\nSlurmctld(backup) at ctl1 is UP\n",
        "",
    )


def test_empty_lists(cli, cluster):
    cluster.answers["GetJobs"] = pb.GetJobsResponse()
    cluster.answers["GetNodes"] = pb.GetNodesResponse()
    assert cli("scontrol", "show", "job") == (0, "No jobs in the system\n", "")
    assert cli("scontrol", "show", "node") == (0, "No nodes in the system\n", "")


def test_down_nodes_print_every_line(cli, cluster):
    bare = c.NodeInfo(name="n9", base=c.NODE_BASE_DOWN, flags=int(NodeFlag.NOT_RESPONDING))
    cluster.answers["GetNodes"] = pb.GetNodesResponse(nodes=[bare])
    out = cli("scontrol", "show", "node", "n9").out
    assert len(out.splitlines()) == len(NODE_RECORD.splitlines()) - 1
    assert "State=DOWN* " in out
    assert "FreeMem=N/A" in out
    assert "BootTime=None SlurmdStartTime=None" in out


def test_what_a_job_asks_for_is_shown(cli, peer):
    job = c.JobInfo()
    job.CopyFrom(JOB)
    del job.gres[:]
    job.tasks_per_node = 2
    job.wishes.CopyFrom(
        c.JobWishes(
            gres_total=["gpu:h100:4"],
            cpus_per_gpu=2,
            memory_per_gpu_mb=3072,
            ntasks_per_socket=1,
            min_cpus=8,
            sockets_per_node=2,
            threads_per_core=1,
            tmp_disk_mb=2048,
            contiguous=True,
            exclusive_user=True,
            time_min_secs=600,
        )
    )
    peer.answers["GetJobs"] = pb.GetJobsResponse(jobs=[job])
    out = cli("scontrol", "show", "job", "39").out
    for text in (
        "TimeMin=00:10:00",
        "ReqB:S:C:T=0:0:*:1",
        "Socks/Node=2 NtasksPerN:B:S:C=2:0:1:* CoreSpec=*",
        "MinCPUsNode=8 MinMemoryCPU=1000M MinTmpDiskNode=2G",
        "OverSubscribe=USER Exclusive=USER Contiguous=1",
        "   CpusPerTres=gres/gpu:2\n   MemPerTres=gres/gpu:3072\n   TresPerJob=gres/gpu:h100:4\n",
    ):
        assert text in out, out
    letters = cli("squeue", "-h", "-t", "all", "-o", "%b %H %I %J %z %h %d %c %O").out
    assert letters == "N/A 2 * 1 2:*:1 USER 2G 8 1\n"
    names = "tres-per-job:|,cpus-per-tres:|,MinTime:|,NTPerSocket:|,NTPerCore:|,Exclusive:|"
    assert cli("squeue", "-h", "-t", "all", "-O", names).out == "gres/gpu:h100:4|gres/gpu:2|10:00|1|*|USER|\n"


@pytest.mark.parametrize(
    ("words", "method", "changes"),
    [
        (
            ["update", "PartitionName=x", "State=UP", "MaxTime=5"],
            "UpdatePartition",
            ["State=UP", "MaxTime=5"],
        ),
        (["update", "partition", "x", "State=DOWN"], "UpdatePartition", ["State=DOWN"]),
        (["update", "part=x", "Nodes=n[1-2]"], "UpdatePartition", ["Nodes=n[1-2]"]),
        (["create", "partition", "PartitionName=x", "Nodes=ALL"], "CreatePartition", ["Nodes=ALL"]),
        (["create", "PartitionName=x", "Nodes=n1"], "CreatePartition", ["Nodes=n1"]),
        (["delete", "PartitionName=x"], "DeletePartition", None),
        (["delete", "partition", "x"], "DeletePartition", None),
    ],
)
def test_partitions_are_changed(cli, cluster, words, method, changes):
    cluster.answers.update(
        UpdatePartition=pb.UpdatePartitionResponse(),
        CreatePartition=pb.CreatePartitionResponse(),
        DeletePartition=pb.DeletePartitionResponse(),
    )
    assert cli("scontrol", *words) == (0, "", "")
    request = cluster.last(method)
    assert request.name == "x"
    if changes is not None:
        assert [f"{one.key}={one.value}" for one in request.changes] == changes
