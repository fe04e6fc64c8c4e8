"""sbatch against a scripted controller: what is sent, what is printed, how it exits."""

import os
import threading

import grpc
import pytest

from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

SCRIPT = "#!/bin/sh\n#SBATCH -J fromfile\n#SBATCH -n 4 --time=10\n#SBATCH -o out-%j\ntrue\n"


@pytest.fixture
def accepting(peer):
    peer.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=123)
    peer.answers["Ping"] = pb.PingResponse(cluster_name="alpha", hostname="h1")
    return peer


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def sent(peer):
    return peer.last("SubmitJob").spec


def env_of(spec):
    return dict(entry.split(b"=", 1) for entry in spec.environment)


def test_success_is_one_line(cli, accepting):
    assert cli("sbatch", "--wrap", "true") == (0, "Submitted batch job 123\n", "")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["--parsable"], "123\n"),
        (["-Q"], ""),
        (["-M", "alpha"], "Submitted batch job 123 on cluster alpha\n"),
        (["-M", "all", "--parsable"], "123;alpha\n"),
    ],
)
def test_success_forms(cli, accepting, words, out):
    assert cli("sbatch", *words, "--wrap", "true") == (0, out, "")


def test_another_cluster_is_refused(cli, accepting):
    result = cli("sbatch", "-M", "beta", "--wrap", "true")
    assert result == (1, "", "sbatch: error: No cluster 'beta' known by database.\n")


def test_wrap_makes_a_script(cli, accepting, tmp_path):
    cli("sbatch", "--wrap", "echo 'hi there'")
    spec = sent(accepting)
    assert spec.script == b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho 'hi there'\n"
    assert (spec.name, spec.command, spec.work_dir) == ("wrap", "", str(tmp_path))
    assert (spec.stdout_path, spec.stderr_path) == ("slurm-%j.out", "")
    assert spec.submit_line == "sbatch --wrap echo 'hi there'"


def test_file_arguments_and_directives(cli, accepting, script):
    cli("sbatch", "-n", "2", "job.sh", "-N", "7", "x y")
    spec = sent(accepting)
    assert spec.script.decode() == SCRIPT
    assert list(spec.script_args) == [b"-N", b"7", b"x y"]
    assert spec.command == f"{script} -N 7 x y"
    assert (spec.name, spec.num_tasks, spec.time_limit_secs, spec.stdout_path) == (
        "fromfile",
        2,
        600,
        "out-%j",
    )
    assert not spec.HasField("min_nodes")


def test_precedence_is_command_line_variable_directive(cli, accepting, script):
    cli("sbatch", "-p", "cli", "job.sh", env={"SBATCH_TIMELIMIT": "20", "SBATCH_PARTITION": "env"})
    assert (sent(accepting).time_limit_secs, sent(accepting).partition) == (1200, "cli")


def test_script_on_stdin(cli, accepting):
    assert cli("sbatch", stdin=b"#!/bin/sh\ntrue\n").code == 0
    assert (sent(accepting).name, sent(accepting).command) == ("sbatch", "")


