"""sacct: the table printer, fields, windows and filters."""

import grpc
import pytest

from spur_cli.history import fields
from spur_core.ids import STEP_BATCH
from spur_proto import accounting_pb2 as pb
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2

NOW = 1796032800.0
CANCELLED = pb.JobHistory(
    job_id=4,
    name="wrap",
    user="root",
    partition="debug",
    account="root",
    state=c.JOB_STATE_CANCELLED,
    kill_uid=1000,
    alloc_cpus=1,
    req_cpus=1,
    submit_at=NOW - 100,
    eligible_at=NOW - 100,
    start_at=NOW - 90,
    end_at=NOW - 30,
    time_limit_secs=600,
    nodelist="n1",
    alloc_nodes=1,
    req_nodes=1,
    req_mem_mb=16000,
    alloc_tres="cpu=1,mem=16000M,node=1,billing=1",
    steps=[
        pb.StepHistory(
            step_id=STEP_BATCH,
            name="batch",
            state=c.JOB_STATE_CANCELLED,
            exit=c.ExitStatus(signal=15),
            alloc_cpus=1,
            num_nodes=1,
            num_tasks=1,
            nodelist="n1",
            start_at=NOW - 90,
            end_at=NOW - 30,
            user_secs=1.5,
            system_secs=0.25,
            max_rss_kb=1780,
        ),
    ],
)
PENDING = pb.JobHistory(
    job_id=13,
    array_job_id=13,
    array_pending="2-3%2",
    name="sweep",
    user="alice",
    partition="debug",
    state=c.JOB_STATE_PENDING,
    submit_at=NOW - 10,
    eligible_at=NOW - 10,
    req_cpus=2,
    time_limit_secs=0xFFFFFFFF,
)
RUNNING = pb.JobHistory(
    job_id=14,
    array_job_id=13,
    array_task_id=0,
    name="sweep",
    state=c.JOB_STATE_RUNNING,
    submit_at=NOW - 10,
    start_at=NOW - 5,
    alloc_cpus=2,
)


@pytest.fixture
def history(peer):
    peer.answers["GetJobHistory"] = pb.GetJobHistoryResponse(jobs=[CANCELLED, PENDING, RUNNING])
    return peer


def test_default_table(cli, history):
    assert cli("sacct").out == (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "4                  wrap      debug       root          1 CANCELLED+      0:0 \n"
        "4.batch           batch                  root          1  CANCELLED     0:15 \n"
        "13_[2-3%2]        sweep      debug                     0    PENDING      0:0 \n"
        "13_0              sweep                                2    RUNNING      0:0 \n"
    )


