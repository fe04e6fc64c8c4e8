"""Further steps beside an attempt: who may start them, what they get, what outlives what."""

import asyncio
import json
import os
import signal
from pathlib import Path

import grpc
import pytest
from grpc import aio

from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2 as pb
from spur_proto import common_pb2

pytestmark = pytest.mark.node

NODE = '[[nodes]]\nnames = "n1"\ncpus = 4\nmemory_mb = 500\ngres = ["gpu:a:3"]'


async def refused(call, status, text=""):
    with pytest.raises(aio.AioRpcError) as error:
        await call
    assert error.value.code() is status, error.value.details()
    assert text in (error.value.details() or ""), error.value.details()


@pytest.fixture
async def node(make_agent, controller, tools):
    agent = make_agent(config=tools.config_text(NODE))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    return agent


async def run(agent, tools, spec, **changes):
    request = tools.launch_request(spec, agent.name, **changes)
    made = pb.RunCommandRequest(
        spec=request.spec,
        target_node=request.target_node,
        launch_token=request.launch_token,
        term=request.term,
    )
    return await agent.call("RunCommand", made)


async def suspend(agent, tools, rid, resume=False):
    request = pb.AgentSuspendJobRequest(rid=tools.wire_rid(rid), resume=resume, term=1)
    if rid.step_id is None:
        request.rid.ClearField("step_id")
    return (await agent.call("SuspendJob", request)).steps


@pytest.fixture
def job(spec_of):
    """An allocation (or, with a script, a batch job) of 4 CPUs and 3 GPUs."""

    def make(rid, script=None, **fields):
        spec = spec_of(rid, script or "", cpus=4, job_lifetime=True, hold=script is None, **fields)
        if script is None:
            spec.ClearField("script")
        spec.slice.gres.add(name="gpu", type="a", count=3)
        spec.slice.memory_mb = 300
        return spec

    return make


@pytest.fixture
def step(spec_of):
    """A step that runs a shell command once per rank; its output goes to `out-STEP-RANK` in the work dir."""

    def make(rid, command, *, cpus=4, gpus=0, ranks=(0,), memory_mb=64, **fields):
        shape = fields.pop("shape", None)
        spec = spec_of(
            rid,
            argv=[b"/bin/sh", b"-c", command.encode()],
            stdout_path="out-%s-%t",
            step_nodes=["n1"],
            step_tasks=len(ranks),
            step_tasks_per_node_text=str(len(ranks)),
            **fields,
        )
        spec.ClearField("script")
        part = common_pb2.NodeSlice(node="n1", cpus=cpus, memory_mb=memory_mb, ranks=ranks)
        if gpus:
            part.gres.add(name="gpu", count=gpus)
        spec.slice.CopyFrom(part)
        spec.job_slice.CopyFrom(common_pb2.NodeSlice(node="n1", cpus=4, memory_mb=300))
        if shape is not None:
            spec.shape.CopyFrom(shape)
        return spec

    return make


def extern(job_id, attempt=1):
    return RuntimeId(job_id, attempt, STEP_EXTERN)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def launched_as(agent, rid):
    return json.loads((agent.session_dir(rid) / "launch.json").read_text())


async def test_a_step_runs_beside_its_allocation_and_ends_alone(node, controller, job, step, base, tools):
    rid = RuntimeId(70, 1, 0)
    await refused(
        run(node, tools, step(rid, "true")), grpc.StatusCode.NOT_FOUND, "job 70 is not on this node"
    )
    assert (await node.launch(job(extern(70)))).success
    spec = step(rid, "echo $SLURM_STEP_ID $SLURM_PROCID $SLURM_NTASKS; exit 3", ranks=(0, 1))
    answer = await run(node, tools, spec)
    assert answer.success, answer.error
    await tools.until(lambda: controller.reports, "report of the step")
    report = controller.reports[0]
    assert (report.rid.step_id, report.exit.code) == (0, 3)
    assert lines(base / "work/out-0-0") == ["0 0 2"]
    assert lines(base / "work/out-0-1") == ["0 1 2"]
    await tools.until(lambda: node.sessions == [extern(70).dirname()], "only the allocation is left")
    await refused(run(node, tools, spec), grpc.StatusCode.FAILED_PRECONDITION, "has run here")
    assert (await node.probe(extern(70))).active
    assert await node.cancel(extern(70), grace_secs=0)
    await tools.until(lambda: len(controller.reports) == 2, "report of the allocation")
    await tools.until(lambda: not node.sessions, "nothing left")
    assert not controller.drains


