"""srun outside an allocation against a scripted controller and scripted agents."""

import os
import signal
import subprocess
import sys
import threading
from queue import SimpleQueue

import grpc
import pytest

from spur_cli.step import exits, job_run, session
from spur_cli.step.exits import TaskEnd
from spur_proto import agent_pb2 as ag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

OUT, ERR = ag.OUTPUT_STREAM_STDOUT, ag.OUTPUT_STREAM_STDERR


def output(rank, data, offset=0, stream=OUT):
    chunk = ag.OutputChunk(rank=rank, stream=stream, offset=offset, data=data)
    return ag.InteractiveSessionResponse(output=chunk)


def ended(*ranks):
    """(rank, ExitStatus) pairs."""
    parts = [ag.RankExit(rank=rank, exit=status) for rank, status in ranks]
    return ag.InteractiveSessionResponse(exit=ag.StepExit(ranks=parts))


class Job:
    """A scripted job on one node (the peer itself) with `ranks` tasks."""

    def __init__(self, peer, ranks=1):
        self.peer = peer
        self.ranks = ranks
        self.cancelled = threading.Event()
        self.states = SimpleQueue()
        self.received = []
        self.session = lambda requests: iter(())
        peer.answers.update(
            SubmitJob=pb.SubmitJobResponse(job_id=31),
            WatchJob=self.watch,
            CancelJob=self.cancel,
            InteractiveSession=self.talk,
        )

    def news(self, state, **more):
        job = c.JobInfo(
            job_id=31, run_attempt=2, state=state, num_tasks=self.ranks, user="u", name="j", **more
        )
        if state != c.JOB_STATE_PENDING and "start_at" not in more:
            job.start_at = 1.0
        job.slices.append(c.NodeSlice(node="n1", ranks=range(self.ranks)))
        nodes = [pb.NodeAddress(node="n1", address=self.peer.address)] if job.HasField("start_at") else []
        return pb.WatchJobResponse(job=job, nodes=nodes)

    def watch(self, request):
        while True:
            item = self.states.get()
            if item is None:
                return
            yield item

    def cancel(self, request):
        self.cancelled.set()
        return pb.CancelJobResponse()

    def talk(self, requests):
        first = next(requests)
        assert first.WhichOneof("kind") == "init"
        self.received.append(first)
        yield from self.session(requests)


@pytest.fixture
def job(peer):
    made = Job(peer)
    yield made
    made.states.put(None)


def run_to_the_end(job, *parts):
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    job.session = lambda requests: iter(parts)


def test_output_and_code(cli, job):
    run_to_the_end(
        job, output(0, b"hi\n"), output(0, b"oops\n", stream=ERR), ended((0, c.ExitStatus(code=3)))
    )
    assert cli("srun", "prog", "-x") == (
        3,
        "hi\n",
        "oops\nsrun: error: n1: task 0: Exited with exit code 3\n",
    )
    spec = job.peer.last("SubmitJob").spec
    assert (spec.srun_job, list(spec.argv), spec.name) == (True, [b"prog", b"-x"], "prog")
    rid = job.received[0].init.rid
    assert (rid.job_id, rid.run_attempt, rid.step_id) == (31, 2, 0)


def test_a_job_that_starts_at_once_says_nothing(cli, job):
    run_to_the_end(job, ended((0, c.ExitStatus())))
    assert cli("srun", "true") == (0, "", "")


def test_waiting_is_told(cli, job, monkeypatch):
    """The job starts only after the notice, which comes only because it does not start at once."""
    monkeypatch.setattr(job_run, "QUIET_SECS", 0.0)
    told = when(monkeypatch, job_run.JobRun, "waiting", lambda step: step._told_waiting)

    def watch(request):
        yield job.news(c.JOB_STATE_PENDING)
        assert told.wait(10)
        yield job.news(c.JOB_STATE_RUNNING)

    job.peer.answers["WatchJob"] = watch
    job.session = lambda requests: iter([ended((0, c.ExitStatus()))])
    assert cli("srun", "true") == (
        0,
        "",
        "srun: job 31 queued and waiting for resources\nsrun: job 31 has been allocated resources\n",
    )


def when(monkeypatch, cls, method, condition):
    """An event that is set when `condition(instance)` holds after `method`."""
    event = threading.Event()
    original = getattr(cls, method)

    def wrapped(self, *args):
        result = original(self, *args)
        if condition(self):
            event.set()
        return result

    monkeypatch.setattr(cls, method, wrapped)
    return event


