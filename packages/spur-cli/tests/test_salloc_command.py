"""salloc as a process of its own against a scripted controller."""

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from queue import Empty, SimpleQueue

import grpc
import pytest

from spur_cli.alloc import environment, layout
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

GRANTED = "salloc: Granted job allocation 31\nsalloc: Nodes n[1-2] are ready for job\n"
RELINQUISHED = "salloc: Relinquishing job allocation 31\n"


def job_info(state=c.JOB_STATE_RUNNING, **more):
    job = c.JobInfo(job_id=31, run_attempt=1, state=state, name="j", user="ann", uid=7, gid=8, **more)
    job.partition, job.account, job.num_tasks, job.cpus_per_task = "debug", "acc", 3, 1
    if state != c.JOB_STATE_PENDING:
        job.nodelist, job.start_at, job.end_at = "n[1-2]", 1000.0, 4600.0
        job.slices.add(node="n1", cpus=2, memory_mb=100, ranks=[0, 1])
        job.slices.add(node="n2", cpus=2, memory_mb=100, ranks=[2])
    return job


class Allocation:
    """A scripted job 31."""

    def __init__(self, peer):
        self.peer = peer
        self.news = SimpleQueue()
        self.completed = threading.Event()
        self.cancelled = threading.Event()
        peer.answers.update(
            SubmitJob=pb.SubmitJobResponse(job_id=31),
            WatchJob=self.watch,
            CompleteJob=self.complete,
            CancelJob=self.cancel,
            JobKeepalive=pb.JobKeepaliveResponse(),
            Ping=pb.PingResponse(cluster_name="here"),
        )

    def put(self, state=c.JOB_STATE_RUNNING, **more):
        self.news.put(job_info(state, **more))

    def watch(self, request):
        while (job := self.news.get()) is not None:
            yield pb.WatchJobResponse(job=job)

    def complete(self, request):
        self.completed.set()
        return pb.CompleteJobResponse()

    def cancel(self, request):
        self.cancelled.set()
        return pb.CancelJobResponse()

    @property
    def spec(self):
        return self.peer.last("SubmitJob").spec


@pytest.fixture
def allocation(peer):
    made = Allocation(peer)
    yield made
    made.news.put(None)


@pytest.fixture
def start(peer, tmp_path):
    """Start salloc; its streams are pipes unless told otherwise."""
    running = []

    def begin(*words, env=None, **how):
        full = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "SPUR_CONTROLLER_ADDR": peer.address,
            **(env or {}),
        }
        how = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": tmp_path,
            **how,
        }
        code = f"from spur_cli.fast import main; main('salloc', {list(words)!r})"
        child = subprocess.Popen([sys.executable, "-c", code], env=full, **how)
        running.append(child)
        return child

    yield begin
    for child in running:
        child.kill()
        child.communicate()


def finish(child, timeout=20):
    out, err = child.communicate(timeout=timeout)
    return child.returncode, out.decode(), err.decode()


def test_a_command_runs_in_the_allocation(start, allocation):
    allocation.put()
    child = start("-N2", "-n3", "sh", "-c", "echo $SLURM_JOB_ID $SLURM_NNODES $SLURM_NTASKS; exit 5")
    assert finish(child) == (5, "31 2 3\n", GRANTED + RELINQUISHED)
    assert (allocation.spec.alloc_only, allocation.spec.name) == (True, "sh")
    assert not allocation.spec.argv
    done = allocation.peer.last("CompleteJob")
    assert (done.job_id, done.exit.code, done.exit.signal) == (31, 5, 0)
    assert [method for method, _, _ in allocation.peer.requests].count("JobKeepalive") == 1


def test_the_shell_is_the_command_when_there_is_none(start, allocation, tmp_path):
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho shell $SLURM_JOB_NAME $SPUR_JOB_ID\n")
    shell.chmod(0o755)
    allocation.put()
    assert finish(start(env={"SHELL": str(shell)}))[:2] == (0, "shell j 31\n")
    assert allocation.spec.name == "interactive"


