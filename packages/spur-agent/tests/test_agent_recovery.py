"""What the agent tells of supervisors after a start and after a loss, and what it does with each verdict."""

import asyncio
import os
import signal

import grpc
import pytest

from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_core.linux import cgroup, procfs
from spur_proto import agent_pb2
from spur_proto import controller_pb2 as pb

pytestmark = pytest.mark.node

LIVE, STALE = pb.RECOVERY_STATE_LIVE, pb.RECOVERY_STATE_STALE
FINISHED, CORRUPT = pb.RECOVERY_STATE_FINISHED, pb.RECOVERY_STATE_CORRUPT
KEEP, WAIT = pb.RECOVERY_VERDICT_KEEP, pb.RECOVERY_VERDICT_WAIT
FENCE, FORGET, RESTORE = (
    pb.RECOVERY_VERDICT_FENCE,
    pb.RECOVERY_VERDICT_FORGET,
    pb.RECOVERY_VERDICT_RESTORE,
)


@pytest.fixture
def make_agent(make_agent):
    """Agents that tell again after half a second."""

    def make(*args, **how):
        one = make_agent(*args, **how)
        one.waits = {"spur_agent.recovery.REPEAT_SECS": 0.5}
        return one

    return make


def by_state(**words):
    """Verdicts by the state of an entry; WAIT for what is not named."""
    table = {getattr(pb, f"RECOVERY_STATE_{name}"): verdict for name, verdict in words.items()}
    return lambda entry: table.get(entry.state, WAIT)


def held(job_id, step_id, attempt=1):
    return RuntimeId(job_id, attempt, step_id)


def hold_spec(spec_of, rid):
    """An allocation's extern step."""
    spec = spec_of(rid, hold=True, job_lifetime=True)
    spec.ClearField("script")
    return spec


def step_spec(spec_of, rid, command, **fields):
    spec = spec_of(rid, argv=[b"/bin/sh", b"-c", command.encode()], spool_output=True, **fields)
    spec.ClearField("script")
    return spec


async def run_step(agent, tools, spec):
    request = tools.launch_request(spec, agent.name)
    return await agent.call(
        "RunCommand",
        agent_pb2.RunCommandRequest(
            spec=request.spec, target_node=agent.name, launch_token=request.launch_token, term=1
        ),
    )


def stepd_of(agent, tools, rid):
    found = tools.descriptor_of(agent, rid.dirname())
    return procfs.Identity(found["stepd_pid"], found["stepd_start_ticks"], found["boot_id"])


def task_of(agent, tools, rid):
    return procfs.identity(tools.descriptor_of(agent, rid.dirname())["task_pid"])


async def lose(agent, tools, rid):
    who = stepd_of(agent, tools, rid)
    os.kill(who.pid, signal.SIGKILL)
    await tools.until(lambda: not procfs.is_alive(who), "supervisor dead")


async def test_v09_a_corrupt_descriptor_is_fenced_by_its_directory_name(
    agent, controller, spec_of, gate, tools
):
    rid, fifo = tools.batch(200), gate()
    # Without control groups nobody finds what has left the supervisor's session.
    escape = "setsid sleep 500 &" if os.geteuid() == 0 else ""
    assert (await agent.launch(spec_of(rid, f"{escape} read x < {fifo}"))).success
    stepd, task = stepd_of(agent, tools, rid), task_of(agent, tools, rid)
    await agent.kill()
    (agent.session_dir(rid) / "descriptor.json").write_bytes(b'{"job_id": 9')
    controller.recover = by_state()
    await agent.start()
    await tools.until(lambda: CORRUPT in controller.said_of(rid), "reported as corrupt")
    assert not procfs.is_alive(stepd)
    await tools.until(lambda: not procfs.is_alive(task), "its processes are killed")
    assert (await agent.launch(spec_of(tools.batch(201)))).success
    # The directory stays where it is until the controller has spoken, also over another restart.
    assert rid.dirname() in agent.sessions
    await agent.kill()
    before = len(controller.said_of(rid))
    await agent.start()
    await tools.until(lambda: len(controller.said_of(rid)) > before, "reported again")
    controller.recover = by_state(CORRUPT=FORGET)
    await tools.until(lambda: rid.dirname() not in agent.sessions, "cleared away")
    aside = os.listdir(agent.state / "runtime" / "quarantine")
    assert [name.rpartition(".")[0] for name in aside] == [rid.dirname()]