async def test_a_step_is_started_once_and_for_its_own_attempt_only(
    node, controller, job, step, gate, base, tools
):
    fifo = gate()
    assert (await node.launch(job(extern(71, 2)))).success
    rid = RuntimeId(71, 2, 0)
    spec = step(rid, f"echo run >> {base}/work/runs; read x < {fifo}")
    first, second = await asyncio.gather(run(node, tools, spec), run(node, tools, spec))
    assert (first.success, first) == (True, second)
    other = step(rid, "echo other")
    await refused(run(node, tools, other), grpc.StatusCode.ALREADY_EXISTS, "another spec")
    wrong = grpc.StatusCode.FAILED_PRECONDITION
    await refused(run(node, tools, step(RuntimeId(71, 1, 5), "true")), wrong, "attempt 2")
    await refused(run(node, tools, step(RuntimeId(71, 3, 5), "true")), wrong, "71.2.extern")
    lifetime = step(RuntimeId(71, 2, 6), "true", job_lifetime=True)
    await refused(run(node, tools, lifetime), grpc.StatusCode.INVALID_ARGUMENT, "LaunchJob")
    await refused(node.launch(job(tools.batch(71, 2))), wrong, "71.2.extern")
    # The same answer after a restart; the step has gone on.
    await node.kill(signal.SIGKILL)
    await node.start()
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    third = await run(node, tools, spec)
    assert third.success
    assert third.started_at == pytest.approx(first.started_at, abs=1)
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert lines(base / "work/runs") == ["run"]


@pytest.mark.root
async def test_a_step_belongs_to_its_jobs_user(node, job, step, tools):
    assert (await node.launch(job(extern(72)))).success
    rid = RuntimeId(72, 1, 0)
    spec = step(rid, "true")
    for name in ("uid", "gid"):
        other = pb.LaunchSpec()
        other.CopyFrom(spec)
        setattr(other, name, getattr(spec, name) - 1)
        await refused(run(node, tools, other), grpc.StatusCode.PERMISSION_DENIED, "the job belongs to")
    assert node.sessions == [extern(72).dirname()]


async def test_exact_steps_get_cpus_and_devices_of_their_own_also_after_a_restart(
    node, controller, job, step, gate, tools
):
    assert (await node.launch(job(extern(73)))).success
    fifo = gate()
    wait = f"read x < {fifo}"

    async def begin(number, **fields):
        rid = RuntimeId(73, 1, number)
        answer = await run(node, tools, step(rid, wait, **fields))
        assert answer.success, answer.error
        return launched_as(node, rid)["agent"]

    def used(claim):
        return claim["cpu_ids"], [i for g in claim["gres"] for i in g["indices"]]

    assert used(await begin(0, cpus=1, gpus=1, exact=True)) == ([0], [0])
    assert used(await begin(1, cpus=2, gpus=1, exact=True)) == ([1, 2], [1])
    assert used(await begin(2, cpus=2)) == ([0, 1, 2, 3], [])
    await node.kill(signal.SIGKILL)
    await node.start()
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    assert used(await begin(3, cpus=1, gpus=1, exact=True)) == ([3], [2])
    assert used(await begin(4, cpus=1, gpus=1, exact=True)) == ([0], [0])
    assert used(await begin(5, cpus=1, gpus=3, overlap=True)) == ([0, 1, 2, 3], [0, 1, 2])
    spec = launched_as(node, RuntimeId(73, 1, 1))
    assert (spec["cpus"], spec["memory_mb"]) == (2, 64)
    assert (spec["job_cpus"], spec["job_memory_mb"], spec["job_lifetime"]) == (4, 300, False)
    answer = await run(node, tools, step(RuntimeId(73, 1, 6), wait, gpus=4))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_RESOURCES)
    assert "wants 4 gpu" in answer.error
    # The node is full for other jobs, whatever the steps use.
    answer = await node.launch(job(extern(74)))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_RESOURCES)
    assert await node.cancel(extern(73), grace_secs=0)
    await tools.until(lambda: not node.sessions, "all of the job's steps end with it")
    assert {r.rid.step_id for r in controller.reports} == {0, 1, 2, 3, 4, 5, STEP_EXTERN}
    assert (await node.launch(job(extern(74)))).success


