"""sattach and spur exec against a scripted controller and scripted agents."""

import contextlib
import signal
import subprocess
import sys
import threading
from queue import SimpleQueue

import grpc
import pytest

from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spur_proto import agent_pb2 as ag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

OUT, ERR = ag.OUTPUT_STREAM_STDOUT, ag.OUTPUT_STREAM_STDERR
USAGE = "Usage: sattach [options] <jobid.stepid>\n"


def output(rank, data, offset=0, stream=OUT):
    chunk = ag.OutputChunk(rank=rank, stream=stream, offset=offset, data=data)
    return ag.InteractiveSessionResponse(output=chunk)


def ready(offset=0, *, writer=True):
    return ag.InteractiveSessionResponse(ready=ag.SessionReady(stdin_offset=offset, writer=writer))


def ended(*ends):
    """Exits of ranks 0, 1, ..., as exit codes or ExitStatus."""
    found = [c.ExitStatus(code=end) if isinstance(end, int) else end for end in ends]
    ranks = [ag.RankExit(rank=rank, exit=status) for rank, status in enumerate(found)]
    return ag.InteractiveSessionResponse(exit=ag.StepExit(ranks=ranks))


class Cluster:
    """Job 31 with steps; every session plays `parts(init, requests)`."""

    def __init__(self, peer):
        self.peer = peer
        self.over = threading.Event()
        self.inits = []
        self.steps = {(31, 0): self.step(31, 0, [("n1", [0, 1])])}
        self.parts = lambda init, requests: iter(())
        self.job = c.JobInfo(job_id=31, run_attempt=2, state=c.JOB_STATE_RUNNING)
        self.places = ["n1", "n2"]
        self.elsewhere = {}
        peer.answers.update(
            WatchStep=self.watch_step,
            WatchJob=self.watch_job,
            GetJobSteps=lambda request: pb.GetJobStepsResponse(steps=self.steps.values()),
            InteractiveSession=self.talk,
        )

    def step(self, job_id, step_id, slices, state=c.JOB_STATE_RUNNING):
        tasks = sum(len(ranks) for _, ranks in slices)
        nodes = ",".join(node for node, _ in slices)
        step = c.StepInfo(state=state, num_tasks=tasks, nodelist=nodes, user="u", name="s")
        step.rid.job_id, step.rid.run_attempt, step.rid.step_id = job_id, 2, step_id
        for node, ranks in slices:
            step.slices.add(node=node, ranks=ranks)
        return step

    def watch_step(self, request):
        step = self.steps.get((request.rid.job_id, request.rid.step_id))
        if step is None:
            raise self.missing()
        yield pb.WatchStepResponse(step=step, nodes=self.addresses(held.node for held in step.slices))
        self.over.wait(30)

    def watch_job(self, request):
        if request.job_id != self.job.job_id:
            raise self.missing()
        yield pb.WatchJobResponse(job=self.job, nodes=self.addresses(self.places))
        self.over.wait(30)

    def addresses(self, nodes):
        where = self.elsewhere
        return [pb.NodeAddress(node=node, address=where.get(node, self.peer.address)) for node in nodes]

    def talk(self, requests):
        init = next(requests).init
        self.inits.append(init)
        yield from self.parts(init, requests)


@pytest.fixture
def cluster(peer, missing_job):
    made = Cluster(peer)
    made.missing = missing_job
    yield made
    made.over.set()


# sattach.


def test_recent_output_then_live_then_the_code(cli, cluster):
    cluster.parts = lambda init, requests: iter(
        [
            output(0, b"recent\n", 9000),
            ready(5),
            output(1, b"bad\n", 3, ERR),
            output(0, b"live\n", 9007),
            ended(3, 0),
        ]
    )
    assert cli("sattach", "31.0") == (
        3,
        "recent\nlive\n",
        "bad\nsattach: error: n1: task 0: Exited with exit code 3\n",
    )
    (init,) = cluster.inits
    rid = init.rid
    assert (rid.job_id, rid.run_attempt, rid.step_id) == (31, 2, 0)
    assert (init.mode, init.want_input) == (ag.SESSION_MODE_WATCHER, True)