def test_labels_are_as_wide_as_the_largest_rank(cli, peer):
    job = Job(peer, ranks=12)
    run_to_the_end(
        job,
        output(0, b"a\nb"),
        output(11, b"x\n"),
        output(0, b"c\nlast", offset=3),
        ended(*((rank, c.ExitStatus()) for rank in range(12))),
    )
    assert cli("srun", "-n12", "-l", "prog").out == " 0: a\n11: x\n 0: bc\n 0: last\n"
    job.states.put(None)


def test_stdin_reaches_the_tasks(cli, job):
    def echo(requests):
        got = b""
        for request in requests:
            if request.stdin_eof:
                break
            got += request.stdin
        yield output(0, got.upper())
        yield ended((0, c.ExitStatus()))

    job.session = echo
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert cli("srun", "cat", stdin=b"hello\n").out == "HELLO\n"


@pytest.mark.parametrize("words", [["-i", "none"], ["--input=none"]])
def test_no_stdin(cli, job, words):
    def first(requests):
        assert next(requests).stdin_eof
        yield ended((0, c.ExitStatus()))

    job.session = first
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert cli("srun", *words, "cat", stdin=b"ignored").code == 0


def test_output_is_credited(cli, job):
    """The agent learns what was written before the session ends, so that it can drop it."""
    credits = []
    done = threading.Event()

    def talk(requests):
        yield output(0, b"x" * 300_000)
        for request in requests:
            if request.WhichOneof("kind") == "consumed":
                credits.append(request.consumed.offset)
                break
        done.set()
        yield ended((0, c.ExitStatus()))

    job.session = talk
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert len(cli("srun", "prog").out) == 300_000
    assert done.wait(5)
    assert credits == [300_000]


def test_output_goes_on_where_it_was_after_the_agent_restarts(cli, job, refuse):
    calls = []

    def talk(requests):
        calls.append(1)
        if len(calls) == 1:
            yield output(0, b"one\ntw")
            raise refuse(grpc.StatusCode.UNAVAILABLE, "agent is going down")
        if len(calls) == 2:
            raise refuse(grpc.StatusCode.NOT_FOUND, "not scanned yet")
        offsets = [(o.rank, o.stream, o.offset) for o in job.received[-1].init.offsets]
        assert offsets == [(0, OUT, 6)]
        yield output(0, b"two\n", offset=4)  # overlaps on purpose: nothing may appear twice
        yield ended((0, c.ExitStatus()))

    job.session = talk
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert cli("srun", "prog") == (0, "one\ntwo\n", "")
    assert len(calls) == 3


def test_the_watch_survives_the_controller(cli, job, refuse):
    calls = []

    def watch(request):
        calls.append(1)
        if len(calls) == 1:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield job.news(c.JOB_STATE_RUNNING)

    job.peer.answers["WatchJob"] = watch
    job.session = lambda requests: iter([ended((0, c.ExitStatus()))])
    assert cli("srun", "true") == (0, "", "")


def test_an_agent_that_refuses_for_good(cli, job, refuse):
    def talk(requests):
        raise refuse(grpc.StatusCode.PERMISSION_DENIED, "Access/permission denied", "access_denied")
        yield

    job.session = talk
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    result = cli("srun", "true")
    assert result.code == 1
    assert result.err.splitlines()[0] == (
        "srun: error: n1: lost contact with StepId=31.0: Access/permission denied"
    )


def test_files_by_task(cli, peer, tmp_path):
    job = Job(peer, ranks=2)
    run_to_the_end(
        job,
        output(0, b"zero\n"),
        output(1, b"one\n"),
        output(1, b"bad\n", stream=ERR),
        ended((0, c.ExitStatus()), (1, c.ExitStatus())),
    )
    (tmp_path / "o-31-1").write_text("old")
    assert cli("srun", "-n2", "-o", "o-%j-%t", "prog") == (0, "", "")
    assert (tmp_path / "o-31-0").read_text() == "zero\n"
    assert (tmp_path / "o-31-1").read_text() == "one\nbad\n"
    job.states.put(None)


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        (["-o", "1"], "one\n", "bad\n"),
        (["-o", "none"], "", ""),
        (["-o", "none", "-e", "all"], "", "bad\n"),
        (["-e", "none"], "zero\none\n", ""),
        (["-o", "all"], "zero\none\n", "bad\n"),
    ],
)
def test_output_words(cli, peer, words, out, err):
    job = Job(peer, ranks=2)
    run_to_the_end(
        job,
        output(0, b"zero\n"),
        output(1, b"one\n"),
        output(1, b"bad\n", stream=ERR),
        ended((0, c.ExitStatus()), (1, c.ExitStatus())),
    )
    assert cli("srun", "-n2", *words, "prog") == (0, out, err)
    job.states.put(None)