def test_waiting_is_told(start, allocation):
    allocation.put(c.JOB_STATE_PENDING)
    child = start("true")
    assert child.stderr.readline() == b"salloc: Pending job allocation 31\n"
    assert child.stderr.readline() == b"salloc: job 31 queued and waiting for resources\n"
    allocation.put()
    assert finish(child)[2] == "salloc: job 31 has been allocated resources\n" + GRANTED + RELINQUISHED


def test_nodes_that_take_their_time(start, allocation):
    allocation.put(c.JOB_STATE_PENDING)
    child = start("-Q", "true")
    allocation.put()
    assert finish(child) == (0, "", "")


def test_no_shell(start, allocation):
    allocation.put()
    assert finish(start("--no-shell")) == (0, "", GRANTED)
    assert allocation.spec.name == "no-shell"
    methods = {method for method, _, _ in allocation.peer.requests}
    assert not methods & {"CompleteJob", "CancelJob", "JobKeepalive"}


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["--no-shell", "x"], 255, "salloc: error: --no-shell takes no command\n"),
        (["-t", "x"], 255, "salloc: error: Invalid --time specification\n"),
        (
            ["--bogus"],
            255,
            "salloc: unrecognized option '--bogus'\nTry \"salloc --help\" for more information\n",
        ),
        (["-Ksigfoo", "x"], 255, "salloc: error: Invalid --kill-command specification: sigfoo\n"),
        (["--array=1", "x"], 255, "salloc: unrecognized option '--array'\n"),
    ],
)
def test_bad_words(start, allocation, words, code, err):
    result = finish(start(*words))
    assert result[0] == code
    assert result[2].startswith(err)
    assert not allocation.peer.requests


@pytest.mark.parametrize(
    ("words", "text", "err"),
    [
        ([], "Invalid qos specification", "Job submit/allocate failed: Invalid qos specification"),
        (["-I"], "Requested nodes are busy", "Unable to allocate resources: Requested nodes are busy"),
    ],
)
def test_refusals(start, peer, refuse, words, text, err):
    def answer(request):
        raise refuse(grpc.StatusCode.INVALID_ARGUMENT, text, "bad_request")

    peer.answers["SubmitJob"] = answer
    assert finish(start(*words, "true")) == (1, "", f"salloc: error: {err}\n")


@pytest.mark.parametrize(
    ("script", "code"), [("kill -INT $$", 0), ("kill -KILL $$", 0), ("kill -ABRT $$", 1)]
)
def test_a_command_that_is_killed(start, allocation, script, code):
    allocation.put()
    assert finish(start("sh", "-c", script))[0] == code
    assert allocation.peer.last("CompleteJob").exit.signal


def test_a_command_that_cannot_run(start, allocation):
    allocation.put()
    result = finish(start("/nowhere/prog"))
    assert result[0] == 1
    text = 'salloc: error: Unable to exec command "/nowhere/prog": No such file or directory\n'
    assert result[2] == GRANTED + text + RELINQUISHED


def test_the_end_is_told_through_a_restart_of_the_controller(start, allocation, refuse):
    tries = []

    def complete(request):
        tries.append(1)
        if len(tries) < 2:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "restarting")
        return pb.CompleteJobResponse()

    allocation.peer.answers["CompleteJob"] = complete
    allocation.put()
    assert finish(start("true")) == (0, "", GRANTED + RELINQUISHED)
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("state", "more", "text"),
    [
        (
            c.JOB_STATE_TIMEOUT,
            {},
            "salloc: Job 31 has exceeded its time limit and its allocation has been revoked.\n",
        ),
        (
            c.JOB_STATE_COMPLETING,
            {"reason": "TimeLimit"},
            "salloc: Job 31 has exceeded its time limit and its allocation has been revoked.\n",
        ),
        (c.JOB_STATE_CANCELLED, {"kill_uid": 0}, "salloc: Job allocation 31 has been revoked.\n"),
        (c.JOB_STATE_NODE_FAIL, {}, "salloc: Job allocation 31 has been revoked.\n"),
    ],
)
def test_an_allocation_that_is_taken_away(start, allocation, state, more, text):
    """The command is hung up; what is over is not completed again."""
    allocation.put()
    child = start("sh", "-c", "trap 'echo hup; exit 9' HUP; echo ready; while :; do sleep 0.05; done")
    assert child.stdout.readline() == b"ready\n"
    allocation.put(state, **more)
    code, out, err = finish(child)
    # The shell may say what became of its sleep.
    assert (code, out, err.replace("Hangup\n", "")) == (9, "hup\n", GRANTED + text)
    assert not allocation.completed.is_set()