def test_all_nodes_of_the_step(cli, cluster, peer):
    second = type(peer)()
    cluster.steps[31, 4] = cluster.step(31, 4, [("n1", [0]), ("n2", [1])])
    cluster.elsewhere["n2"] = second.address

    def of_rank(rank, **how):
        end = ag.StepExit(ranks=[ag.RankExit(rank=rank, exit=c.ExitStatus(**how))])
        parts = [ready(), output(rank, b"from %d\n" % rank), ag.InteractiveSessionResponse(exit=end)]
        return lambda *_: iter(parts)

    cluster.parts = of_rank(0)
    second.answers["InteractiveSession"] = of_rank(1, signal=9)
    try:
        result = cli("sattach", "-l", "31.4")
    finally:
        second.stop()
    assert sorted(result.out.splitlines()) == ["0: from 0", "1: from 1"]
    assert result.code == 137
    assert "n2: task 1: Killed" in result.err


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        (["--output-filter=1"], "one\n", "bad\nworse\n"),
        (["--error-filter", "0"], "zero\none\n", "bad\n"),
        (["--output=stdout"], "zero\none\n", ""),
        (["--output", "stderr"], "", "bad\nworse\n"),
        (["-l"], "0: zero\n1: one\n", "0: bad\n1: worse\n"),
    ],
)
def test_filters(cli, cluster, words, out, err):
    cluster.parts = lambda init, requests: iter(
        [
            ready(),
            output(0, b"zero\n"),
            output(1, b"one\n"),
            output(0, b"bad\n", 0, ERR),
            output(1, b"worse\n", 0, ERR),
            ended(0, 0),
        ]
    )
    assert cli("sattach", *words, "31.0") == (0, out, err)


def test_input(cli, cluster):
    """What is piped in, and its end, after what others gave."""
    got = SimpleQueue()

    def parts(init, requests):
        yield ready(100)
        for request in requests:
            kind = request.WhichOneof("kind")
            got.put((kind, request.stdin, request.stdin_offset))
            if kind == "stdin_eof":
                break
        yield ended(0, 0)

    cluster.parts = parts
    assert cli("sattach", "31.0", stdin=b"to the step").code == 0
    assert [got.get(), got.get()] == [("stdin", b"to the step", 100), ("stdin_eof", b"", 111)]


@pytest.mark.parametrize("words", [["--output-only"], []])
def test_no_input_is_no_end_of_the_steps_input(cli, cluster, words):
    """Scripts attach with nothing to read: the step's own input must not end by that."""
    seen = SimpleQueue()

    def listen(requests):
        with contextlib.suppress(grpc.RpcError):
            for request in requests:
                seen.put(request.WhichOneof("kind"))

    def parts(init, requests):
        yield ready(0, writer=init.want_input)
        threading.Thread(target=listen, args=(requests,), daemon=True).start()
        yield output(0, b"x\n")
        yield ended(0, 0)

    cluster.parts = parts
    assert cli("sattach", *words, "31.0", stdin=b"").code == 0
    assert cluster.inits[0].want_input is not bool(words)
    assert seen.qsize() == 0


def test_layout(cli, cluster):
    cluster.steps[31, 1] = cluster.step(31, 1, [("n1", [0, 2]), ("n2", [1])])
    assert cli("sattach", "--layout", "31.1") == (
        0,
        "Job step layout:\n"
        "  3 tasks, 2 nodes (n1,n2)\n"
        "\n"
        "  Node 0 (n1), 2 task(s): 0 2\n"
        "  Node 1 (n2), 1 task(s): 1\n",
        "",
    )
    assert not cluster.inits


@pytest.mark.parametrize(
    ("words", "err"),
    [
        ([], "sattach: error: no job step was given\n" + USAGE),
        (["1.0", "2.0"], "sattach: error: too many parameters\n" + USAGE),
        (["bogus"], "sattach: error: Failed to parse stepid from command line options\n" + USAGE),
        (["31.x"], "sattach: error: Failed to parse stepid from command line options\n" + USAGE),
        (["99.0"], "sattach: error: Could not get job step info: Invalid job id specified\n"),
        (["31.7"], "sattach: error: Could not get job step info: Invalid job id specified\n"),
        (["31.batch"], "sattach: error: Could not get job step info: the output of 31.batch goes to files\n"),
        (["31.extern"], "sattach: error: Could not get job step info: 31.extern has no output\n"),
        (["--output-filter=5", "31.0"], "sattach: error: --output-filter=5: the step has only tasks 0-1\n"),
        (["--output-filter=x", "31.0"], "sattach: error: --output-filter=x: must be the number of a task\n"),
        (
            ["--input-filter=1", "31.0"],
            "sattach: error: --input-filter=1: other tasks on n1 would get the same input\n",
        ),
        (["--output=both", "31.0"], "sattach: error: --output=both: must be stdout or stderr\n"),
    ],
)
def test_what_cannot_be_attached_to(cli, cluster, words, err):
    assert cli("sattach", *words) == (1, "", err)
    assert not cluster.inits


def test_a_step_that_is_over(cli, cluster):
    cluster.steps[31, 0].state = c.JOB_STATE_COMPLETED
    text = "sattach: error: Could not get job step info: Job/step already completing or completed\n"
    assert cli("sattach", "31.0") == (1, "", text)