async def test_a_step_that_fails_to_start_leaves_the_job_as_it_was(node, job, step, tools):
    assert (await node.launch(job(extern(75)))).success
    bad = step(RuntimeId(75, 1, 0), "true")
    bad.stdout_path = "/proc/no/such/out"
    answer = await run(node, tools, bad)
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_JOB)
    await refused(
        run(node, tools, step(RuntimeId(75, 1, 1), "true", shape=common_pb2.StepShape(gpu_bind="x"), gpus=1)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "--gpu-bind=x",
    )
    await tools.until(lambda: node.sessions == [extern(75).dirname()], "only the allocation")
    answer = await run(node, tools, step(RuntimeId(75, 1, 2), "true"))
    assert answer.success, answer.error


async def test_ranks_have_commands_devices_and_environment_of_their_own(
    node, controller, job, step, base, tools
):
    assert (await node.launch(job(extern(76)))).success
    shape = common_pb2.StepShape(
        commands=[
            common_pb2.RankCommand(ranks=[5], argv=[b"/bin/sh", b"-c", b"echo other $0 $SLURM_PROCID"])
        ],
        gpus_per_task=1,
    )
    show = "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_GTIDS $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES"
    spec = step(
        RuntimeId(76, 1, 3),
        f"{show} $SLURM_JOB_GPUS $SLURM_NODEID $SLURM_NNODES",
        ranks=(2, 5),
        gpus=2,
        shape=shape,
    )
    spec.step_nodes[:] = ["n0", "n1"]
    spec.step_node_index = 1
    answer = await run(node, tools, spec)
    assert answer.success, answer.error
    await tools.until(lambda: controller.reports, "report")
    assert lines(base / "work/out-3-2") == ["2 0 2,5 0,1 0 0,1,2 1 2"]
    assert lines(base / "work/out-3-5") == ["other /bin/sh 5"]


async def test_a_newer_attempt_displaces_every_step_of_the_older(node, controller, job, step, base, tools):
    old = extern(77, 1)
    assert (await node.launch(job(old))).success
    for number in range(3):
        command = f"trap '' TERM; echo $$ > {base}/work/pid{number}; sleep 1000 & wait; wait"
        assert (await run(node, tools, step(RuntimeId(77, 1, number), command))).success
    pids = [await tools.until(lambda n=n: lines(base / f"work/pid{n}"), "step up") for n in range(3)]
    identities = [procfs.identity(int(pid[0])) for pid in pids]
    assert (await node.launch(job(extern(77, 2)))).success
    assert not any(who is not None and procfs.is_alive(who) for who in identities)
    await tools.until(lambda: len(controller.reports) == 4, "all of the old attempt's ends")
    assert {r.rid.run_attempt for r in controller.reports} == {1}
    await tools.until(lambda: node.sessions == [extern(77, 2).dirname()], "only the new attempt", 10)
    # Nothing that was meant for the old attempt touches the new one.
    assert (await run(node, tools, step(RuntimeId(77, 2, 0), "sleep 1000"))).success
    assert not await node.cancel(RuntimeId(77, 1, 0), grace_secs=0)
    assert not await node.cancel(old, signal=signal.SIGKILL)
    status = grpc.StatusCode.FAILED_PRECONDITION
    await refused(suspend(node, tools, RuntimeId(77, 1, 0)), status, "77.2")
    assert (await node.probe(RuntimeId(77, 2, 0))).active


async def test_signals_reach_the_steps_and_not_the_batch_shell_unless_asked(
    node, controller, job, step, base, tools
):
    log = base / "work/log"
    trap = f"trap 'echo NAME >> {log}' USR1; echo up >> {log}; while :; do sleep 0.05; done"
    assert (await node.launch(job(tools.batch(78), trap.replace("NAME", "batch")))).success
    await tools.until(lambda: lines(log) == ["up"], "script up")

    async def send(**fields):
        request = pb.AgentCancelJobRequest(signal=signal.SIGUSR1, term=1, **fields)
        request.rid.job_id, request.rid.run_attempt = 78, 1
        return (await node.call("CancelJob", request)).active

    # Without steps there is nobody whom it could reach; the job is there all the same.
    assert await send(steps_only=True)
    assert (await run(node, tools, step(RuntimeId(78, 1, 0), trap.replace("NAME", "step")))).success
    await tools.until(lambda: lines(log).count("up") == 2, "step up")
    assert await send(steps_only=True)
    await tools.until(lambda: "step" in lines(log), "signal in the step")
    assert "batch" not in lines(log)
    assert await send(batch_only=True)
    await tools.until(lambda: "batch" in lines(log), "signal in the script")
    assert lines(log).count("step") == 1
    assert await send()
    await tools.until(lambda: (lines(log).count("step"), lines(log).count("batch")) == (2, 2), "both")
    bad = grpc.StatusCode.INVALID_ARGUMENT
    await refused(send(steps_only=True, batch_only=True), bad, "steps_only")
    request = pb.AgentCancelJobRequest(rid=tools.wire_rid(RuntimeId(78, 1, 0)), signal=65, term=1)
    await refused(node.call("CancelJob", request), bad, "no signal 65")
    assert controller.reports == []


async def test_suspend_and_resume_by_exact_identity(node, controller, job, step, base, tools):
    ticks = [base / f"work/tick{n}" for n in range(2)]
    assert (await node.launch(job(extern(79)))).success
    for number, path in enumerate(ticks):
        command = f"while :; do echo x >> {path}; sleep 0.02; done"
        assert (await run(node, tools, step(RuntimeId(79, 1, number), command))).success
        await tools.until(lambda path=path: lines(path), "step runs")

    async def moves(path):
        before = len(lines(path))
        for _ in range(50):
            await asyncio.sleep(0.01)
            if len(lines(path)) > before + 1:
                return True
        return False

    whole = RuntimeId(79, 1, None)
    assert await suspend(node, tools, RuntimeId(79, 1, 1)) == 1
    assert (await moves(ticks[0]), await moves(ticks[1])) == (True, False)
    assert await suspend(node, tools, whole) >= 2
    assert (await moves(ticks[0]), await moves(ticks[1])) == (False, False)
    # Also when an agent asks for it that knows nothing of what was before.
    await node.kill(signal.SIGKILL)
    await node.start()
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    assert not await moves(ticks[0])
    assert await suspend(node, tools, whole, resume=True) >= 2
    assert (await moves(ticks[0]), await moves(ticks[1])) == (True, True)
    await refused(suspend(node, tools, RuntimeId(79, 2, None)), grpc.StatusCode.FAILED_PRECONDITION, "79.1")
    await refused(suspend(node, tools, RuntimeId(79, 1, 9)), grpc.StatusCode.FAILED_PRECONDITION, "79.1")
    await refused(suspend(node, tools, RuntimeId(80, 1, None)), grpc.StatusCode.NOT_FOUND)
    await refused(suspend(node, tools, RuntimeId(79, 0, None)), grpc.StatusCode.INVALID_ARGUMENT)
    assert (await moves(ticks[0]), await moves(ticks[1])) == (True, True)


async def test_only_the_controller_starts_or_suspends_steps(node, job, step, user, tools):
    assert (await node.launch(job(extern(81)))).success
    spec = step(RuntimeId(81, 1, 0), "true")
    unknown, denied = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
    await refused(run(node, tools, spec, token=""), unknown, "no credential")
    await refused(run(node, tools, spec, signed=step(RuntimeId(81, 1, 1), "true")), denied, "another")
    await refused(run(node, tools, spec, term=0), grpc.StatusCode.FAILED_PRECONDITION, "term 0")
    request = pb.RunCommandRequest(spec=spec.SerializeToString(), target_node="n1", term=1)
    await refused(node.call("RunCommand", request, user.token()), unknown, "a user credential")
    pause = pb.AgentSuspendJobRequest(rid=tools.wire_rid(extern(81)), term=1)
    await refused(node.call("SuspendJob", pause, user.token()), unknown, "a user credential")
    assert node.sessions == [extern(81).dirname()]


async def test_no_step_starts_once_its_job_is_over(node, controller, job, step, gate, tools):
    controller.refuse = grpc.StatusCode.UNAVAILABLE
    fifo = gate()
    assert (await node.launch(job(tools.batch(82), f"read x < {fifo}"))).success
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "refused report")
    late = step(RuntimeId(82, 1, 0), "true")
    await refused(run(node, tools, late), grpc.StatusCode.FAILED_PRECONDITION, "is over")
    controller.refuse = None
    await tools.until(lambda: not node.sessions, "end")
    await refused(run(node, tools, late), grpc.StatusCode.NOT_FOUND)
    assert os.listdir(node.state / "runtime" / "sessions") == []