def test_brief_and_allocations(cli, history):
    assert cli("sacct", "-Xnb").out == (
        "4            CANCELLED+      0:0 \n"
        "13_[2-3%2]      PENDING      0:0 \n"
        "13_0            RUNNING      0:0 \n"
    )
    assert history.last("GetJobHistory").without_steps
    assert cli("sacct", "-XnP", "-o", "totalcpu", "-j", "4").out == "00:01.750\n"
    assert not history.last("GetJobHistory").without_steps


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-P", "-o", "JobID,State,ExitCode"], "4|CANCELLED by 1000|0:0"),
        (["-p", "-o", "jobid,state"], "4|CANCELLED by 1000|"),
        (["-P", "--delimiter", ";", "-o", "jobid,user"], "4;root"),
        (["-P", "--delimiter", "\x1f", "-o", "jobid,user"], "4\x1froot"),
        (["-P", "--delimiter", "\\x1F", "-o", "jobid,user"], "4\x1froot"),
        (["-P", "--delimiter", "\\t", "-o", "jobid,user"], "4\troot"),
        (["-P", "-o", "jobidraw,elapsed,elapsedraw,cputimeraw"], "4|00:01:00|60|60"),
        (["-P", "-o", "start,end,submit"], "2026-11-30T09:58:30|2026-11-30T09:59:30|2026-11-30T09:58:20"),
        (["-P", "-o", "timelimit,timelimitraw,reqmem"], "00:10:00|10|16000M"),
        (["-P", "-o", "alloctres"], "billing=1,cpu=1,mem=16000M,node=1"),
        (["-P", "-o", "totalcpu,usercpu,systemcpu"], "00:01.750|00:01.500|00:00.250"),
        (["-P", "-o", "planned,nnodes,ncpus,nodelist"], "00:00:10|1|1|n1"),
        (["-P", "-o", "maxrss,ntasks,reason"], "||None"),
        (["-P", "--units=G", "-o", "reqmem"], "15.62G"),
        (["-P", "--units=g", "-o", "alloctres"], "billing=1,cpu=1,mem=15.62G,node=1"),
        (["-P", "--noconvert", "-o", "alloctres,reqmem"], "billing=1,cpu=1,mem=16000M,node=1|16000M"),
        (["-o", "state%20,jobid%-4,jobid%3"], "   CANCELLED by 1000 4      4 "),
        (["-o", "jobname%2"], "w+ "),
        (["-P", "-o", "jobid,,state,"], "4|CANCELLED by 1000"),
        (["-P", "--form=jobi"], "4"),
    ],
)
def test_values(cli, history, words, line):
    assert cli("sacct", "-n", "-X", *words).out.split("\n")[0] == line