def test_somebody_elses_step(cli, cluster, refuse):
    def parts(init, requests):
        raise refuse(grpc.StatusCode.PERMISSION_DENIED, "Access/permission denied", "access_denied")
        yield

    cluster.parts = parts
    assert cli("sattach", "31.0") == (1, "", "sattach: error: n1: Access/permission denied\n")


def test_a_job_alone_means_its_shell_or_its_only_step(cli, cluster):
    cluster.parts = lambda init, requests: iter([ready(), ended(0)])
    for step_id in (STEP_BATCH, STEP_EXTERN):
        cluster.steps[31, step_id] = cluster.step(31, step_id, [("n1", [0])])
    assert cli("sattach", "31").code == 0
    assert cluster.inits[-1].rid.step_id == 0
    cluster.steps[31, 3] = cluster.step(31, 3, [("n1", [0])])
    text = "Could not get job step info: job 31 has several steps, name one: 31.0, 31.3"
    assert cli("sattach", "31") == (1, "", f"sattach: error: {text}\n")
    cluster.steps[31, STEP_INTERACTIVE] = cluster.step(31, STEP_INTERACTIVE, [("n1", [0])])
    assert cli("sattach", "31").code == 0
    assert cluster.inits[-1].rid.step_id == STEP_INTERACTIVE
    cluster.steps.clear()
    text = "Could not get job step info: job 31 has no step that can be attached to"
    assert cli("sattach", "31") == (1, "", f"sattach: error: {text}\n")


def test_a_task_of_an_array(cli, cluster):
    cluster.parts = lambda init, requests: iter([ready(), ended(0)])
    cluster.steps[44, 0] = cluster.step(44, 0, [("n1", [0])])
    cluster.peer.answers["GetJobs"] = pb.GetJobsResponse(
        jobs=[c.JobInfo(job_id=44, array_job_id=40, array_task_id=3, state=c.JOB_STATE_RUNNING)]
    )
    assert cli("sattach", "40_3.0").code == 0
    assert cluster.peer.last("GetJobs").jobs[0].array_tasks == "3"
    assert cluster.inits[0].rid.job_id == 44


@pytest.mark.parametrize("verb", ["attach", "sattach"])
def test_verb(cli, cluster, verb):
    cluster.parts = lambda init, requests: iter([ready(), output(0, b"x\n"), ended(0)])
    assert cli("spur", verb, "31.0") == (0, "x\n", "")


