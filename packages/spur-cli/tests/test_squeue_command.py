"""squeue: layouts, formats, filters, sorting and what it says when there is nothing."""

import grpc
import pytest

from spur_cli import formats
from spur_cli.queue import fields
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0


def job(job_id, **more):
    base = {
        "job_id": job_id,
        "name": "wrap",
        "user": "root",
        "uid": 0,
        "partition": "debug",
        "state": c.JOB_STATE_RUNNING,
        "reason": "None",
        "priority": 1000,
        "num_nodes": 1,
        "num_cpus": 1,
        "submit_at": NOW - 60,
        "eligible_at": NOW - 60,
        "work_dir": "/w",
    }
    return c.JobInfo(**(base | more))


PENDING_ARRAY = job(
    13,
    array_job_id=13,
    array_pending="0-3%2",
    name="alpha",
    state=c.JOB_STATE_PENDING,
    num_nodes=0,
    min_nodes=1,
)
RUNNING = job(4, run_secs=13.4, nodelist="n4", start_at=NOW - 13, time_limit_secs=600)


@pytest.fixture
def queue(peer):
    """A scripted GetJobs that serves ids as the controller does."""

    def serve(*jobs):
        def answer(request):
            found = list(jobs)
            if request.states:
                found = [one for one in found if one.state in request.states]
            if request.jobs:
                ids = {target.job_id for target in request.jobs}
                found = [one for one in jobs if one.job_id in ids or one.array_job_id in ids]
            return pb.GetJobsResponse(jobs=found, server_time=NOW)

        peer.answers["GetJobs"] = answer
        return peer

    return serve


def test_default_layout(cli, queue):
    queue(RUNNING, PENDING_ARRAY)
    assert cli("squeue").out == (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "        13_[0-3%2]     debug    alpha     root PD       0:00      1 (None)\n"
        "                 4     debug     wrap     root  R       0:13      1 n4\n"
    )


def test_long_layout(cli, queue):
    queue(RUNNING)
    assert cli("squeue", "-l").out == (
        "Mon Nov 30 10:00:00 2026\n"
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES "
        "NODELIST(REASON)\n"
        "                 4     debug     wrap     root  RUNNING       0:13     10:00      1 n4\n"
    )


def test_start_layout_shows_pending_only(cli, queue):
    queue(RUNNING, job(5, state=c.JOB_STATE_PENDING, reason="Resources", num_nodes=2))
    assert cli("squeue", "--start").out == (
        "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           "
        "NODELIST(REASON)\n"
        "                 5     debug     wrap     root PD                 N/A      2 (null)               "
        "(Resources)\n"
    )


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("%i|%T|%R|%N", "4|RUNNING|n4|n4"),
        ('"%i","%j"', '"4","wrap"'),
        ("%5i|%.5i|%-5i|%#i", "4    |    4|4    |4"),
        ("%3T|%.3T", "RUN|RUN"),
        ("%.3M|%3M|%.1N|%1N", "0:13|0:1|n4|n"),
        ("%A %C %D %Q %p", "4 1 1 1000 0.00000023283064"),
        ("%b %m %l %L %S", "N/A 0 10:00 9:47 2026-11-30T09:59:47"),
        ("%a %E %k %o %v", "(null) (null) (null) (null) (null)"),
        ("x%%y", None),
    ],
)
def test_format_letters(cli, queue, form, line):
    queue(RUNNING)
    result = cli("squeue", "-h", "-o", form)
    if line is None:
        assert result.code == 0
        assert "Invalid job format specification" in result.err
    else:
        assert result == (0, line + "\n", "")


def test_unknown_letter_prints_its_token(cli, queue):
    queue(RUNNING)
    result = cli("squeue", "-o", "%i %7c%~ end")
    assert result == (
        0,
        "JOBID MIN_CPU%~ end\n4 1      %~ end\n",
        "squeue: error: Invalid job format specification: ~\n",
    )


def test_every_letter_has_a_text(cli, queue):
    queue(RUNNING, PENDING_ARRAY)
    lines = cli("squeue", "-o", "%all").out.splitlines()
    assert len(lines) == 3
    assert all(line.count("|") == len(fields.BY_LETTER) - 1 for line in lines)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ("JobID:|,StateCompact:|", "4|R|"),
        ("jobarrayid:6,state:.9,Reason:5x", "4       RUNNINGNone x"),
        ("JobArrayID,StateCompact,Reason", f"{'4':<20}{'R':<20}{'None':<20}"),
        ("tres-per-node:5,NumTasks:3", "N/A  0  "),
    ],
)
def test_format_names(cli, queue, names, line):
    queue(RUNNING)
    assert cli("squeue", "-h", "-O", names) == (0, line + "\n", "")