def test_script_is_found_on_the_path_and_below_chdir(cli, accepting, tmp_path):
    for folder in ("bin", "sub"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.sh").write_text("#!/bin/sh\n")
    assert cli("sbatch", "bin.sh", env={"PATH": str(tmp_path / "bin")}).code == 0
    assert sent(accepting).command == str(tmp_path / "bin/bin.sh")
    assert cli("sbatch", "-D", "sub", "sub.sh").code == 0
    assert (sent(accepting).command, sent(accepting).work_dir) == (
        str(tmp_path / "sub/sub.sh"),
        str(tmp_path / "sub"),
    )


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", ["Batch script is empty!"]),
        (b" \n\t\n", ["Batch script contains only whitespace!"]),
        (
            b"echo hi\n",
            [
                "This does not look like a batch script.  The first",
                "line must start with #! followed by the path to an interpreter.",
                "For instance: #!/bin/sh",
            ],
        ),
        (
            b"#!/bin/sh\r\ntrue\r\n",
            ["Batch script contains DOS line breaks (\\r\\n)", "instead of expected UNIX line breaks (\\n)."],
        ),
        (
            b"#!/bin/sh\n\0",
            ["The Slurm controller does not allow scripts that contain a NULL character '\\0'."],
        ),
    ],
)
def test_body_checks(cli, accepting, body, lines):
    expected = "".join(f"sbatch: error: {line}\n" for line in lines)
    assert cli("sbatch", stdin=body) == (1, "", expected)
    assert not accepting.requests


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (
            ["--bogus"],
            255,
            "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n",
        ),
        (["--bb=x"], 255, "sbatch: error: --bb is not supported by this release\n"),
        (["--signal=HUPP@30", "--wrap=x"], 255, "sbatch: error: Invalid --signal specification\n"),
        (["-t", "5:x"], 255, "sbatch: error: Invalid --time specification\n"),
        (["--mem", "1.5G"], 255, "sbatch: error: Invalid --mem specification\n"),
        (["-c", "0"], 255, 'sbatch: error: Invalid numeric value "0" for --cpus-per-task.\n'),
        (["-N", "4-2"], 255, "sbatch: error: Maximum node count 2 is less than minimum node count 4\n"),
        (
            ["-b", "when"],
            255,
            "Invalid time specification (pos=0): when\nsbatch: error: Invalid --begin specification\n",
        ),
        (
            ["--mem=1", "--mem-per-cpu=1"],
            255,
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n",
        ),
        (
            ["-b", "now+2hours", "--deadline", "now+1hour"],
            255,
            "sbatch: error: Incompatible begin and deadline time specification\n",
        ),
        (["--gres=:"], 255, "sbatch: error: Invalid generic resource (gres) specification\n"),
        (["-v", "-Q"], 255, "sbatch: fatal: don't specify both --verbose (-v) and --quiet (-Q)\n"),
        (["a.sh"], 1, "sbatch: error: Script arguments not permitted with --wrap option\n"),
    ],
)
def test_bad_words(cli, accepting, words, code, err):
    assert cli("sbatch", "--wrap", "true", *words) == (code, "", err)
    assert not accepting.requests


def test_missing_file(cli, accepting):
    assert cli("sbatch", "nowhere.sh") == (1, "", "sbatch: error: Unable to open file nowhere.sh\n")
    assert cli("sbatch", "nowhere.sh", env={"SLURM_EXIT_ERROR": "9"}).code == 9


def test_bad_directives(cli, accepting):
    assert cli("sbatch", stdin=b"#!/bin/sh\n#SBATCH junk\n") == (
        255,
        "",
        "sbatch: error: Invalid directive found in batch script: junk\n",
    )
    assert cli("sbatch", stdin=b"#!/bin/sh\n#SBATCH --junk\n").code == 255
    result = cli("sbatch", stdin=b"#!/bin/sh\n#SBATCH -J 'x\n")
    assert result == (1, "", "sbatch: fatal: stdin: line 2: Unmatched `'` in [-J 'x]\n")


def test_refusals_of_the_controller(cli, peer, refuse):
    def answer(request):
        raise refuse(grpc.StatusCode.INVALID_ARGUMENT, "Invalid partition name specified", "bad_request")

    peer.answers["SubmitJob"] = answer
    result = cli("sbatch", "-p", "nope", "--wrap", "true")
    assert result == (
        1,
        "",
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
    )
    assert cli("sbatch", "--wrap", "true", env={"SLURM_EXIT_ERROR": "7"}).code == 7
    test = cli("sbatch", "--test-only", "--wrap", "true")
    assert test == (1, "", "allocation failure: Invalid partition name specified\n")


def test_no_controller(cli, free_port):
    result = cli("sbatch", "--wrap", "true", env={"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"})
    assert result == (
        1,
        "",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
    )


def test_retries_with_the_same_request_id(cli, peer, refuse):
    """A controller that is busy, or dies after taking the request, gets the same request again."""
    ids = []

    def answer(request):
        ids.append(request.request_id)
        if len(ids) < 3:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "no leader", "busy")
        return pb.SubmitJobResponse(job_id=5)

    peer.answers["SubmitJob"] = answer
    result = cli("sbatch", "--wrap", "true")
    assert (result.code, result.out) == (0, "Submitted batch job 5\n")
    assert result.err == "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert len(ids[0]) >= 16