def test_revoked_while_pending(cli, job):
    job.states.put(_cancelled(job))
    assert cli("srun", "true") == (1, "", "srun: Job allocation 31 has been revoked\n")


def _cancelled(job):
    message = job.news(c.JOB_STATE_PENDING)
    message.job.state = c.JOB_STATE_CANCELLED
    return message


def test_a_launch_that_fails_says_why(cli, job):
    message = job.news(c.JOB_STATE_PENDING)
    message.job.state = c.JOB_STATE_FAILED
    message.job.reason = "JobLaunchFailure"
    message.job.state_desc = "work directory /nope: No such file or directory"
    job.states.put(message)
    assert cli("srun", "true") == (
        1,
        "",
        "srun: error: Unable to launch StepId=31.0: FAILED:"
        " work directory /nope: No such file or directory\n",
    )


def test_the_job_is_cancelled_by_somebody(cli, job, monkeypatch):
    told = when(monkeypatch, job_run.JobRun, "news", lambda step: step._told_aborted)

    def talk(requests):
        job.states.put(job.news(c.JOB_STATE_CANCELLED))
        assert told.wait(10)
        yield ended((0, c.ExitStatus(signal=15)))

    job.session = talk
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert cli("srun", "sleep", "9") == (
        143,
        "",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: n1: task 0: Terminated\n"
        "srun: Force Terminated StepId=31.0\n",
    )


@pytest.mark.parametrize(
    ("words", "env", "code", "err"),
    [
        ([], {}, 1, "srun: fatal: No command given to execute.\n"),
        (
            ["--bogus"],
            {},
            255,
            "srun: unrecognized option '--bogus'\nTry \"srun --help\" for more information\n",
        ),
        (
            ["--mpi=pmix", "x"],
            {},
            255,
            "srun: error: --mpi=pmix is not supported by this release; "
            "use --mpi=pmi2, or start the program by mpiexec\n",
        ),
        (
            ["--mpi=lam", "x"],
            {},
            255,
            "srun: error: Invalid MPI type 'lam', --mpi=list for acceptable types\n",
        ),
        (
            ["--mpi=pmi2", "-N2", "x"],
            {},
            255,
            "srun: error: --mpi=pmi2 works within one node in this release: use -N1, "
            "or start the program by mpiexec\n",
        ),
        (["--jobid=x", "true"], {}, 255, 'srun: error: Invalid numeric value "x" for --jobid.\n'),
        (["-r1", "true"], {}, 255, "srun: error: --relative is for steps inside an allocation\n"),
        (["-K2", "true"], {}, 255, "srun: error: Invalid --kill-on-bad-exit specification: 2; use 0 or 1\n"),
        (["-Wx", "true"], {}, 255, 'srun: error: Invalid numeric value "x" for --wait.\n'),
        (["--cpu-bind=rank_ldom", "x"], {}, 255, None),
        (["--cpu-bind=bogus", "x"], {}, 255, None),
        (["-m", "bogus", "x"], {}, 255, "srun: error: Invalid --distribution specification\n"),
        (["-n2", "-i", "2", "cat"], {}, 255, "srun: error: --input=2: there is no task 2 in a step of 2\n"),
        (["-i", "nowhere", "cat"], {}, 1, None),
    ],
)
def test_bad_words(cli, job, words, env, code, err):
    result = cli("srun", *words, env=env)
    assert (result.code, result.out) == (code, "")
    if err is not None:
        assert result.err == err
    assert not job.peer.requests


def test_launchers_flags_parse(cli, job):
    run_to_the_end(job, ended((0, c.ExitStatus())))
    words = "--ntasks-per-node=1 --kill-on-bad-exit=0 --mpi=none --cpu-bind=none --nodes=1 --ntasks=1"
    assert (
        cli(
            "srun",
            *words.split(),
            "--input",
            "none",
            "-u",
            "true",
            env={"SPUR_SRUN_NEW_JOB": "1", "SLURM_JOB_ID": "1"},
        ).code
        == 0
    )