def test_another_signal_for_the_command(start, allocation):
    allocation.put()
    child = start(
        "-KUSR1", "sh", "-c", "trap 'echo usr; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    )
    assert child.stdout.readline() == b"ready\n"
    allocation.put(c.JOB_STATE_TIMEOUT)
    assert finish(child)[:2] == (3, "usr\n")


def test_signals_reach_the_command(start, allocation):
    allocation.put()
    child = start("sh", "-c", "trap 'echo term; exit 4' TERM; echo ready; while :; do sleep 0.05; done")
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGTERM)
    code, out, err = finish(child)
    assert (code, out, err.replace("Terminated\n", "")) == (4, "term\n", GRANTED + RELINQUISHED)


def test_interrupt_while_pending(start, allocation):
    allocation.put(c.JOB_STATE_PENDING)
    child = start("true")
    assert child.stderr.readline() == b"salloc: Pending job allocation 31\n"
    child.stderr.readline()
    child.send_signal(signal.SIGINT)
    text = "salloc: Job allocation 31 has been revoked.\nsalloc: Job aborted due to signal\n"
    assert finish(child) == (1, "", text)
    assert allocation.cancelled.is_set()


def test_revoked_while_pending(start, allocation):
    allocation.put(c.JOB_STATE_PENDING)
    child = start("true")
    child.stderr.readline()
    child.stderr.readline()
    allocation.news.put(c.JobInfo(job_id=31, state=c.JOB_STATE_CANCELLED))
    assert finish(child) == (1, "", "salloc: Job allocation 31 has been revoked.\n")


def test_nothing_of_an_enclosing_job_shines_through(start, allocation):
    allocation.put()
    env = {"SLURM_PROCID": "3", "SLURM_STEP_ID": "0", "SPUR_NTASKS": "9", "SLURM_JOB_ID": "5", "MINE": "1"}
    code, out, _ = finish(start("env", env=env))
    names = {line.partition("=")[0] for line in out.splitlines()}
    assert code == 0
    assert not names & {"SLURM_PROCID", "SLURM_STEP_ID", "SPUR_NTASKS"}
    assert {"MINE", "SLURM_JOB_ID", "SPUR_JOB_NODELIST"} <= names


def test_the_same_controller_is_asked_inside(start, allocation):
    allocation.put()
    address = allocation.peer.address
    env = {"SPUR_CONTROLLER_ADDR": "127.0.0.1:9"}
    out = finish(start("--controller", address, "sh", "-c", "echo $SPUR_CONTROLLER_ADDR", env=env))[1]
    assert out == f"{address}\n"


def test_the_job_set():
    job = job_info(memory_per_cpu_mb=50, tasks_per_node=2)
    found = environment.of_job(job, frozenset({"ntasks", "cpus-per-task"}))
    assert found == {
        "JOB_ID": "31",
        "JOBID": "31",
        "JOB_NAME": "j",
        "JOB_PARTITION": "debug",
        "JOB_ACCOUNT": "acc",
        "JOB_UID": "7",
        "JOB_GID": "8",
        "JOB_USER": "ann",
        "JOB_NODELIST": "n[1-2]",
        "NODELIST": "n[1-2]",
        "JOB_NUM_NODES": "2",
        "NNODES": "2",
        "TASKS_PER_NODE": "2,1",
        "JOB_CPUS_PER_NODE": "2(x2)",
        "JOB_START_TIME": "1000",
        "JOB_END_TIME": "4600",
        "NTASKS_PER_NODE": "2",
        "MEM_PER_CPU": "50",
        "NTASKS": "3",
        "NPROCS": "3",
        "CPUS_PER_TASK": "1",
    }


@pytest.mark.parametrize(
    ("counts", "text"),
    [([], ""), ([1], "1"), ([72, 72, 36], "72(x2),36"), ([1, 2, 1], "1,2,1"), ([2, 2, 2, 1], "2(x3),1")],
)
def test_runs(counts, text):
    assert layout.runs(counts) == text