#: One job and one step with all that accounting knows of them.
FULL = pb.JobHistory(
    db_index=77,
    job_id=21,
    cluster="alpha",
    name="wrap",
    user="alice",
    uid=4000001,
    gid=4000002,
    account="phys",
    partition="debug",
    qos="normal",
    state=c.JOB_STATE_FAILED,
    reason="NonZeroExitCode",
    exit=c.ExitStatus(code=3),
    derived_exit=c.ExitStatus(code=4),
    submit_at=NOW - 4000,
    eligible_at=NOW - 3900,
    start_at=NOW - 3800,
    end_at=NOW - 100,
    suspended_secs=100,
    time_limit_secs=7200,
    req_cpus=4,
    alloc_cpus=4,
    req_nodes=1,
    alloc_nodes=2,
    req_mem_mb=4096,
    nodelist="n[1-2]",
    req_tres="cpu=4,mem=4096M,node=1,gres/gpu=2",
    alloc_tres="cpu=4,mem=4096M,node=2,billing=4,gres/gpu=2",
    priority=7,
    work_dir="/home/alice",
    submit_line="sbatch a.sh",
    comment="so so",
    constraint="big&fast",
    stdout_path="/o",
    stderr_path="/e",
    stdin_path="/i",
    restarts=2,
    wckey="key",
    flags="SchedMain",
    reservation="r1",
    req_reservation="r1,r2",
    licenses="lic:1",
    steps=[
        pb.StepHistory(
            step_id=0,
            name="calc",
            state=c.JOB_STATE_COMPLETED,
            start_at=NOW - 3700,
            end_at=NOW - 200,
            num_tasks=4,
            alloc_cpus=3,
            num_nodes=2,
            nodelist="n[1-2]",
            alloc_tres="cpu=3,mem=2G",
            user_secs=4000.5,
            system_secs=30.25,
            max_rss_kb=2048,
            max_rss_node="n2",
            layout="Block",
        )
    ],
)
#: Field, text of the allocation, text of the step.
TEXTS = [
    ("Account", "phys", "phys"),
    ("AllocCPUS", "4", "3"),
    ("AllocNodes", "2", "2"),
    ("AllocTRES", "billing=4,cpu=4,gres/gpu=2,mem=4G,node=2", "cpu=3,mem=2G"),
    ("AveCPU", "", "00:16:47"),
    ("Cluster", "alpha", "alpha"),
    ("Comment", "so so", ""),
    ("Constraints", "big&fast", ""),
    ("CPUTime", "04:00:00", "02:55:00"),
    ("CPUTimeRAW", "14400", "10500"),
    ("DBIndex", "77", ""),
    ("DerivedExitCode", "4:0", ""),
    ("Elapsed", "01:00:00", "00:58:20"),
    ("ElapsedRaw", "3600", "3500"),
    ("Eligible", "2026-11-30T08:55:00", ""),
    ("End", "2026-11-30T09:58:20", "2026-11-30T09:56:40"),
    ("ExitCode", "3:0", "0:0"),
    ("Flags", "SchedMain", ""),
    ("GID", "4000002", ""),
    ("Group", "4000002", ""),
    ("JobID", "21", "21.0"),
    ("JobIDRaw", "21", "21.0"),
    ("JobName", "wrap", "calc"),
    ("Layout", "", "Block"),
    ("Licenses", "lic:1", ""),
    ("MaxRSS", "", "2M"),
    ("MaxRSSNode", "", "n2"),
    ("NCPUS", "4", "3"),
    ("NNodes", "2", "2"),
    ("NodeList", "n[1-2]", "n[1-2]"),
    ("NTasks", "", "4"),
    ("Partition", "debug", ""),
    ("Planned", "00:01:40", ""),
    ("PlannedCPU", "00:06:40", ""),
    ("PlannedCPURAW", "400", ""),
    ("Priority", "7", ""),
    ("QOS", "normal", ""),
    ("QOSREQ", "normal", ""),
    ("Reason", "NonZeroExitCode", ""),
    ("ReqCPUS", "4", "3"),
    ("ReqMem", "4G", ""),
    ("ReqNodes", "1", "2"),
    ("ReqReservation", "r1,r2", ""),
    ("ReqTRES", "cpu=4,gres/gpu=2,mem=4G,node=1", ""),
    ("Reservation", "r1", ""),
    ("Restarts", "2", ""),
    ("Start", "2026-11-30T08:56:40", "2026-11-30T08:58:20"),
    ("State", "FAILED", "COMPLETED"),
    ("StdErr", "/e", ""),
    ("StdIn", "/i", ""),
    ("StdOut", "/o", ""),
    ("Submit", "2026-11-30T08:53:20", ""),
    ("SubmitLine", "sbatch a.sh", ""),
    ("Suspended", "00:01:40", "00:00:00"),
    ("SystemCPU", "00:30.250", "00:30.250"),
    ("Timelimit", "02:00:00", ""),
    ("TimelimitRaw", "120", ""),
    ("TotalCPU", "01:07:10", "01:07:10"),
    ("UID", "4000001", ""),
    ("User", "alice", ""),
    ("UserCPU", "01:06:40", "01:06:40"),
    ("WCKey", "key", ""),
    ("WorkDir", "/home/alice", ""),
]


def test_every_field_by_itself():
    found = {}
    job, step = fields.rows_of(FULL, fields.View(NOW), steps=True)
    for name, _, text in fields.FIELDS:
        found[name] = (text(job), text(step))
    told = {name: (of_job, of_step) for name, of_job, of_step in TEXTS}
    assert {name: texts for name, texts in found.items() if any(texts)} == told
    # What is not collected is an empty cell.
    assert all(texts == ("", "") for name, texts in found.items() if name not in told)


def test_step_values(cli, history):
    out = cli(
        "sacct", "-nP", "-o", "jobid,jobidraw,user,partition,reqmem,maxrss,ntasks,exitcode,timelimit"
    ).out
    assert out.splitlines()[1] == "4.batch|4.batch||||1780K|1|0:15|"


def test_jobs_that_have_not_started_or_ended(cli, history):
    out = cli("sacct", "-nXP", "-o", "jobid,start,end,nodelist,alloctres,timelimit,elapsed").out
    assert out.splitlines()[1:] == [
        "13_[2-3%2]|Unknown|Unknown|None assigned||UNLIMITED|00:00:00",
        "13_0|2026-11-30T09:59:55|Unknown|None assigned||Partition_Limit|00:00:05",
    ]