async def test_everything_found_is_reported_before_launches_are_taken(
    make_agent, controller, spec_of, gate, tools, user
):
    agent = make_agent()
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    live, stale, done = tools.batch(210), tools.batch(211), tools.batch(212)
    fifo = gate()
    for rid in (live, stale):
        assert (await agent.launch(spec_of(rid, f"read x < {fifo}", cpus=0))).success
    controller.refuse = tools.grpc.StatusCode.UNAVAILABLE
    assert (await agent.launch(spec_of(done, "exit 3"))).success
    await tools.until(lambda: controller.reports, "a report that nobody takes")
    await agent.kill()
    await lose(agent, tools, stale)
    order = []

    def verdict(entry):
        order.append("recovery")
        return {LIVE: KEEP, FINISHED: KEEP, STALE: WAIT}[entry.state]

    controller.recover = verdict
    await agent.start()
    answer = await agent.launch(spec_of(tools.batch(213), "exit 0"))
    order.append("launched")
    assert answer.success, answer.error
    assert order[:4] == ["recovery"] * 3 + ["launched"]
    assert [controller.said_of(rid)[0] for rid in (live, stale, done)] == [LIVE, STALE, FINISHED]
    request = controller.recovery_requests[0]
    assert (request.hostname, request.boot_id) == ("n1", procfs.boot_id())
    assert request.node_token
    # What is to be kept is told once, what is not decided again.
    await tools.until(lambda: len(controller.said_of(stale)) >= 2, "told again")
    assert len(controller.said_of(live)) == 1
    controller.refuse = None
    controller.recover = by_state(STALE=FORGET)
    await tools.until(lambda: agent.sessions == [live.dirname()], "the rest is gone")
    tools.open_gate(fifo)


async def test_a_run_that_waits_is_reported_until_it_is_kept(agent, controller, spec_of, gate, tools):
    rid, fifo = tools.batch(215), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    await agent.kill()
    verdicts = [WAIT, 0, KEEP]
    controller.recover = lambda entry: verdicts.pop(0)
    await agent.start()
    await tools.until(lambda: not verdicts, "kept at the third report")
    assert controller.said_of(rid) == [LIVE] * 3
    assert (await agent.probe(rid)).state == "live"
    tools.open_gate(fifo)


async def test_a_fence_ends_exactly_the_run_that_it_names(agent, controller, spec_of, gate, tools):
    rid, other, fifo = tools.batch(220), tools.batch(221), gate()
    for one in (rid, other):
        assert (await agent.launch(spec_of(one, f"read x < {fifo}", cpus=0))).success
    task, bystander = task_of(agent, tools, rid), task_of(agent, tools, other)
    await agent.kill()
    controller.verdict = pb.REPORT_VERDICT_RETRY
    controller.recover = lambda entry: FENCE if entry.rid.job_id == 220 and entry.state == LIVE else KEEP
    await agent.start()
    await tools.until(lambda: FINISHED in controller.said_of(rid), "reported as ended")
    assert not procfs.is_alive(task)
    assert procfs.is_alive(bystander)
    assert controller.said_of(other) == [LIVE]
    # Its end is told like any other's.
    await tools.until(lambda: controller.reports, "report")
    assert (controller.reports[0].rid.job_id, controller.reports[0].exit.signal) == (220, signal.SIGKILL)
    controller.verdict = pb.REPORT_VERDICT_FINAL
    await tools.until(lambda: agent.sessions == [other.dirname()], "gone")
    tools.open_gate(fifo)


async def test_a_terminal_jobs_run_is_forgotten(agent, controller, spec_of, tools):
    rid = tools.batch(222)
    assert (await agent.launch(spec_of(rid, "sleep 1000"))).success
    task = task_of(agent, tools, rid)
    await agent.kill()
    controller.verdict = pb.REPORT_VERDICT_UNKNOWN
    controller.recover = by_state(LIVE=FORGET)
    await agent.start()
    await tools.until(lambda: not agent.sessions, "cleared away")
    assert not procfs.is_alive(task)
    assert not (await agent.probe(rid)).active