def test_mpi_list(cli, job):
    assert cli("srun", "--mpi=list") == (0, "MPI plugin types are...\n\tnone\n\tpmi2\n", "")


def test_version_is_what_launchers_parse(cli, job):
    assert cli("srun", "--version") == (0, "slurm 25.11.0\n", "")


def test_refusals(cli, peer, refuse):
    def answer(request):
        raise refuse(grpc.StatusCode.INVALID_ARGUMENT, "Requested nodes are busy", "bad_request")

    peer.answers["SubmitJob"] = answer
    text = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    assert cli("srun", "true") == (1, "", text)
    assert cli("srun", "-I", "true", env={"SLURM_EXIT_IMMEDIATE": "4"}) == (4, "", text)
    assert peer.last("SubmitJob").spec.immediate


def test_interrupts(peer, tmp_path):
    """One ^C tells, two within a second end the job; other signals go to the tasks.  A real process."""
    job = Job(peer)
    signals: SimpleQueue[int] = SimpleQueue()
    attached = threading.Event()

    def talk(requests):
        attached.set()
        yield output(0, b"ready\n")
        for request in requests:
            if request.WhichOneof("kind") == "signal":
                signals.put(request.signal)
                if request.signal == signal.SIGINT:
                    break
        yield ended((0, c.ExitStatus(signal=2)))

    job.session = talk
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SPUR_CONTROLLER_ADDR": peer.address,
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    child = subprocess.Popen(
        [sys.executable, "-c", "from spur_cli.fast import main; main('srun', ['sleep', '99'])"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGUSR1)
        assert signals.get(timeout=10) == signal.SIGUSR1
        child.send_signal(signal.SIGINT)
        assert child.stderr.readline() == b"srun: interrupt (one more within 1 sec to abort)\n"
        assert child.stderr.readline() == b"srun: StepId=31.0 task 0: running\n"
        assert not job.cancelled.is_set()
        child.send_signal(signal.SIGINT)
        assert signals.get(timeout=10) == signal.SIGINT
        assert job.cancelled.wait(10)
        assert child.wait(10) == 130
        assert b"sending Ctrl-C to StepId=31.0" in child.stderr.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
        job.states.put(None)


@pytest.mark.parametrize(
    ("ends", "code", "lines"),
    [
        ([TaskEnd("n1", 0, 0, 0, False, False)], 0, []),
        (
            [TaskEnd("n1", 0, 1, 0, False, False), TaskEnd("n2", 1, 1, 0, False, False)],
            1,
            ["n[1-2]: tasks 0-1: Exited with exit code 1"],
        ),
        (
            [TaskEnd("n1", 0, 0, 9, False, False), TaskEnd("n1", 1, 5, 0, False, False)],
            137,
            [
                "n1: task 0: Killed",
                "n1: task 1: Exited with exit code 5",
            ],
        ),
        (
            [TaskEnd("n1", 0, 0, 11, False, True)],
            139,
            ["n1: task 0: Segmentation fault (core dumped)"],
        ),
        ([TaskEnd("n1", 0, 0, 9, True, False)], 125, None),
    ],
)
def test_ends(ends, code, lines):
    assert exits.overall(ends) == code
    found = exits.lines(ends)
    if lines is None:
        assert found[0] == "n1: task 0: Out Of Memory"
    else:
        assert found == lines


def test_session_gives_up_in_the_end(monkeypatch, peer, cli):
    """An agent that never comes back is reported, and srun ends."""
    monkeypatch.setattr(session, "RECONNECT_SECS", 0.3)
    job = Job(peer)
    message = job.news(c.JOB_STATE_RUNNING)
    message.nodes[0].address = "127.0.0.1:9"
    job.states.put(message)
    result = cli("srun", "true")
    assert result.code == 1
    assert "n1: lost contact with StepId=31.0" in result.err
    job.states.put(None)


def test_stdin_file(cli, job, tmp_path):
    (tmp_path / "data").write_bytes(b"from file")

    def echo(requests):
        got = b""
        for request in requests:
            if request.stdin_eof:
                break
            got += request.stdin
        yield output(0, got)
        yield ended((0, c.ExitStatus()))

    job.session = echo
    job.states.put(job.news(c.JOB_STATE_RUNNING))
    assert cli("srun", "-i", "data", "cat").out == "from file"
    assert os.path.exists(tmp_path / "data")