def start(peer, tmp_path, name, *words, stdin=subprocess.DEVNULL):
    """The command as a process."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SPUR_CONTROLLER_ADDR": peer.address,
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    code = "import sys; from spur_cli.fast import main; main(sys.argv[1], sys.argv[2:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, name, *words],
        env=env,
        cwd=tmp_path,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_interrupt_leaves_the_step_alone(cluster, tmp_path):
    left, said = threading.Event(), SimpleQueue()

    def parts(init, requests):
        yield ready()
        yield output(0, b"here\n")
        for request in requests:
            said.put(request)
        left.set()

    cluster.parts = parts
    child = start(cluster.peer, tmp_path, "sattach", "31.0")
    with child:
        assert child.stdout.readline() == b"here\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert child.stderr.read() == b"sattach: detached from StepId=31.0\n"
    assert not [name for name, _, _ in cluster.peer.requests if name == "CancelJob"]
    assert said.qsize() == 0


# spur exec.


def test_exec_runs_a_command_in_the_job(cli, cluster):
    def parts(init, requests):
        yield ready()
        assert next(requests).stdin == b"typed"
        assert next(requests).stdin_eof
        yield output(0, b"out\n")
        yield output(0, b"err\n", 0, ERR)
        yield ended(7)

    cluster.parts = parts
    result = cli("spur", "exec", "31", "ls", "-l", stdin=b"typed")
    assert result == (7, "out\n", "err\n")
    (init,) = cluster.inits
    assert (init.rid.job_id, init.rid.run_attempt, init.rid.HasField("step_id")) == (31, 2, False)
    assert (init.mode, list(init.argv), init.pty) == (ag.SESSION_MODE_EXEC, [b"ls", b"-l"], False)


@pytest.mark.parametrize(
    "words",
    [
        ["31.0", "-e", "A=1", "-D", "/w", "--", "prog", "--node", "x"],
        ["-e", "A=1", "-D", "/w", "31.0", "prog", "--node", "x"],
        ["--chdir=/w", "31.0", "--env=A", "prog", "--node", "x"],
        ["-D/w", "-w", "n1", "31.0", "-eA=1", "prog", "--node", "x"],
    ],
)
def test_exec_options_before_and_after_the_job(cli, cluster, words):
    cluster.parts = lambda init, requests: iter([ready(), ended(c.ExitStatus(signal=9))])
    assert cli("spur", "exec", *words, env={"A": "1"}).code == 137
    (init,) = cluster.inits
    assert init.rid.step_id == 0
    assert init.rid.HasField("step_id")
    assert list(init.argv) == [b"prog", b"--node", b"x"]
    assert (list(init.environment), init.work_dir) == ([b"A=1"], "/w")


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (
            [],
            "spur exec: error: no job was given\n"
            + "Usage: spur exec [options] JOB[.STEP] [--] COMMAND [ARGUMENTS]\n",
        ),
        (
            ["31"],
            "spur exec: error: no command was given\n"
            "Usage: spur exec [options] JOB[.STEP] [--] COMMAND [ARGUMENTS]\n",
        ),
        (["x", "ls"], "spur exec: error: Invalid job id specified: x\n"),
        (["99", "ls"], "spur exec: error: Invalid job id specified\n"),
        (["31.9", "ls"], "spur exec: error: Invalid job id specified\n"),
        (["--node=n9", "31", "ls"], "spur exec: error: node n9 is none of the job's: n[1-2]\n"),
        (["-D", "w", "31", "ls"], "spur exec: error: --chdir=w: must be an absolute path on the node\n"),
        (["-e", "NOPE", "31", "ls"], "spur exec: error: --env=NOPE: NOPE is not set here\n"),
        (["-e", "=1", "31", "ls"], "spur exec: error: --env==1: must be NAME or NAME=VALUE\n"),
        (
            ["31", "--bogus", "ls"],
            "spur exec: unrecognized option '--bogus'\nTry \"spur exec --help\" for more information\n",
        ),
    ],
)
def test_exec_bad_words(cli, cluster, words, err):
    assert cli("spur", "exec", *words) == (1, "", err)
    assert not cluster.inits


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (c.JOB_STATE_PENDING, "Job is pending execution"),
        (c.JOB_STATE_COMPLETED, "Job/step already completing or completed"),
        (c.JOB_STATE_COMPLETING, "Job/step already completing or completed"),
    ],
)
def test_exec_in_a_job_that_does_not_run(cli, cluster, state, text):
    cluster.job.state = state
    assert cli("spur", "exec", "31", "ls") == (1, "", f"spur exec: error: {text}\n")


def test_exec_in_somebody_elses_job(cli, cluster, refuse):
    def parts(init, requests):
        raise refuse(grpc.StatusCode.PERMISSION_DENIED, "Access/permission denied", "access_denied")
        yield

    cluster.parts = parts
    assert cli("spur", "exec", "31", "ls") == (1, "", "spur exec: error: n1: Access/permission denied\n")
    assert len(cluster.inits) == 1


@pytest.mark.parametrize("began", [False, True])
def test_exec_when_the_agent_goes_away(cli, cluster, refuse, began):
    def parts(init, requests):
        if began:
            yield ready()
        raise refuse(grpc.StatusCode.UNAVAILABLE, "restart")

    cluster.parts = parts
    result = cli("spur", "exec", "31", "ls")
    if began:
        text = "n1: the connection was lost and the command has been ended; it may be run again"
        assert result == (255, "", f"spur exec: error: {text}\n")
    else:
        text = "n1: the node's agent cannot be reached; try again"
        assert result == (1, "", f"spur exec: error: {text}\n")
    assert len(cluster.inits) == 1


def test_exec_passes_signals_on_and_leaves_at_the_second_interrupt(cluster, tmp_path):
    signals, left = SimpleQueue(), threading.Event()

    def parts(init, requests):
        yield ready()
        yield output(0, b"here\n")
        try:
            for request in requests:
                if request.WhichOneof("kind") == "signal":
                    signals.put(request.signal)
        finally:
            left.set()

    cluster.parts = parts
    child = start(cluster.peer, tmp_path, "spur", "exec", "31", "sleep", "99")
    with child:
        assert child.stdout.readline() == b"here\n"
        child.send_signal(signal.SIGUSR1)
        assert signals.get(timeout=20) == signal.SIGUSR1
        child.send_signal(signal.SIGINT)
        assert signals.get(timeout=20) == signal.SIGINT
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
    assert left.wait(20)


def test_exec_takes_much_output_at_the_readers_pace(cluster, tmp_path):
    """The output of a command is not kept in memory while nobody reads it."""

    def parts(init, requests):
        yield ready()
        for at in range(400):
            yield output(0, bytes([65 + at % 26]) * 100_000, at * 100_000)
        yield ended(0)

    cluster.parts = parts
    child = start(cluster.peer, tmp_path, "spur", "exec", "31", "yes")
    with child:
        data = child.stdout.read()
        assert child.wait(20) == 0
    assert len(data) == 40_000_000
    assert data[:1], data[-1:] == (b"A", bytes([65 + 399 % 26]))