def limit_of(group, *names):
    """The first of these files of a group that is there, as a number; None if the hierarchy has none."""
    for name in names:
        path = Path(group) / name
        if path.exists():
            return path.read_text().split()[0]
    return None


@pytest.mark.root
async def test_limits_hold_for_the_job_and_for_each_step(node, controller, job, step, gate, tools):
    """Whichever step came first has made the job's group; every step has one of its own in it."""
    assert (await node.launch(job(extern(83)))).success
    fifo, rid = gate(), RuntimeId(83, 1, 0)
    assert (await run(node, tools, step(rid, f"read x < {fifo}", cpus=2, exact=True, memory_mb=48))).success
    groups = tools.descriptor_of(node, rid.dirname())["cgroup"]
    found = {}
    for group in groups:
        for which, path in (("step", group), ("job", os.path.dirname(group))):
            for kind, names in {
                "memory": ("memory.max", "memory.limit_in_bytes"),
                "cpu": ("cpu.max", "cpu.cfs_quota_us"),
                "pids": ("pids.max",),
            }.items():
                value = limit_of(path, *names)
                if value is not None:
                    found[which, kind] = int(value)
    assert found == {
        ("step", "memory"): 48 << 20,
        ("job", "memory"): 300 << 20,
        ("step", "cpu"): 200000,
        ("job", "cpu"): 400000,
        ("step", "pids"): 1024,
        ("job", "pids"): 1024,
    }
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    # A step that takes too much is killed for it; its job goes on.
    hungry = step(RuntimeId(83, 1, 1), "head -c 400000000 /dev/zero | tail", memory_mb=32)
    assert (await run(node, tools, hungry)).success
    await tools.until(lambda: len(controller.reports) == 2, "report")
    assert controller.reports[1].exit.oom
    assert (await node.probe(extern(83))).active