async def test_a_lost_session_stays_until_there_is_a_verdict(agent, controller, spec_of, gate, tools):
    """And survives the agent's restart as what it is (4.7)."""
    rid, fifo = tools.batch(225), gate()
    controller.recover = by_state()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    task = task_of(agent, tools, rid)
    await lose(agent, tools, rid)
    await tools.until(lambda: STALE in controller.said_of(rid), "told by the watch")
    assert not procfs.is_alive(task)
    assert not (await agent.probe(rid)).active
    assert not await agent.cancel(rid, grace_secs=0)
    await agent.kill()
    told = len(controller.said_of(rid))
    await agent.start()
    await tools.until(lambda: len(controller.said_of(rid)) > told, "told by the next agent")
    assert set(controller.said_of(rid)) == {STALE}
    assert agent.sessions == [rid.dirname()]
    # A fence of what is dead already is carried out and told; the second one lets it go.
    controller.recover = by_state(STALE=FENCE)
    await tools.until(lambda: not agent.sessions, "gone")
    assert [e.detail for e in controller.recoveries if e.rid.job_id == 225][-1] == "fenced"
    assert not controller.reports


async def test_a_fenced_session_is_still_told_after_a_restart(agent, controller, spec_of, gate, tools):
    rid, fifo = tools.batch(226), gate()
    verdicts = {"": FENCE}
    controller.recover = lambda entry: verdicts.get("fenced" if entry.detail == "fenced" else "", WAIT)
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    await lose(agent, tools, rid)
    await tools.until(lambda: any(e.detail == "fenced" for e in controller.recoveries), "fenced")
    assert b'"Fenced"' in (agent.session_dir(rid) / "journal").read_bytes()
    await agent.kill()
    controller.recoveries.clear()
    await agent.start()
    await tools.until(lambda: controller.recoveries, "told again")
    assert (controller.recoveries[0].state, controller.recoveries[0].detail) == (STALE, "fenced")
    controller.recover = by_state(STALE=FORGET)
    await tools.until(lambda: not agent.sessions, "gone")


async def test_a_controller_that_gives_no_verdicts_is_asked_less_often(
    agent, controller, spec_of, gate, tools
):
    rid, fifo = tools.batch(227), gate()
    assert controller.recover is None
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    await lose(agent, tools, rid)
    await tools.until(lambda: "recovery_unsupported" in agent.log_text(), "no such call there")
    await tools.until(lambda: "supervisor_lost" in agent.log_text(), "lost")
    assert not (await agent.probe(rid)).active
    await tools.until(lambda: not agent.sessions, "gone by the older rule")


async def test_a_lost_step_takes_nothing_else_along(agent, controller, spec_of, gate, tools):
    """13.7: a numbered step's loss kills that step; batch and another step go on."""
    batch, one, two = tools.batch(230), held(230, 0), held(230, 1)
    fifo = gate()
    controller.recover = by_state()
    assert (await agent.launch(spec_of(batch, f"read x < {fifo}", job_lifetime=True))).success
    for rid in (one, two):
        assert (await run_step(agent, tools, step_spec(spec_of, rid, f"read x < {fifo}"))).success
    tasks = {rid: task_of(agent, tools, rid) for rid in (batch, one, two)}
    await lose(agent, tools, one)
    await tools.until(lambda: STALE in controller.said_of(one), "told")
    assert not procfs.is_alive(tasks[one])
    assert procfs.is_alive(tasks[batch])
    assert procfs.is_alive(tasks[two])
    assert not controller.said_of(batch)
    controller.recover = by_state(STALE=FORGET)
    await tools.until(lambda: one.dirname() not in agent.sessions, "gone")
    assert (await agent.probe(two)).state == "live"


async def test_a_lost_batch_step_ends_every_step_of_its_attempt_here(agent, controller, spec_of, gate, tools):
    batch, one = tools.batch(231), held(231, 0)
    fifo = gate()
    controller.recover = by_state()
    assert (await agent.launch(spec_of(batch, f"read x < {fifo}", job_lifetime=True))).success
    assert (await run_step(agent, tools, step_spec(spec_of, one, f"read x < {fifo}"))).success
    task = task_of(agent, tools, one)
    await lose(agent, tools, batch)
    await tools.until(lambda: STALE in controller.said_of(batch), "told")
    await tools.until(lambda: not procfs.is_alive(task), "the other step ends")
    await tools.until(lambda: controller.reports, "and is reported")
    assert (controller.reports[0].rid.step_id, controller.reports[0].exit.signal) == (0, signal.SIGKILL)