def test_warnings_leave_stdout_alone(cli, peer):
    peer.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=9, warnings=["can't run 1 processes on 2 nodes"])
    assert cli("sbatch", "--parsable", "--wrap", "true") == (
        0,
        "9\n",
        "sbatch: warning: can't run 1 processes on 2 nodes\n",
    )


def test_test_only(cli, peer):
    peer.answers["SubmitJob"] = pb.SubmitJobResponse(test_result="Job 16 to start at T using 8 processors")
    assert cli("sbatch", "--test-only", "--wrap", "x") == (
        0,
        "",
        "sbatch: Job 16 to start at T using 8 processors\n",
    )
    assert peer.last("SubmitJob").test_only


def test_every_shape_option_reaches_the_spec(cli, accepting, now):
    text = (
        "-N 2-4 -n 8 -c 2 --ntasks-per-node=4 --mem=4G --gres=gpu:h100:2,shard:1 -w n[1-2] -x n9"
        " -C a&b -p p1,p2"
        " -A acc -q high -J name -e err-%j -i in --open-mode=append -H --begin=uts1796040000 --no-requeue"
        " --comment=words --nice=5 --priority=77 --exclusive --kill-on-invalid-dep=yes -a 0-9%2 -d afterok:1"
        " -t 1-2 --wckey=k"
    )
    words = text.split()
    assert cli("sbatch", *words, "--wrap", "true").code == 0
    spec = sent(accepting)
    assert (spec.min_nodes, spec.max_nodes, spec.num_tasks, spec.cpus_per_task, spec.tasks_per_node) == (
        2,
        4,
        8,
        2,
        4,
    )
    assert (spec.memory_per_node_mb, list(spec.gres)) == (4096, ["gpu:h100:2", "shard:1"])
    assert (spec.nodelist, spec.exclude, spec.constraint, spec.partition) == ("n[1-2]", "n9", "a&b", "p1,p2")
    assert (spec.account, spec.qos, spec.name, spec.wckey) == ("acc", "high", "name", "k")
    assert (spec.stderr_path, spec.stdin_path, spec.open_mode) == ("err-%j", "in", "append")
    assert (spec.stdout_path, spec.array, spec.dependency) == ("slurm-%A_%a.out", "0-9%2", "afterok:1")
    assert (spec.hold, spec.begin_at, spec.HasField("requeue"), spec.requeue) == (
        True,
        1796040000.0,
        True,
        False,
    )
    assert (spec.nice, spec.priority, spec.exclusive, spec.kill_on_invalid_dependency) == (5, 77, True, True)
    assert spec.time_limit_secs == 26 * 3600


@pytest.mark.parametrize(
    ("words", "gres", "wishes"),
    [
        (["--gpus-per-node=a100:2"], ["gpu:a100:2"], {"gpus_per_node": True}),
        (["--gres=gpu:1,shard:4"], ["gpu:1", "shard:4"], {}),
        (["-G", "4"], [], {"gres_total": ["gpu:4"]}),
        (["-G", "a100:4", "--gres=shard:1"], ["shard:1"], {"gres_total": ["gpu:a100:4"]}),
        (["--gpus-per-task=1", "-n", "4", "-N", "2"], [], {"gres_per_task": ["gpu:1"]}),
        (["--gpus-per-socket=2"], [], {"gres_per_socket": ["gpu:2"]}),
        (["-G", "0"], [], {}),
    ],
)
def test_gpus_in_each_form(cli, accepting, words, gres, wishes):
    assert cli("sbatch", *words, "--wrap", "x").code == 0
    spec = sent(accepting)
    assert list(spec.gres) == gres
    assert spec.wishes == c.JobWishes(**wishes)