def test_a_single_run_with_its_count():
    assert layout.runs([4], always=True) == "4(x1)"


class Screen:
    """The far side of a terminal."""

    def __init__(self, master):
        self.master = master
        self.text = b""
        self._parts = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while part := os.read(self.master, 4096):
                self._parts.put(part)
        except OSError:
            pass

    def until(self, wanted, secs=15.0):
        deadline = time.monotonic() + secs
        while wanted not in self.text:
            try:
                self.text += self._parts.get(timeout=max(deadline - time.monotonic(), 0.01))
            except Empty:
                pytest.fail(f"{wanted!r} did not come: {self.text!r}")
        self.text = self.text.partition(wanted)[2]

    def type(self, text):
        os.write(self.master, text)


@pytest.fixture
def screen():
    master, slave = pty.openpty()
    made = Screen(master)
    made.slave = slave
    yield made
    os.close(slave)
    os.close(master)


#: Starts salloc as the leader of a new session whose terminal is standard input.
_AS_LOGIN = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"


def login(screen, peer, tmp_path, *words, env=None):
    full = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SPUR_CONTROLLER_ADDR": peer.address,
        "TERM": "dumb",
        "PS1": "> ",
        **(env or {}),
    }
    code = f"{_AS_LOGIN}; from spur_cli.fast import main; main('salloc', {list(words)!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=full,
        cwd=tmp_path,
        stdin=screen.slave,
        stdout=screen.slave,
        stderr=screen.slave,
        start_new_session=True,
    )


def test_an_interactive_shell_has_the_terminal(screen, allocation, tmp_path):
    """Job control works in it, ^C goes to what runs in its foreground, and the end gives all back."""
    allocation.put()
    child = login(screen, allocation.peer, tmp_path, "bash", "--norc", "--noediting", "-i")
    try:
        screen.until(b"are ready for job")
        screen.until(b"> ")
        screen.type(b"echo job=$SLURM_JOB_ID\n")
        screen.until(b"job=31")
        screen.type(b"sleep 99\n")
        screen.until(b"sleep 99")
        _until_foreground_is(screen.master, b"sleep")
        screen.type(b"\x03")
        screen.until(b"> ")
        assert not allocation.cancelled.is_set()
        screen.type(b"sleep 98 &\n")
        screen.until(b"[1]")
        screen.type(b"kill %1; exit 6\n")
        screen.until(b"Relinquishing job allocation 31")
        assert child.wait(15) == 6
    finally:
        child.kill()
        child.wait()


def _until_foreground_is(fd, name):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        group = os.tcgetpgrp(fd)
        try:
            with open(f"/proc/{group}/comm", "rb") as comm:
                if comm.read().strip() == name:
                    return
        except OSError:
            pass
        select.select([], [], [], 0.02)
    pytest.fail(f"{name!r} never had the terminal")


def test_the_limit_hangs_up_the_shell(screen, allocation, tmp_path):
    allocation.put()
    child = login(screen, allocation.peer, tmp_path, "bash", "--norc", "--noediting", "-i")
    try:
        screen.until(b"> ")
        screen.type(b"sleep 99\n")
        _until_foreground_is(screen.master, b"sleep")
        allocation.put(c.JOB_STATE_TIMEOUT)
        screen.until(b"has exceeded its time limit and its allocation has been revoked.")
        assert child.wait(15) == 0
        assert not allocation.completed.is_set()
    finally:
        child.kill()
        child.wait()


def test_a_stopped_command_stops_salloc_and_goes_on_with_it(screen, allocation, tmp_path):
    """As a shell would see it: ^Z stops the whole job, `fg` brings the command back."""
    allocation.put()
    child = login(screen, allocation.peer, tmp_path, "sh", "-c", "echo STARTED; cat; echo over")
    try:
        screen.until(b"STARTED")
        screen.type(b"one\n")
        screen.until(b"one\r\none\r\n")
        screen.type(b"\x1a")
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
        os.kill(child.pid, signal.SIGCONT)
        screen.type(b"two\n")
        screen.until(b"two\r\ntwo\r\n")
        screen.type(b"\x04")
        screen.until(b"over")
        assert child.wait(15) == 0
    finally:
        child.kill()
        child.wait()