async def test_an_extern_supervisor_is_replaced_and_nothing_in_it_is_hurt(
    agent, controller, spec_of, gate, tools
):
    extern, one = held(232, STEP_EXTERN), held(232, 0)
    fifo = gate()
    controller.recover = by_state(LIVE=KEEP, STALE=RESTORE)
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    assert (await run_step(agent, tools, step_spec(spec_of, one, f"read x < {fifo}; exit 4"))).success
    first, task = stepd_of(agent, tools, extern), task_of(agent, tools, one)
    await lose(agent, tools, extern)
    await tools.until(lambda: LIVE in controller.said_of(extern), "told that it lives again")
    assert controller.said_of(extern)[0] == STALE
    second = stepd_of(agent, tools, extern)
    assert second != first
    assert procfs.is_alive(second)
    assert procfs.is_alive(task)
    assert (await agent.probe(extern)).state == "live"
    # The new one is taken back by the next agent like any other, and ends like any other.
    await agent.kill()
    await agent.start()
    assert stepd_of(agent, tools, extern) == second
    assert (await agent.probe(extern)).state == "live"
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "the step's end")
    assert (controller.reports[0].rid.step_id, controller.reports[0].exit.code) == (0, 4)
    assert await agent.cancel(extern, grace_secs=0, reason="cancelled")
    await tools.until(lambda: any(r.rid.step_id == STEP_EXTERN for r in controller.reports), "its end")
    await tools.until(lambda: extern.dirname() not in agent.sessions, "gone")


async def test_an_extern_step_without_a_supervisor_is_not_called_gone(
    agent, controller, spec_of, gate, tools
):
    """What runs in it goes on, so a probe has no answer yet; an end of the job ends that too."""
    extern, one = held(236, STEP_EXTERN), held(236, 0)
    controller.recover = by_state(LIVE=KEEP, STALE=WAIT)
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    assert (await run_step(agent, tools, step_spec(spec_of, one, f"read x < {gate()}"))).success
    task = task_of(agent, tools, one)
    await lose(agent, tools, extern)
    await tools.until(lambda: STALE in controller.said_of(extern), "told that it is lost")
    with pytest.raises(grpc.aio.AioRpcError, match="has lost its supervisor; ask again") as caught:
        await agent.probe(extern)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert procfs.is_alive(task)
    assert not await agent.cancel(extern, grace_secs=0, reason="cancelled")
    assert not (await agent.probe(extern)).active
    await tools.until(lambda: not procfs.is_alive(task), "its steps are ended with it")


async def test_a_step_asked_for_while_its_extern_supervisor_is_replaced_waits(
    agent, controller, spec_of, gate, tools
):
    extern, one = held(237, STEP_EXTERN), held(237, 0)
    controller.recover = by_state(LIVE=KEEP, STALE=WAIT)
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    await lose(agent, tools, extern)
    await tools.until(lambda: STALE in controller.said_of(extern), "told that it is lost")
    spec = step_spec(spec_of, one, f"read x < {gate()}")
    with pytest.raises(grpc.aio.AioRpcError, match="is being started; ask again") as caught:
        await run_step(agent, tools, spec)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    controller.recover = by_state(LIVE=KEEP, STALE=RESTORE)
    await tools.until(lambda: LIVE in controller.said_of(extern), "told that it lives again")
    assert (await run_step(agent, tools, spec)).success


async def test_a_step_that_comes_up_while_its_extern_supervisor_is_lost_goes_on(
    make_agent, controller, spec_of, gate, tools
):
    """The job has not ended with that supervisor, so the step has not come too late."""
    agent = make_agent()
    agent.environ = {"SPUR_TEST_FAULTS": "1", "SPUR_FAULT": "stop_at:launch_json"}
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")

    async def stopped():
        def is_stopped():
            found = procfs.stat(agent.pid)
            return found is not None and found.state == "T"

        await tools.until(is_stopped, "agent stopped")

    extern, one = held(238, STEP_EXTERN), held(238, 0)
    fifo = gate()
    controller.recover = by_state(LIVE=KEEP, STALE=WAIT)
    launching = asyncio.create_task(agent.launch(hold_spec(spec_of, extern)))
    await stopped()
    os.kill(agent.pid, signal.SIGCONT)
    assert (await launching).success
    running = asyncio.create_task(run_step(agent, tools, step_spec(spec_of, one, f"read x < {fifo}; exit 4")))
    await stopped()
    await lose(agent, tools, extern)
    os.kill(agent.pid, signal.SIGCONT)
    assert (await running).success
    await tools.until(lambda: STALE in controller.said_of(extern), "told that it is lost")
    assert (await agent.probe(one)).state == "live"
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "the step's end")
    assert (controller.reports[0].rid.step_id, controller.reports[0].exit.code) == (0, 4)