def test_never_started_cancelled_job():
    job = pb.JobHistory(job_id=1, state=c.JOB_STATE_CANCELLED, end_at=NOW)
    row = fields.Row(job, None, fields.View(NOW))
    assert [column.text(row) for column in fields.parse_format("start,state")] == ["None", "CANCELLED"]


def test_step_order():
    steps = [pb.StepHistory(step_id=i) for i in (1, 0, STEP_BATCH + 1, STEP_BATCH)]
    rows = fields.rows_of(pb.JobHistory(job_id=2, steps=steps), fields.View(NOW), steps=True)
    ids = fields.parse_format("jobid")[0]
    assert [ids.text(row) for row in rows] == ["2", "2.batch", "2.extern", "2.0", "2.1"]


def test_one_row_per_pending_task(cli, history):
    assert cli("sacct", "-nXP", "--array", "-o", "jobid").out == "4\n13_2\n13_3\n13_0\n"


def test_a_step_id_shows_only_that_step(cli, history):
    assert cli("sacct", "-nP", "-o", "jobid", "-j", "4.batch,13_0").out == "4.batch\n13_0\n"


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["-o", "bogus"], 1, 'sacct: error: Invalid field requested: "bogus"\n'),
        (["-B"], 1, "sacct: fatal: -B needs -j\n"),
        (["5", "6"], 1, "sacct: error: Unknown arguments: 5 6\n"),
        (["-s", "bogus"], 1, "sacct: fatal: unrecognized job state value 'bogus'\n"),
        (["-j", "bogus"], 1, "sacct: fatal: Bad job/step specified: bogus\n"),
        (["-S", "when"], 1, "Invalid time specification (pos=0): when\n"),
        (
            ["-S", "2026-11-30T09:00", "-E", "2026-11-29"],
            1,
            "sacct: error: Start time (2026-11-30T09:00:00) requested is after"
            " end time (2026-11-29T00:00:00).\n",
        ),
        (["-u", "no_such_user_here"], 1, "sacct: error: Invalid user id: no_such_user_here\n"),
        (["-N", "a", "-N", "b"], 1, "sacct: error: -N was given twice; give one comma list\n"),
        (["--json=v1"], 1, "sacct: error: --json=v1: no such data_parser; v0.0.40 to v0.0.44 are known\n"),
    ],
)
def test_bad_words(cli, history, words, code, err):
    assert cli("sacct", *words) == (code, "", err)


MIDNIGHT = NOW - 10 * 3600


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ([], MIDNIGHT, None),
        (["-j", "4"], 0.0, None),
        (["-s", "CD"], NOW, NOW),
        (["-s", "CD", "-S", "2026-11-30T09:00"], NOW - 3600, NOW - 3600),
        (["-j", "4", "-s", "CD"], 0.0, NOW),
        (["-S", "now-2hours"], NOW - 7200, None),
        (["-S", "2026-11-01", "-E", "now"], 1793491200.0, NOW),
        (["-S", "11:00"], NOW - 23 * 3600, None),
    ],
)
def test_windows(cli, history, words, start, end):
    assert cli("sacct", *words).code == 0
    request = history.last("GetJobHistory")
    assert request.window_start == start
    assert (request.window_end if request.HasField("window_end") else None) == end


def test_lists_add_up(cli, history):
    cli("sacct", "-j", "1", "-j", "2_3,4", "-A", "a", "-A", "b", "-q", "x,y", "-r", "p", "--name", "n", "-D")
    request = history.last("GetJobHistory")
    assert [(t.job_id, t.array_tasks) for t in request.jobs] == [(1, ""), (2, "3"), (4, "")]
    assert (list(request.accounts), list(request.qos)) == (["a", "b"], ["x", "y"])
    assert (list(request.partitions), list(request.names), request.duplicates) == (["p"], ["n"], True)