def test_pending_array_rows(cli, queue):
    queue(PENDING_ARRAY)
    assert cli("squeue", "-h", "-r", "-o", "%i %K").out == "13_0 0\n13_1 1\n13_2 2\n13_3 3\n"
    assert cli("squeue", "-h", "-o", "%i %K %F").out == "13_[0-3%2] 0-3%2 13\n"
    long = job(20, array_job_id=20, array_pending=",".join(map(str, range(0, 90, 3))) + "%5")
    long.state = c.JOB_STATE_PENDING
    queue(long)
    cut = cli("squeue", "-h", "-o", "%i").out
    assert cut.startswith("20_[0,3,6,9,12,")
    assert cut.endswith("...%5]\n")
    assert len(cut) < 80
    assert "87%5" in cli("squeue", "-h", "-o", "%i", env={"SLURM_BITSTR_LEN": "0"}).out


def test_reasons_stand_for_nodes_of_failed_jobs(cli, queue):
    queue(
        job(1, state=c.JOB_STATE_FAILED, reason="NonZeroExitCode", nodelist="n1"),
        job(2, state=c.JOB_STATE_COMPLETED, nodelist="n2"),
        job(3, state=c.JOB_STATE_PENDING, reason="JobHeldUser", state_desc="job requeued in held state"),
    )
    assert cli("squeue", "-h", "-t", "all", "-S", "i", "-o", "%i %t %r %R").out == (
        "1 F NonZeroExitCode (NonZeroExitCode)\n2 CD None n2\n"
        "3 PD job requeued in held state (job requeued in held state)\n"
    )


def test_one_missing_id(cli, queue):
    queue(RUNNING)
    assert cli("squeue", "-j", "9") == (1, "", "slurm_load_jobs error: Invalid job id specified\n")


def test_one_missing_id_refused_by_the_controller(cli, peer, missing_job):
    def answer(request):
        raise missing_job()

    peer.answers["GetJobs"] = answer
    assert cli("squeue", "-j9") == (1, "", "slurm_load_jobs error: Invalid job id specified\n")
    assert cli("squeue", "-hj9,9") == (0, "", "")


def test_two_ids_are_never_an_error(cli, queue):
    queue(RUNNING)
    header = cli("squeue", "-j", "8,9")
    assert header == (0, cli("squeue", "-j", "4,9").out.splitlines(True)[0], "")
    assert cli("squeue", "-h", "--job", "9,9") == (0, "", "")
    assert cli("squeue", "-ho%i", "-j", "4,9").out == "4\n"


def test_one_finished_id(cli, queue):
    queue(job(7, state=c.JOB_STATE_COMPLETED))
    assert cli("squeue", "-h", "-j", "7") == (0, "", "")
    assert cli("squeue", "-h", "-j", "7", "-t", "all", "-o", "%i %t").out == "7 CD\n"


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["-j", "bogus"], 1, "squeue: error: Invalid job id: bogus\n"),
        (["-S", "~"], 1, "squeue: error: Invalid sort specification: ~\n"),
        (
            ["-o", "x", "-O", "y"],
            1,
            "squeue: error: -O (--Format) is incompatible with -o (--format)\n",
        ),
        (
            ["--bogus"],
            1,
            "squeue: unrecognized option '--bogus'\nTry \"squeue --help\" for more information\n",
        ),
        (["--json"], 1, "squeue: error: --json is not supported by this release\n"),
        (["-w", "n99"], 1, "squeue: error: Invalid node name n99\n"),
        (
            ["4"],
            1,
            'squeue: error: Unrecognized option: 4\nTry "squeue --help" for more information\n',
        ),
        (
            ["-j", "4", "5"],
            1,
            'squeue: error: Unrecognized option: 5\nTry "squeue --help" for more information\n',
        ),
    ],
)
def test_bad_words(cli, queue, words, code, err):
    peer = queue(RUNNING)
    peer.answers["GetNodes"] = pb.GetNodesResponse(nodes=[c.NodeInfo(name="n4")])
    result = cli("squeue", *words)
    assert (result.code, result.err) == (code, err)