@pytest.mark.root
async def test_a_process_that_an_extern_step_adopted_survives_the_replacement(
    agent, controller, spec_of, tools
):
    import subprocess

    extern = held(233, STEP_EXTERN)
    controller.recover = by_state(LIVE=KEEP, STALE=RESTORE)
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    groups = tuple(tools.descriptor_of(agent, extern.dirname())["cgroup"])
    foreign = subprocess.Popen(["/bin/sleep", "1000"])
    for group in groups:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write(str(foreign.pid))
    await lose(agent, tools, extern)
    await tools.until(lambda: LIVE in controller.said_of(extern), "told that it lives again")
    assert foreign.poll() is None
    assert foreign.pid in cgroup.procs(groups)
    assert await agent.cancel(extern, grace_secs=0, reason="cancelled")
    await tools.until(lambda: foreign.poll() is not None, "ended with its step")


async def test_an_extern_step_that_cannot_be_replaced_is_told_and_ended(
    make_agent, controller, spec_of, gate, base, tools
):
    link = base / "spurstepd"
    link.symlink_to(tools.BIN / "spurstepd")
    agent = make_agent(config=tools.config_text(f'[agent]\nstepd_path = "{link}"'))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    extern, one = held(234, STEP_EXTERN), held(234, 0)
    fifo = gate()
    controller.recover = lambda entry: WAIT if entry.detail == "restore failed" else RESTORE
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    assert (await run_step(agent, tools, step_spec(spec_of, one, f"read x < {fifo}"))).success
    task = task_of(agent, tools, one)
    link.unlink()
    await lose(agent, tools, extern)
    await tools.until(lambda: any(e.detail == "restore failed" for e in controller.recoveries), "told")
    await tools.until(lambda: not procfs.is_alive(task), "ended as with a lost batch step")
    assert controller.recoveries[-1].state == STALE
    controller.recover = by_state(STALE=FORGET)
    await tools.until(lambda: extern.dirname() not in agent.sessions, "gone")


async def test_an_agent_that_dies_in_the_middle_of_a_replacement_tells_of_it_again(
    agent, controller, spec_of, tools
):
    extern = held(235, STEP_EXTERN)
    controller.recover = by_state()
    assert (await agent.launch(hold_spec(spec_of, extern))).success
    await lose(agent, tools, extern)
    await agent.kill()
    # As far as it had come: the old journal is set aside, no new supervisor is there.
    folder = agent.session_dir(extern)
    (folder / "journal").rename(folder / "journal.lost")
    controller.recover = by_state(LIVE=KEEP, STALE=RESTORE)
    await agent.start()
    await tools.until(lambda: LIVE in controller.said_of(extern), "replaced after all")
    assert controller.said_of(extern)[-1] == LIVE
    assert (await agent.probe(extern)).state == "live"


async def test_nothing_of_another_boot_is_killed_or_trusted(agent, controller, spec_of, gate, tools):
    import json

    rid, fifo = tools.batch(236), gate()
    controller.recover = by_state()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    task, stepd = task_of(agent, tools, rid), stepd_of(agent, tools, rid)
    await agent.kill()
    path = agent.session_dir(rid) / "descriptor.json"
    found = json.loads(path.read_bytes())
    path.write_text(json.dumps({**found, "boot_id": "another-boot"}))
    await agent.start()
    await tools.until(lambda: controller.said_of(rid), "told")
    assert (controller.recoveries[0].state, controller.recoveries[0].detail) == (
        STALE,
        "the node has booted since",
    )
    assert procfs.is_alive(task)
    assert procfs.is_alive(stepd)
    await agent.kill()
    path.write_text(json.dumps(found))
    await agent.start()
    assert (await agent.probe(rid)).state == "live"
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
