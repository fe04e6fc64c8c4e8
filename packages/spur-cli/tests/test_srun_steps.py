"""srun inside an allocation against a scripted controller and scripted agents."""

import signal
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

import grpc
import pytest

from spur_cli.step import inside_run, request, rules, run
from spur_proto import agent_pb2 as ag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

OUT = ag.OUTPUT_STREAM_STDOUT
INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "wrap", "SLURM_JOB_NUM_NODES": "1"}


def output(rank, data, offset=0, stream=OUT):
    chunk = ag.OutputChunk(rank=rank, stream=stream, offset=offset, data=data)
    return ag.InteractiveSessionResponse(output=chunk)


def task_exit(rank, **status):
    return ag.InteractiveSessionResponse(task_exit=ag.RankExit(rank=rank, exit=c.ExitStatus(**status)))


def ended(*ranks):
    """Codes by rank from 0, or (rank, ExitStatus) pairs."""
    pairs = [one if isinstance(one, tuple) else (at, c.ExitStatus(code=one)) for at, one in enumerate(ranks)]
    parts = [ag.RankExit(rank=rank, exit=status) for rank, status in pairs]
    return ag.InteractiveSessionResponse(exit=ag.StepExit(ranks=parts))


class Step:
    """A scripted step 12.3 on one node, which is the peer itself."""

    def __init__(self, peer, ranks=1):
        self.peer = peer
        self.ranks = ranks
        self.news = SimpleQueue()
        self.received = []
        self.cancelled = threading.Event()
        self.session = lambda requests: iter([ended(*[0] * self.ranks)])
        peer.answers.update(
            CreateJobStep=lambda request: self.created(),
            WatchStep=self.watch,
            CancelJob=self.cancel,
            InteractiveSession=self.talk,
        )

    def info(self, state=c.JOB_STATE_RUNNING, **more):
        return c.StepInfo(
            rid=c.RuntimeId(job_id=12, run_attempt=2, step_id=3),
            state=state,
            num_tasks=self.ranks,
            user="ann",
            name="prog",
            slices=[c.NodeSlice(node="n1", ranks=range(self.ranks))],
            **more,
        )

    def places(self):
        return [pb.NodeAddress(node="n1", address=self.peer.address)]

    def created(self):
        return pb.CreateJobStepResponse(step=self.info(), nodes=self.places())

    def watch(self, request):
        while (item := self.news.get()) is not None:
            yield pb.WatchStepResponse(step=item, nodes=self.places())

    def cancel(self, request):
        self.cancelled.set()
        return pb.CancelJobResponse()

    def talk(self, requests):
        self.received.append(next(requests))
        yield from self.session(requests)


@pytest.fixture
def step(peer):
    made = Step(peer)
    yield made
    made.news.put(None)


def asked(peer):
    return peer.last("CreateJobStep")


def test_a_step_is_asked_for_and_followed(cli, step):
    step.session = lambda requests: iter([output(0, b"hi\n"), ended(3)])
    result = cli("srun", "-n1", "prog", "-x", env=INSIDE)
    assert result == (3, "hi\n", "srun: error: n1: task 0: Exited with exit code 3\n")
    found = asked(step.peer)
    assert (found.job_id, list(found.argv), found.name) == (12, [b"prog", b"-x"], "prog")
    assert (found.num_tasks, found.min_nodes, found.exact, found.overlap) == (1, 1, False, False)
    assert found.request_id
    rid = step.received[0].init.rid
    assert (rid.job_id, rid.run_attempt, rid.step_id) == (12, 2, 3)
    assert "SubmitJob" not in [method for method, _, _ in step.peer.requests]