async def test_a_step_that_comes_up_while_its_job_ends_does_not_outlive_it(
    make_agent, controller, job, step, gate, base, tools
):
    """The job's own supervisor has looked for steps to end before the step was there to be found."""
    agent = make_agent(config=tools.config_text(NODE))
    agent.environ = {"SPUR_TEST_FAULTS": "1", "SPUR_FAULT": "stop_at:launch_json"}
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")

    async def stopped():
        def is_stopped():
            found = procfs.stat(agent.pid)
            return found is not None and found.state == "T"

        await tools.until(is_stopped, "agent stopped")

    fifo, rid = gate(), tools.batch(84)
    launching = asyncio.create_task(agent.launch(job(rid, f"read x < {fifo}")))
    await stopped()
    os.kill(agent.pid, signal.SIGCONT)
    assert (await launching).success
    running = asyncio.create_task(run(agent, tools, step(RuntimeId(84, 1, 0), "sleep 1000")))
    await stopped()
    tools.open_gate(fifo)
    journal = agent.session_dir(rid) / "journal"
    await tools.until(lambda: "CleanupDone" in journal.read_text(), "the job is over and has looked around")
    os.kill(agent.pid, signal.SIGCONT)
    assert (await running).success
    await tools.until(lambda: len(controller.reports) == 2, "both ends")
    assert {(r.rid.step_id == 0, r.exit.signal) for r in controller.reports} == {(True, 9), (False, 0)}
    await tools.until(lambda: not agent.sessions, "nothing left")


async def test_tasks_are_bound_to_cpus(agent, controller, step, spec_of, base, tools):
    """With the host's real CPU numbers: whatever there are, each task gets one of its own in turn."""
    cpus = len(os.sched_getaffinity(0))
    held = spec_of(extern(85), "", cpus=cpus, hold=True, job_lifetime=True)
    held.ClearField("script")
    assert (await agent.launch(held)).success
    mine = launched_as(agent, extern(85))["cpu_ids"]
    show = "grep Cpus_allowed_list /proc/self/status | tr -d '[:blank:]'; echo $SLURM_CPU_BIND"
    shape = common_pb2.StepShape(cpu_bind="threads")
    spec = step(RuntimeId(85, 1, 0), show, cpus=cpus, ranks=(0, 1), shape=shape)
    spec.job_slice.cpus = cpus
    answer = await run(agent, tools, spec)
    assert answer.success, answer.error
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 0
    wanted = [mine[0], mine[1 % len(mine)]]
    masks = ",".join(f"0x{1 << cpu:X}" for cpu in wanted)
    for rank, cpu in enumerate(wanted):
        assert lines(base / f"work/out-0-{rank}") == [f"Cpus_allowed_list:{cpu}", f"quiet,mask_cpu:{masks}"]
    other = step(RuntimeId(85, 1, 1), show, shape=common_pb2.StepShape(cpu_bind="map_cpu:4000"))
    await refused(
        run(agent, tools, other), grpc.StatusCode.INVALID_ARGUMENT, "outside of job step allocation"
    )