@pytest.mark.parametrize(
    ("words", "wishes"),
    [
        (["--cpus-per-gpu=2", "--mem-per-gpu=3G"], {"cpus_per_gpu": 2, "memory_per_gpu_mb": 3072}),
        (
            ["--ntasks-per-socket=2", "--ntasks-per-core=1", "--ntasks-per-gpu=3"],
            {"ntasks_per_socket": 2, "ntasks_per_core": 1, "ntasks_per_gpu": 3},
        ),
        (["-B", "2:*:1"], {"sockets_per_node": 2, "threads_per_core": 1}),
        (
            ["--sockets-per-node=2", "--cores-per-socket=4", "--threads-per-core=1"],
            {"sockets_per_node": 2, "cores_per_socket": 4, "threads_per_core": 1},
        ),
        (["--mincpus=4", "--tmp=2G"], {"min_cpus": 4, "tmp_disk_mb": 2048}),
        (["--contiguous", "--spread-job"], {"contiguous": True, "spread": True}),
        (["--use-min-nodes", "-s"], {"use_min_nodes": True, "oversubscribe": True}),
        (["--exclusive=user"], {"exclusive_user": True}),
        (["--time-min=10"], {"time_min_secs": 600}),
        (["--hint=nomultithread"], {"hint": "nomultithread"}),
    ],
)
def test_wishes(cli, accepting, words, wishes):
    assert cli("sbatch", *words, "--wrap", "x").code == 0
    spec = sent(accepting)
    assert spec.wishes == c.JobWishes(**wishes)
    assert not spec.exclusive


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        (["-B", "2:4"], 8),
        (["-N", "3", "-B", "2:4:1"], 24),
        (["-N", "2", "--sockets-per-node=2"], 4),
        # Without a number of nodes they only say which nodes will do.
        (["--sockets-per-node=2"], 0),
        (["-N", "1-2", "-B", "2"], 0),
        (["-N", "2", "--threads-per-core=2", "-n", "5"], 5),
        (["-N", "2", "--threads-per-core=2", "--ntasks-per-node=5"], 0),
    ],
)
def test_tasks_that_a_shape_of_nodes_means(cli, accepting, words, tasks):
    assert cli("sbatch", *words, "--wrap", "x").code == 0
    assert sent(accepting).num_tasks == tasks


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-G", "1", "--gpus-per-task=1"], "GPUs are asked for more than once (--gpus, --gpus-per-task)"),
        (["--gpus-per-node=1", "--gres=gpu:1"], "more than once (--gpus-per-node, --gres=gpu)"),
        (["--mem-per-gpu=x"], "Invalid --mem-per-gpu specification"),
        (["--ntasks-per-core=0"], 'Invalid numeric value "0" for --ntasks-per-core.'),
        (["-B", "0"], "invalid resource allocation -B `0'"),
        (["--time-min=x"], "Invalid --time-min specification"),
        (["--hint=memory_bound"], "--hint=memory_bound is not supported by this release"),
        (["--exclusive=mcs"], "--exclusive=mcs is not supported by this release"),
        (["--core-spec=1"], "--core-spec is not supported by this release"),
        (["--gres-flags=enforce-binding"], "--gres-flags is not supported by this release"),
        (["--mem=1", "--mem-per-gpu=1"], "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
        (["--mem-per-cpu=1", "--mem-per-gpu=1"], "--mem, --mem-per-cpu, and --mem-per-gpu are mutually"),
    ],
)
def test_wishes_that_cannot_be(cli, accepting, words, text):
    found = cli("sbatch", *words, "--wrap", "x")
    assert (found.code, text in found.err) == (255, True), found.err


def test_unlimited_time_and_absent_time_differ(cli, accepting):
    cli("sbatch", "-t", "0", "--wrap", "x")
    assert sent(accepting).time_limit_secs == 0xFFFFFFFF
    cli("sbatch", "--wrap", "x")
    assert not sent(accepting).HasField("time_limit_secs")


def test_a_higher_layer_replaces_the_other_size_of_memory(cli, accepting):
    cli("sbatch", "--mem-per-cpu=2G", stdin=b"#!/bin/sh\n#SBATCH --mem=8G\n")
    spec = sent(accepting)
    assert (spec.HasField("memory_per_node_mb"), spec.memory_per_cpu_mb) == (False, 2048)


def test_surroundings_of_the_submitter(cli, accepting, tmp_path):
    before = os.umask(0o027)
    try:
        cli("sbatch", "--wrap", "x", env={"FOO": "b\u00e4r", "SLURM_JWT": "secret"})
    finally:
        os.umask(before)
    spec, env = sent(accepting), env_of(sent(accepting))
    assert spec.umask == 0o027
    assert env[b"FOO"] == "b\u00e4r".encode()
    assert b"SLURM_JWT" not in env
    assert env[b"SLURM_SUBMIT_DIR"] == os.fsencode(tmp_path)
    assert env[b"SLURM_SUBMIT_HOST"] == os.uname().nodename.encode() == spec.submit_host.encode()
    assert env[b"SLURM_UMASK"] == b"0027"
    assert b"SLURM_RLIMIT_NOFILE" in env
    assert [item.partition("=")[0] for item in spec.rlimits] == [
        "CPU",
        "FSIZE",
        "DATA",
        "STACK",
        "CORE",
        "RSS",
        "NPROC",
        "NOFILE",
        "MEMLOCK",
        "AS",
    ]