def test_bad_state(cli, queue):
    queue()
    result = cli("squeue", "-t", "bogus")
    assert result.code == 1
    first, second = result.err.splitlines()
    assert first == "squeue: error: Invalid job state specified: bogus"
    assert second.startswith("squeue: error: Valid job states include: PENDING,")


def test_unknown_user_is_no_failure(cli, queue):
    queue(RUNNING)
    result = cli("squeue", "-u", "no_such_user_here")
    assert result.code == 0
    assert len(result.out.splitlines()) == 1
    assert result.err == "squeue: error: Invalid user: no_such_user_here\n\n"


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["-n", "ALPHA,x"], "13"),
        (["-p", "gpu"], "5"),
        (["-p", "other"], ""),
        (["-A", "acc"], "5"),
        (["-t", "PD"], "13"),
        (["-t", "r,pd"], "13 4 5"),
        (["-t", "SE"], ""),
        (["-w", "n[4-5]"], "4"),
        (["-u", "0"], "13 4"),
        (["--user", "12345"], "5"),
    ],
)
def test_filters(cli, queue, words, ids):
    other = job(5, partition="gpu", account="acc", uid=12345, user="x", nodelist="n7")
    peer = queue(RUNNING, PENDING_ARRAY, other)
    peer.answers["GetNodes"] = pb.GetNodesResponse(nodes=[c.NodeInfo(name=f"n{i}") for i in range(9)])
    result = cli("squeue", "-h", "-o", "%A", "-S", "A", *words)
    assert result.code == 0
    assert sorted(result.out.split()) == sorted(ids.split())


def test_default_sort_is_partition_state_priority():
    view = fields.View("", 64, False, NOW)
    jobs = [
        job(1, partition="b"),
        job(2, state=c.JOB_STATE_RUNNING),
        job(3, state=c.JOB_STATE_PENDING, priority=5),
        job(4, state=c.JOB_STATE_PENDING, priority=9),
        job(5, state=c.JOB_STATE_COMPLETING),
    ]
    for one in jobs:
        one.partition = one.partition if one.partition == "b" else "a"
    fields.sort_jobs(jobs, "P,t,-p", view)
    assert [one.job_id for one in jobs] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("spec", "order"),
    [("i", [9, 10, 110]), ("-i", [110, 10, 9]), ("+j,-i", [110, 9, 10]), ("M", [10, 9, 110])],
)
def test_sort_letters(spec, order):
    jobs = [
        job(10, name="b", run_secs=1),
        job(110, name="a", run_secs=100),
        job(9, name="a", run_secs=20),
    ]
    fields.sort_jobs(jobs, spec, fields.View("", 64, False, NOW))
    assert [one.job_id for one in jobs] == order


def test_time_format_and_variables(cli, queue):
    queue(RUNNING)
    assert cli("squeue", "-ho", "%S", env={"SLURM_TIME_FORMAT": "%s"}).out == f"{int(NOW - 13)}\n"
    assert cli("squeue", "-ho", "%S", env={"SLURM_TIME_FORMAT": "relative"}).out == "09:59:47\n"
    assert cli("squeue", "-h", env={"SQUEUE_FORMAT": "%j"}).out == "wrap\n"
    assert cli("squeue", "-h", "-o", "%i", env={"SQUEUE_FORMAT": "%j"}).out == "4\n"
    assert cli("squeue", "-h", env={"SQUEUE_STATES": "PD"}).out == ""


def test_no_controller(cli, free_port):
    result = cli("squeue", env={"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"})
    assert result == (
        1,
        "",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    )


def test_an_error_of_the_controller_keeps_its_reason(cli, peer, refuse):
    def answer(request):
        raise refuse(grpc.StatusCode.UNAUTHENTICATED, "the token has expired", "token_expired")

    peer.answers["GetJobs"] = answer
    assert cli("squeue") == (
        1,
        "",
        "slurm_load_jobs error: Protocol authentication error: the token has expired\n",
    )


def test_pages_become_one_list(cli, peer):
    def answer(request):
        if not request.page_token:
            return pb.GetJobsResponse(jobs=[job(1)], next_page_token="1")
        assert request.page_token == "1"
        return pb.GetJobsResponse(jobs=[job(2)])

    peer.answers["GetJobs"] = answer
    assert cli("squeue", "-h", "-o", "%i").out == "1\n2\n"


def test_a_name_list_skips_empty_items():
    form = formats.parse_names("jobid,,state", {"jobid", "state"})
    assert [cell.key for cell in form.cells] == ["jobid", "state"]