def test_client_side_filters(cli, history):
    def ids(*words):
        return cli("sacct", "-nXP", "-o", "jobidraw", *words).out.split()

    assert ids("-N", "n[1-2]") == ["4"]
    assert ids("--ncpus=2") == ["13", "14"]
    assert ids("-k", "5", "-K", "20") == ["4"]
    assert ids("-C", "big,fast") == []
    history.answers["GetJobHistory"] = pb.GetJobHistoryResponse(
        jobs=[pb.JobHistory(job_id=5, constraint="[big*2&fast]|old")]
    )
    assert ids("-C", "big,fast") == ["5"]
    assert ids("-C", "bi") == []


def test_devices_as_older_programs_ask_for_them(cli, history):
    history.answers["GetJobHistory"] = pb.GetJobHistoryResponse(
        jobs=[
            pb.JobHistory(job_id=5, alloc_tres="cpu=4,gres/gpu=2,gres/gpu:h100=2", req_tres="gres/gpu=1"),
            pb.JobHistory(job_id=6, alloc_tres="cpu=4"),
        ]
    )
    words = ("-a", "-X", "--format=Allocgres,reqgres", "--state=RUNNING", "--noheader", "--parsable2")
    assert cli("sacct", *words).out == "gpu:2|gpu:1\n|\n"
    assert "AllocGRES" not in cli("sacct", "--helpformat").out


def test_batch_scripts(cli, history, refuse):
    def jobs(request):
        number = request.jobs[0].job_id
        assert request.script
        if number == 4:
            return controller_pb2.GetJobsResponse(jobs=[c.JobInfo(job_id=4, script=b"#!/bin/sh\nexit 0")])
        raise refuse(grpc.StatusCode.NOT_FOUND, "Invalid job id specified", "no_such_job")

    history.answers["GetJobs"] = jobs
    history.answers["GetJobHistory"] = pb.GetJobHistoryResponse(jobs=[CANCELLED, pb.JobHistory(job_id=9)])
    dashes = "-" * 80
    assert cli("sacct", "-B", "-j", "4,9").out == (
        f"Batch Script for 4\n{dashes}\n#!/bin/sh\nexit 0\nBatch Script for 9\n{dashes}\nNONE\n"
    )


def test_help_format_can_be_fed_back(cli, history):
    listed = cli("sacct", "--helpformat").out
    assert (
        listed.splitlines()[0]
        == "Account             AdminComment        AllocCPUS           AllocNodes          "
    )
    words = ",".join(listed.split()) + ","
    result = cli("sacct", "-p", "-o", words)
    assert result.code == 0
    header, first = result.out.splitlines()[:2]
    assert header.count("|") == first.count("|") == len(listed.split())


def test_long_format_begins_as_documented(cli, history):
    assert cli("sacct", "-lP").out.startswith("JobID|JobIDRaw|JobName|Partition|MaxVMSize|")


def test_truncate_cuts_times_to_the_window(cli, history):
    out = cli(
        "sacct",
        "-nXPT",
        "-S",
        "2026-11-30T09:59:00",
        "-E",
        "2026-11-30T09:59:15",
        "-o",
        "start,end,elapsedraw",
    ).out
    assert out.splitlines()[0] == "2026-11-30T09:59:00|2026-11-30T09:59:15|15"


def test_no_accounting(cli, peer):
    assert cli("sacct", "-X") == (1, "", "Slurm accounting storage is disabled\n")


def test_accounting_database_away(cli, peer, refuse):
    def answer(request):
        raise refuse(grpc.StatusCode.UNAVAILABLE, "the accounting database is away", "accounting_unavailable")

    peer.answers["GetJobHistory"] = answer
    assert cli("sacct") == (1, "", "sacct: error: the accounting database is away\n")