def test_export_and_propagate(cli, accepting, tmp_path):
    (tmp_path / "vars").write_bytes(b"FROM_FILE=a\nb\0OTHER=1\0")
    cli("sbatch", "--export=A=1,KEEP", "--propagate=NONE", "--wrap", "x", env={"KEEP": "k", "DROP": "d"})
    env = env_of(sent(accepting))
    assert (env[b"A"], env[b"KEEP"], env[b"SLURM_EXPORT_ENV"]) == (b"1", b"k", b"A=1,KEEP")
    assert b"DROP" not in env
    assert b"HOME" not in env
    assert not sent(accepting).rlimits
    cli("sbatch", "--export-file=vars", "--propagate=NOFILE,CORE", "--wrap", "x")
    env = env_of(sent(accepting))
    assert (env[b"FROM_FILE"], env[b"OTHER"]) == (b"a\nb", b"1")
    assert len(sent(accepting).rlimits) == 2
    bad = cli("sbatch", "--propagate=SPEED", "--wrap", "x")
    assert bad.code == 255
    assert "SPEED is not a limit" in bad.err


def test_pbs_lines_are_told_about(cli, accepting):
    result = cli("sbatch", stdin=b"#!/bin/sh\n#PBS -N x\n")
    assert result.out == "Submitted batch job 123\n"
    assert result.err == "sbatch: warning: #PBS lines are comments in this release, write #SBATCH\n"
    assert cli("sbatch", "--ignore-pbs", stdin=b"#!/bin/sh\n#PBS -N x\n").err == ""


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([c.ExitStatus()], 0),
        ([c.ExitStatus(code=3), c.ExitStatus(code=7)], 7),
        ([c.ExitStatus(signal=9)], 1),
    ],
)
def test_wait_gives_the_worst_code(cli, accepting, ends, code):
    gate = threading.Event()
    good = c.JOB_STATE_COMPLETED if code == 0 else c.JOB_STATE_FAILED

    def jobs(request):
        state = good if gate.is_set() else c.JOB_STATE_RUNNING
        gate.set()
        return pb.GetJobsResponse(
            jobs=[c.JobInfo(job_id=123 + at, state=state, exit=end) for at, end in enumerate(ends)]
        )

    accepting.answers["GetJobs"] = jobs
    assert cli("sbatch", "-W", "--wrap", "x").code == code


def test_het_jobs_are_refused_by_name(cli, accepting):
    assert "heterogeneous" in cli("sbatch", "-n1", ":", "-n2", "x.sh").err
    assert "heterogeneous" in cli("sbatch", stdin=b"#!/bin/sh\n#SBATCH hetjob\n").err


def test_a_higher_layer_replaces_another_form_of_gpus(cli, accepting):
    script = b"#!/bin/sh\n#SBATCH --gpus=8\n#SBATCH --mem-per-gpu=1G\n"
    assert cli("sbatch", "--gpus-per-node=2", "--mem=1G", stdin=script).code == 0
    spec = sent(accepting)
    assert (list(spec.gres), spec.memory_per_node_mb) == (["gpu:2"], 1024)
    assert spec.wishes == c.JobWishes(gpus_per_node=True)


def test_variables_of_an_enclosing_job_do_not_reach_a_batch_job(cli, accepting):
    inside = {
        "SLURM_GPUS": "4",
        "SLURM_CPUS_PER_GPU": "2",
        "SPUR_CPUS_PER_GPU": "2",
        "SPUR_HINT": "multithread",
    }
    assert cli("sbatch", "--wrap", "x", env=inside).code == 0
    assert not sent(accepting).HasField("wishes")
    assert cli("sbatch", "--wrap", "x", env={"SBATCH_GPUS": "4", "SBATCH_HINT": "multithread"}).code == 0
    assert sent(accepting).wishes == c.JobWishes(gres_total=["gpu:4"], hint="multithread")