@pytest.mark.parametrize(
    ("words", "env", "fields"),
    [
        (["-n4", "-N2"], {}, {"num_tasks": 4, "min_nodes": 2, "max_nodes": 2}),
        ([], {"SLURM_NTASKS": "6", "SLURM_JOB_NUM_NODES": "3"}, {"num_tasks": 6, "min_nodes": 3}),
        (["-n2"], {"SLURM_JOB_NUM_NODES": "3"}, {"num_tasks": 2, "min_nodes": 2, "max_nodes": 2}),
        (["-c2"], {}, {"cpus_per_task": 2, "exact": True}),
        ([], {"SLURM_CPUS_PER_TASK": "3"}, {"cpus_per_task": 3, "exact": True}),
        ([], {"SLURM_CPUS_PER_TASK": "3", "SRUN_CPUS_PER_TASK": "4"}, {"cpus_per_task": 4}),
        (["-c2", "--whole"], {}, {"exact": False}),
        (["--exact"], {}, {"exact": True}),
        (["--exclusive"], {}, {"exact": True}),
        ([], {"SLURM_EXCLUSIVE": ""}, {"exact": False}),
        (["--overlap"], {}, {"overlap": True, "exact": False}),
        (["--overlap=no"], {}, {"overlap": False}),
        ([], {"SLURM_OVERLAP": "1"}, {"overlap": True}),
        (["--external-launcher"], {}, {"overlap": True}),
        (["-O"], {}, {"overcommit": True}),
        (["-w", "n2,n1"], {"SLURM_JOB_NUM_NODES": "4"}, {"nodelist": "n2,n1", "min_nodes": 2}),
        (["-x", "n2"], {"SLURM_JOB_NUM_NODES": "4"}, {"exclude": "n2", "min_nodes": 0}),
        (["-r2"], {"SLURM_JOB_NUM_NODES": "4"}, {"relative": 2, "min_nodes": 0}),
        (["-r2", "-N1"], {"SLURM_JOB_NUM_NODES": "4"}, {"relative": 2, "min_nodes": 1}),
        (["-m", "Cyclic:Block"], {}, {"distribution": "cyclic:block"}),
        ([], {"SLURM_DISTRIBUTION": "plane=2"}, {"distribution": "plane=2"}),
        (
            ["-N2"],
            {"SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NUM_NODES": "4"},
            {"num_tasks": 4, "tasks_per_node": 2, "min_nodes": 2},
        ),
        (["--ntasks-per-node=3"], {"SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "2"}, {"num_tasks": 6}),
        (["--mem=1G"], {"SLURM_MEM_PER_NODE": "9"}, {"memory_per_node_mb": 1024}),
        ([], {"SLURM_MEM_PER_NODE": "9"}, {"memory_per_node_mb": 0}),
        (["--gres=gpu:1"], {}, {"gres": ["gpu:1"]}),
        (["--gres=none"], {}, {"gres": ["none"]}),
        (["-G4", "-N2"], {}, {"gres": ["gpu:2"]}),
        ([], {"SLURM_GPUS": "4"}, {"gres": []}),
        ([], {"SLURM_GPUS_PER_TASK": "h100:2"}, {"gres": [], "gres_per_task": ["gpu:h100:2"]}),
        (["--gpus-per-task=1"], {"SLURM_GPUS_PER_TASK": "2"}, {"gres_per_task": ["gpu:1"]}),
        (["--gres=none"], {"SLURM_GPUS_PER_TASK": "2"}, {"gres": ["none"], "gres_per_task": []}),
        (["--overlap"], {"SLURM_GPUS_PER_TASK": "2"}, {"gres_per_task": []}),
        ([], {"SLURM_CPUS_PER_GPU": "2", "SLURM_HINT": "nomultithread", "SLURM_NTASKS_PER_CORE": "1"}, {}),
        (["-t", "5"], {"SLURM_TIMELIMIT": "9"}, {"time_limit_secs": 300}),
        (["-t", "0"], {}, {"time_limit_secs": 0}),
        (["-I"], {}, {"immediate": True}),
        (["-J", "x"], {}, {"name": "x"}),
        (["-l"], {}, {"label": True}),
        (["-i", "in.%t"], {}, {"stdin_path": "in.%t"}),
        (["-p", "debug", "-A", "a", "--qos=q"], {}, {}),
    ],
)
def test_options_and_variables(cli, step, words, env, fields):
    assert cli("srun", *words, "true", env={**INSIDE, **env}).code == 0
    found = asked(step.peer)
    for name, value in fields.items():
        have = getattr(found, name)
        assert (list(have) if isinstance(value, list) else have) == value, name


def test_shape_of_the_tasks(cli, step):
    words = ["--cpu-bind=verbose,map_cpu:0,1", "--gpu-bind=single:1", "--gpus-per-task=2", "-n2", "-i", "1"]
    assert cli("srun", *words, "--task-prolog=pro", "--task-epilog=/epi", "t", env=INSIDE).code == 0
    shape = asked(step.peer).shape
    assert (shape.cpu_bind, shape.gpu_bind) == ("verbose,map_cpu:0,1", "single:1")
    assert (shape.gpus_per_task, shape.stdin_rank) == (2, 1)
    assert shape.task_prolog.endswith("/pro")
    assert shape.task_prolog.startswith("/")
    assert shape.task_epilog == "/epi"


@pytest.mark.parametrize(
    ("words", "env", "each", "bind"),
    [
        ([], {"SLURM_GPUS_PER_TASK": "2"}, 2, ""),
        (["--gres=none"], {"SLURM_GPUS_PER_TASK": "2"}, 0, ""),
        ([], {"SLURM_NTASKS_PER_GPU": "3"}, 0, "single:3"),
        (["--gpu-bind=none"], {"SLURM_NTASKS_PER_GPU": "3"}, 0, "none"),
        (["--gpus=1"], {"SLURM_NTASKS_PER_GPU": "3"}, 0, ""),
    ],
)
def test_gpus_of_tasks_follow_from_the_job(cli, step, words, env, each, bind):
    assert cli("srun", "-n2", *words, "true", env={**INSIDE, **env}).code == 0
    shape = asked(step.peer).shape
    assert (shape.gpus_per_task, shape.gpu_bind) == (each, bind)


def test_too_few_tasks_for_the_nodes(cli, step):
    result = cli("srun", "-n1", "-N2", "true", env=INSIDE)
    assert result.err == "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n"
    assert asked(step.peer).min_nodes == 1


@pytest.mark.parametrize(
    "word", ["constraint=a", "contiguous", "tmp=1", "mem-per-gpu=1", "extra-node-info=2"]
)
def test_what_chooses_nodes_is_not_for_steps(cli, step, word):
    result = cli("srun", f"--{word}", "true", env=INSIDE)
    mend = "name nodes with -w or -x" if "constraint" in word else "give it to the job"
    said = f"srun: error: --{word.partition('=')[0]} is not supported for steps by this release; {mend}\n"
    assert (result.code, result.err) == (255, said)
    assert not step.peer.requests


def test_environment_goes_along(cli, step):
    cli("srun", "--export=NONE,A=1", "true", env={**INSIDE, "B": "2"})
    names = {entry.partition(b"=")[0] for entry in asked(step.peer).environment}
    assert b"A" in names
    assert b"B" not in names


def test_multi_prog(cli, peer, tmp_path):
    step = Step(peer, ranks=3)
    (tmp_path / "conf").write_text("0 a %t\n1-2 b\n")
    assert cli("srun", "--multi-prog", "conf", "-v", env=INSIDE).code == 0
    found = asked(peer)
    assert (found.num_tasks, found.name, list(found.argv)) == (3, "conf", [b"conf"])
    assert [(list(one.ranks), list(one.argv)) for one in found.shape.commands] == [
        ([0], [b"a", b"0", b"-v"]),
        ([1, 2], [b"b", b"-v"]),
    ]
    step.news.put(None)


@pytest.mark.parametrize("name", ["missing", "bad"])
def test_multi_prog_files_that_cannot_be_used(cli, step, tmp_path, name):
    (tmp_path / "bad").write_text("0 a\n2 b\n")
    result = cli("srun", "--multi-prog", name, env=INSIDE)
    assert result.code in (1, 255)
    assert result.err.startswith("srun: error: ")
    assert result.err.count("\n") == 1
    assert not step.peer.requests


def test_a_step_that_must_wait(cli, step):
    """The place in the line is kept under one request id, and what is said is said once."""
    ids = []

    def create(request):
        ids.append((request.request_id, request.wait_secs))
        return pb.CreateJobStepResponse(busy=True, text="") if len(ids) < 4 else step.created()

    step.peer.answers["CreateJobStep"] = create
    assert cli("srun", "true", env=INSIDE) == (
        0,
        "",
        "srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        "srun: Step created for StepId=12.3\n",
    )
    assert len({one for one, _ in ids}) == 1
    assert [wait for _, wait in ids] == [
        inside_run.FIRST_WAIT_SECS,
        *[inside_run.WAIT_SECS] * 3,
    ]


@pytest.mark.parametrize("words", [["-I"], ["-I0"], ["--immediate=0"]])
def test_a_step_that_waits_only_so_long(cli, step, monkeypatch, words):
    step.peer.answers["CreateJobStep"] = pb.CreateJobStepResponse(busy=True, text="")
    monkeypatch.setattr(inside_run, "FIRST_WAIT_SECS", 0.01)
    result = cli("srun", "-Q", *words, "true", env=INSIDE)
    text = "srun: error: Unable to create step for job 12: Requested nodes are busy\n"
    assert result == (1, "", text)


def test_creation_survives_the_controller(cli, step, refuse):
    ids = []

    def create(request):
        ids.append(request.request_id)
        if len(ids) < 3:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "restarting")
        return step.created()

    step.peer.answers["CreateJobStep"] = create
    assert cli("srun", "true", env=INSIDE) == (0, "", "")
    assert len(ids) == 3
    assert len(set(ids)) == 1


@pytest.mark.parametrize(
    ("status", "text", "code", "err"),
    [
        (
            grpc.StatusCode.NOT_FOUND,
            "Invalid job id specified",
            "no_such_job",
            "srun: error: Unable to confirm allocation for job 99: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 99\n",
        ),
        (
            grpc.StatusCode.FAILED_PRECONDITION,
            "Job/step already completing or completed",
            "already_done",
            "srun: error: Slurm job 99 has expired.\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 99\n",
        ),
        (
            grpc.StatusCode.INVALID_ARGUMENT,
            "More processors requested than permitted",
            "bad_request",
            "srun: error: Unable to create step for job 99: More processors requested than permitted\n",
        ),
    ],
)
def test_refusals(cli, step, refuse, status, text, code, err):
    def create(request):
        raise refuse(status, text, code)

    step.peer.answers["CreateJobStep"] = create
    assert cli("srun", "--jobid=99", "true") == (1, "", err)
    assert cli("srun", "--jobid=99", "true", env={"SLURM_EXIT_ERROR": "7"}).code == 7


def test_a_step_that_was_over_before_it_was_known(cli, step):
    """Its nodes still have its output; what each of them ran is told with the end."""
    answer = step.created()
    answer.step.state = c.JOB_STATE_COMPLETED
    del answer.step.slices[:]
    step.peer.answers["CreateJobStep"] = answer
    step.session = lambda requests: iter([output(0, b"quick\n"), ended(4)])
    err = "srun: error: n1: task 0: Exited with exit code 4\n"
    assert cli("srun", "-l", "true", env=INSIDE) == (4, "0: quick\n", err)


def test_a_step_whose_nodes_nobody_knows(cli, step):
    step.peer.answers["CreateJobStep"] = pb.CreateJobStepResponse(step=step.info())
    result = cli("srun", "true", env=INSIDE)
    assert (result.code, result.out) == (1, "")
    assert "its output is lost" in result.err


def test_output_names_know_job_and_step(cli, peer, tmp_path):
    step = Step(peer, ranks=2)
    step.session = lambda requests: iter([output(1, b"one\n"), ended(0, 0)])
    assert cli("srun", "-n2", "-o", "%J-%s-%t-%x-%u-%n", "prog", env=INSIDE) == (0, "", "")
    # A task that prints nothing has its file too.
    assert (tmp_path / "12.3-3-0-wrap-ann-0").read_text() == ""
    assert (tmp_path / "12.3-3-1-wrap-ann-0").read_text() == "one\n"
    step.news.put(None)


def test_more_files_than_may_be_open(cli, peer, tmp_path, monkeypatch):
    from spur_cli.step import output as writing

    monkeypatch.setattr(writing, "OPEN_FILES", 2)
    step = Step(peer, ranks=5)
    parts = [output(rank, b"%d\n" % rank, offset=at) for at in (0, 2) for rank in range(5)]
    step.session = lambda requests: iter([*parts, ended(*[0] * 5)])
    for rank in range(5):
        (tmp_path / f"o{rank}").write_text("old")
    assert cli("srun", "-n5", "-o", "o%t", "prog", env=INSIDE) == (0, "", "")
    for rank in range(5):
        assert (tmp_path / f"o{rank}").read_text() == f"{rank}\n" * 2
    step.news.put(None)


def test_output_that_cannot_be_made(cli, step):
    result = cli("srun", "-o", "nowhere/x", "prog", env=INSIDE)
    assert result.code == 1
    assert result.err.endswith("nowhere/x: No such file or directory\n")
    assert step.cancelled.is_set()


def test_kill_on_bad_exit(cli, peer):
    step = Step(peer, ranks=2)

    def talk(requests):
        yield task_exit(0, code=4)
        assert step.cancelled.wait(10)
        yield ended((0, c.ExitStatus(code=4)), (1, c.ExitStatus(signal=15)))

    step.session = talk
    assert cli("srun", "-n2", "-K", "prog", env=INSIDE) == (
        143,
        "",
        "srun: error: n1: task 0: Exited with exit code 4\n"
        "srun: Terminating StepId=12.3\n"
        "srun: error: n1: task 1: Terminated\n"
        "srun: Force Terminated StepId=12.3\n",
    )
    target = peer.last("CancelJob").targets[0]
    assert (target.job_id, target.step_id, target.HasField("step_id")) == (12, 3, True)
    step.news.put(None)


@pytest.mark.parametrize(("words", "env"), [([], {}), (["-K0"], {"SLURM_KILL_BAD_EXIT": "1"})])
def test_a_bad_exit_alone_ends_nothing(cli, peer, words, env):
    step = Step(peer, ranks=2)
    step.session = lambda requests: iter([task_exit(0, code=4), task_exit(0, code=4), ended(4, 0)])
    result = cli("srun", "-n2", *words, "prog", env={**INSIDE, **env})
    assert result == (4, "", "srun: error: n1: task 0: Exited with exit code 4\n")
    assert not step.cancelled.is_set()
    step.news.put(None)


def test_wait_after_the_first_end(cli, peer, monkeypatch):
    step = Step(peer, ranks=3)
    # A second in the options, none in the test.
    monkeypatch.setattr(rules.EndRules, "time_passed", _at_once(rules.EndRules.time_passed))

    def talk(requests):
        yield task_exit(1, code=0)
        yield task_exit(2, code=1)
        assert step.cancelled.wait(10)
        yield ended((0, c.ExitStatus(signal=15)))

    step.session = talk
    result = cli("srun", "-n3", "-W1", "prog", env=INSIDE)
    assert result.code == 143
    text = result.err.replace("srun: error: n1: task 2: Exited with exit code 1\n", "")
    assert text.startswith("srun: First task exited 1s ago\nsrun: StepId=12.3 task")
    assert "srun: Terminating StepId=12.3\nsrun: error: n1: task 0: Terminated\n" in text
    step.news.put(None)


def _at_once(original):
    return lambda self, now: original(self, now + 2)


def test_a_cancelled_step(cli, step, monkeypatch):
    told = threading.Event()
    original = run.StepRun.state_is

    def state_is(self, state, end, *, aborted):
        original(self, state, end, aborted=aborted)
        told.set()

    monkeypatch.setattr(run.StepRun, "state_is", state_is)

    def talk(requests):
        step.news.put(step.info(c.JOB_STATE_COMPLETING, kill_uid=0))
        assert told.wait(10)
        yield ended((0, c.ExitStatus(signal=15)))

    step.session = talk
    assert cli("srun", "sleep", "9", env=INSIDE) == (
        143,
        "",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: n1: task 0: Terminated\n"
        "srun: Force Terminated StepId=12.3\n",
    )


def test_a_node_that_has_nothing_of_a_step_that_is_over(cli, step, refuse):
    """Its supervisor was lost while the agent was away: nobody waits for last words."""

    def talk(requests):
        step.news.put(step.info(c.JOB_STATE_FAILED, exit=c.ExitStatus(signal=9)))
        raise refuse(grpc.StatusCode.NOT_FOUND, "no such step of job 12 on this node", "not_found")
        yield

    step.session = talk
    began = time.monotonic()
    assert cli("srun", "true", env=INSIDE).code == 137
    assert time.monotonic() - began < run.LAST_WORDS_SECS / 2


def test_a_node_that_never_tells_the_end(cli, step, monkeypatch):
    monkeypatch.setattr(run, "LAST_WORDS_SECS", 0.2)
    gate = threading.Event()

    def talk(requests):
        step.news.put(step.info(c.JOB_STATE_NODE_FAIL))
        gate.wait(20)
        yield from ()

    step.session = talk
    result = cli("srun", "true", env=INSIDE)
    gate.set()
    assert result.code == 1
    assert "the end of StepId=12.3 could not be read from n1" in result.err


def test_only_one_task_gets_the_input(cli, peer):
    """The other node's tasks have an empty one."""
    step = Step(peer, ranks=2)
    seen = []

    def created():
        answer = pb.CreateJobStepResponse(step=step.info())
        del answer.step.slices[:]
        for node, rank in (("n1", 0), ("n2", 1)):
            answer.step.slices.add(node=node, ranks=[rank])
            answer.nodes.add(node=node, address=peer.address)
        return answer

    def talk(requests):
        got = b""
        for one in requests:
            if one.stdin_eof:
                break
            got += one.stdin
        seen.append(got)
        yield ended()

    step.created, step.session = created, talk
    assert cli("srun", "-n2", "-i1", "cat", stdin=b"data", env=INSIDE).code == 0
    assert sorted(seen) == [b"", b"data"]
    step.news.put(None)


def test_programs_around_the_step(cli, step, tmp_path):
    for name, code in (("pro", 0), ("epi", 3)):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" $SLURM_STEP_ID\nexit {code}\n')
        (tmp_path / name).chmod(0o755)
    step.session = lambda requests: iter([output(0, b"task\n"), ended(0)])
    result = cli("srun", "--prolog=./pro", "--epilog=./epi", "prog", "x", env=INSIDE)
    assert result == (
        0,
        "pro prog x\ntask\nepi prog x 3\n",
        "srun: error: --epilog=./epi exited with code 3\n",
    )


def _srun(peer, tmp_path, *words):
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SPUR_CONTROLLER_ADDR": peer.address,
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        **INSIDE,
    }
    return subprocess.Popen(
        [sys.executable, "-c", f"from spur_cli.fast import main; main('srun', {list(words)!r})"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _end(child):
    child.kill()
    child.wait()
    child.stdout.close()
    child.stderr.close()


def test_interrupt_while_it_waits(peer, tmp_path):
    step = Step(peer)
    step.peer.answers["CreateJobStep"] = _busy_slowly
    child = _srun(peer, tmp_path, "sleep", "99")
    try:
        assert b"temporarily disabled" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 1
        assert child.stderr.read().startswith(b"srun: Cancelled pending job step with signal 2\n")
    finally:
        _end(child)
        step.news.put(None)


def _busy_slowly(request):
    time.sleep(min(request.wait_secs, 3.0))
    return pb.CreateJobStepResponse(busy=True)


def test_interrupts_of_a_step(peer, tmp_path):
    """Two within a second end the step, not the job."""
    step = Step(peer)
    signals = SimpleQueue()

    def talk(requests):
        yield output(0, b"ready\n")
        for one in requests:
            if one.WhichOneof("kind") == "signal":
                signals.put(one.signal)
                break
        assert step.cancelled.wait(10)
        yield ended((0, c.ExitStatus(signal=2)))

    step.session = talk
    child = _srun(peer, tmp_path, "sleep", "99")
    try:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stderr.readline() == b"srun: interrupt (one more within 1 sec to abort)\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
        assert signals.get(timeout=5) == signal.SIGINT
        assert peer.last("CancelJob").targets[0].step_id == 3
    finally:
        _end(child)
        step.news.put(None)


def test_defaults_of_a_step():
    below = {"nodes": "2", "ntasks": "4", "mem": "1", "job-name": "x", "distribution": "cyclic"}
    assert request.defaults(below, {}) == {"nodes": "2", "ntasks": "4", "distribution": "cyclic"}
    assert "nodes" not in request.defaults(below, {"relative": "1"})
    assert "ntasks" not in request.defaults(below, {"ntasks-per-node": "1"})
