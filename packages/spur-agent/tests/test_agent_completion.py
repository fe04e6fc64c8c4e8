"""How an end reaches the controller: by push, once, with the epilog's result, from the disk if need be."""

import asyncio
import json
import os
import signal
import time

import pytest
from testkit.supervisor_client import ControlClient, push

from spur_core.ids import RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2
from spur_proto import controller_pb2 as pb
from spur_proto_lite import journal, notify
from spur_proto_lite.exits import EpilogRecord, ExitRecord

pytestmark = pytest.mark.node


def counters(agent):
    """What the agent said of itself when it stopped."""
    line = next(line for line in agent.log_text().splitlines() if "stopped adopted=" in line)
    return {k: int(v) for k, _, v in (word.partition("=") for word in line.split()) if v.isdigit()}


def stepd_of(agent, tools, rid):
    found = tools.descriptor_of(agent, rid.dirname())
    return procfs.Identity(found["stepd_pid"], found["stepd_start_ticks"], found["boot_id"])


async def kill_supervisor(agent, tools, rid):
    who = stepd_of(agent, tools, rid)
    os.kill(who.pid, signal.SIGKILL)
    await tools.until(lambda: not procfs.is_alive(who), "supervisor dead")


def script(base, name, text):
    """A hook of the administrator's."""
    path = base / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def with_epilog(make_agent, controller, base, tools):
    """An agent whose jobs have that epilog."""

    async def make(text):
        path = script(base, "epilog.sh", text)
        agent = make_agent(config=tools.config_text(f'[hooks]\nepilog = "{path}"'))
        await agent.start()
        await tools.until(lambda: controller.registrations, "registration")
        return agent

    return make


def job(spec_of, rid, text="exit 0", **fields):
    return spec_of(rid, text, job_lifetime=True, **fields)


def recorded(agent, rid, event):
    path = agent.session_dir(rid) / "journal"
    return path.exists() and event.encode() in path.read_bytes()


async def test_v11_a_completion_comes_by_push_and_none_by_replay(agent, controller, spec_of, tools):
    for job_id in (300, 301, 302):
        assert (await agent.launch(job(spec_of, tools.batch(job_id), "exit 1"))).success
    await tools.until(lambda: len(controller.reports) == 3, "reports")
    await tools.until(lambda: not agent.sessions, "sessions deleted")
    assert await agent.kill(signal.SIGTERM) == 0
    said = counters(agent)
    assert (said["pushed"] >= 3, said["replayed"], said["reported"]) == (True, 0, 3)


async def test_v12_a_job_that_ends_before_the_next_agent_claims_it_is_told_once(
    agent, controller, spec_of, gate, tools
):
    """It ends while the new agent stands between its scan and the registration."""
    rid, fifo = tools.batch(303), gate()
    assert (await agent.launch(job(spec_of, rid, f"read x < {fifo}; exit 5"))).success
    await agent.kill()
    await controller.stop()
    tools.open_gate(fifo)
    await tools.until(lambda: recorded(agent, rid, "ExitObserved"), "exit on disk")
    starting = asyncio.create_task(agent.start())
    await controller.start()
    await starting
    await tools.until(lambda: not agent.sessions, "told and deleted")
    assert [(r.rid.job_id, r.exit.code) for r in controller.reports] == [(303, 5)]


async def test_v13_a_push_for_an_unknown_session_is_deferred_and_nothing_is_lost(agent, tools):
    path = str(agent.state / "runtime" / "notify.sock")
    rid = RuntimeId(304, 1, 0)
    folder = agent.session_dir(rid)
    folder.mkdir(mode=0o700)
    (folder / "journal").write_bytes(b"")
    said = notify.Notification(rid=rid, seq=3, exit=ExitRecord(code=1))
    for _ in range(2):
        assert await asyncio.to_thread(push, path, said) == notify.DEFERRED
    assert agent.sessions == [rid.dirname()]
    assert await agent.kill(signal.SIGTERM) == 0
    assert counters(agent)["deferred"] == 2


async def test_v16_a_torn_last_line_is_no_damage(agent, controller, spec_of, gate, tools):
    rid, fifo = tools.batch(305), gate()
    assert (await agent.launch(job(spec_of, rid, f"read x < {fifo}; exit 5"))).success
    await agent.kill()
    await kill_supervisor(agent, tools, rid)
    path = agent.session_dir(rid) / "journal"
    writer = journal.JournalWriter(str(path))
    writer.append(journal.EXIT_OBSERVED, 9.0, {"exit": ExitRecord(code=6, ended_at=9.0).to_json()})
    writer.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq": 4, "at": 10.0, "event": "CleanupDo')
    await agent.start()
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 6
    await tools.until(lambda: not agent.sessions, "deleted")


async def test_a_good_epilog_is_waited_for_and_not_mentioned(with_epilog, controller, spec_of, base, tools):
    agent = await with_epilog(f"echo $SPUR_JOB_ID >> {base}/epilog.log")
    assert (await agent.launch(job(spec_of, tools.batch(310), "exit 2"))).success
    await tools.until(lambda: controller.reports, "report")
    assert (base / "epilog.log").read_text() == "310\n"
    assert (controller.reports[0].exit.code, controller.reports[0].epilog_error) == (2, "")
    await tools.until(lambda: not agent.sessions, "deleted")
    assert not controller.drains


async def test_a_failed_epilog_is_part_of_the_report(with_epilog, controller, spec_of, tools):
    agent = await with_epilog("exit 3")
    assert (await agent.launch(job(spec_of, tools.batch(311), "exit 0"))).success
    await tools.until(lambda: controller.reports, "report")
    assert "3" in controller.reports[0].epilog_error
    await tools.until(lambda: not agent.sessions, "deleted")
    assert (len(controller.reports), controller.drains) == (1, [])


async def test_v15_an_epilog_that_fails_while_the_agent_is_down_still_drains_the_node(
    with_epilog, controller, spec_of, gate, tools
):
    agent = await with_epilog("exit 4")
    rid, fifo = tools.batch(312), gate()
    assert (await agent.launch(job(spec_of, rid, f"read x < {fifo}"))).success
    await agent.kill()
    tools.open_gate(fifo)
    await tools.until(lambda: recorded(agent, rid, "EpilogResult"), "epilog over")
    # The first report after the restart gets no answer and the agent dies again: it is told all the same.
    controller.silent = True
    await agent.start()
    await tools.until(lambda: controller.reports, "first report")
    await agent.kill()
    controller.silent = False
    await agent.start()
    await tools.until(lambda: not agent.sessions, "told and deleted")
    assert [bool(r.epilog_error) for r in controller.reports] == [True, True]
    assert not controller.drains


async def test_v15_a_result_that_comes_after_the_report_drains_exactly_once(
    agent, controller, spec_of, gate, tools
):
    """Also over the death of the agent between the drain and the acknowledgement."""
    rid = tools.batch(313)
    await agent.kill()
    lay_down(agent, rid, epilog=EpilogRecord(ok=False, status=1, text="/e: exit status 1"))
    # The controller has this exit from an earlier report, in which nothing was said of the epilog.
    controller.verdict = pb.REPORT_VERDICT_FINAL
    await agent.start()
    await tools.until(lambda: not agent.sessions, "told and deleted")
    assert [d.reason for d in controller.drains] == ["epilog script failed"]
    assert [d.node for d in controller.drains] == ["n1"]
    # As if the agent had died right after the drain: its mark is there.
    await agent.kill()
    lay_down(agent, rid, epilog=EpilogRecord(ok=False, status=1, text="/e: exit status 1"))
    (agent.session_dir(rid) / "epilog.told").touch()
    (agent.state / "runtime" / "ledger").write_text("")
    await agent.start()
    await tools.until(lambda: not agent.sessions, "told and deleted")
    assert len(controller.drains) == 1
    assert controller.reports[-1].epilog_error == ""


async def test_a_drain_is_repeated_until_it_is_heard(agent, controller, tools):
    rid = tools.batch(314)
    await agent.kill()
    lay_down(agent, rid, epilog=EpilogRecord(ok=False, status=1))
    controller.verdict, controller.drain_refusals = pb.REPORT_VERDICT_FINAL, 2
    await agent.start()
    await tools.until(lambda: controller.drains, "heard")
    await tools.until(lambda: not agent.sessions, "deleted")


def lay_down(agent, rid, epilog=None, exit_record=None, hook=None):
    """A finished session whose supervisor is gone.

    Args:
        epilog: its result, if it has run.
        hook: the scripts of it.
    """
    folder = agent.session_dir(rid)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    gone = procfs.identity(os.getpid())
    descriptor = {
        "version": 1,
        "job_id": rid.job_id,
        "run_attempt": rid.run_attempt,
        "step_id": rid.step_id,
        "stepd_pid": gone.pid,
        "stepd_start_ticks": gone.start_ticks + 1,
        "boot_id": gone.boot_id,
    }
    (folder / "descriptor.json").write_text(json.dumps(descriptor))
    claim = {"wire_sha256": "00", "job_lifetime": True, "epilog": hook is not None or epilog is not None}
    spec = {"rid": {"job_id": rid.job_id, "run_attempt": rid.run_attempt, "step_id": rid.step_id}}
    hooks = {"epilog": hook} if hook is not None else {}
    (folder / "launch.json").write_text(json.dumps({**spec, **hooks, "agent": claim}))
    writer = journal.JournalWriter(str(folder / "journal"))
    writer.append(journal.STARTED, time.time(), {})
    record = exit_record or ExitRecord(code=1, ended_at=time.time())
    writer.append(journal.EXIT_OBSERVED, time.time(), {"exit": record.to_json()})
    if epilog is not None:
        writer.append(journal.EPILOG_RESULT, time.time(), epilog.to_json())
    writer.close()


async def test_the_agent_runs_the_epilog_that_a_dead_supervisor_owed_once(agent, controller, base, tools):
    """D10: it died between the exit and the epilog."""
    rid = tools.batch(315)
    path = script(base, "owed.sh", f'echo "$WHO $(pwd)" >> {base}/owed.log; sleep 0.2; exit 6')
    await agent.kill()
    hook = {"paths": [str(path)], "env": {"WHO": "me", "PATH": "/usr/bin:/bin"}, "timeout_secs": 30.0}
    lay_down(agent, rid, hook=hook)
    await agent.start()
    await tools.until(lambda: controller.reports, "report")
    assert "exit status 6" in controller.reports[0].epilog_error
    await tools.until(lambda: not agent.sessions, "deleted")
    assert (base / "owed.log").read_text().startswith("me ")
    assert len((base / "owed.log").read_text().splitlines()) == 1


async def test_an_epilog_whose_end_nobody_saw_counts_as_failed_and_is_not_repeated(
    agent, controller, base, tools
):
    rid = tools.batch(316)
    path = script(base, "twice.sh", f"echo ran >> {base}/twice.log")
    await agent.kill()
    lay_down(agent, rid, hook={"paths": [str(path)], "env": {}, "timeout_secs": 30.0})
    (agent.session_dir(rid) / "epilog.started").touch()
    await agent.start()
    await tools.until(lambda: controller.reports, "report")
    assert "nobody saw its end" in controller.reports[0].epilog_error
    assert not (base / "twice.log").exists()


async def test_a_supervisor_that_dies_in_the_epilog_has_its_exit_told(
    with_epilog, controller, spec_of, base, gate, tools
):
    """V14, from the agent's side."""
    fifo = gate("epilog-gate")
    agent = await with_epilog(f"read x < {fifo}")
    rid = tools.batch(317)
    assert (await agent.launch(job(spec_of, rid, "exit 9"))).success
    await tools.until((agent.session_dir(rid) / "epilog.started").exists, "epilog begun")
    await kill_supervisor(agent, tools, rid)
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 9
    assert controller.reports[0].epilog_error
    await tools.until(lambda: not agent.sessions, "deleted")
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))  # a script that has been left behind goes too
    except OSError:
        pass


async def test_the_end_of_a_job_is_told_after_its_other_steps(agent, controller, spec_of, gate, tools):
    """D3: and their ends are told as well."""
    batch, step = tools.batch(318), RuntimeId(318, 1, 0)
    fifo, never = gate(), gate("never")
    assert (await agent.launch(job(spec_of, batch, f"read x < {fifo}; exit 2"))).success
    spec = spec_of(step, argv=[b"/bin/sh", b"-c", f"read x < {never}".encode()], spool_output=True)
    spec.ClearField("script")
    request = tools.launch_request(spec, "n1")
    run = agent_pb2.RunCommandRequest(
        spec=request.spec, target_node="n1", launch_token=request.launch_token, term=1
    )
    assert (await agent.call("RunCommand", run)).success
    tools.open_gate(fifo)
    await tools.until(lambda: len(controller.reports) == 2, "both reports")
    assert [r.rid.step_id for r in controller.reports] == [0, tools.STEP_BATCH]
    assert controller.reports[0].exit.signal == signal.SIGKILL
    assert controller.reports[1].exit.code == 2


async def test_a_numbered_steps_exit_names_every_task(agent, controller, spec_of, tools):
    rid = RuntimeId(319, 1, 0)
    spec = spec_of(rid, argv=[b"/bin/sh", b"-c", b"exit $SLURM_PROCID"], spool_output=True, job_lifetime=True)
    spec.ClearField("script")
    spec.slice.ranks[:] = [0, 1, 2]
    spec.total_tasks = spec.step_tasks = 3
    assert (await agent.launch(spec)).success
    await tools.until(lambda: controller.reports, "report")
    assert [(t.rank, t.exit.code) for t in controller.reports[0].tasks] == [(0, 0), (1, 1), (2, 2)]
    assert controller.reports[0].exit.code == 2


async def test_a_job_lifetime_end_is_not_held_back_for_ever(agent, controller, gate, base, tools):
    """30 seconds after the exit, also by the disk: the exit below is older than that."""
    rid = tools.batch(320)
    await agent.kill()
    old = ExitRecord(code=7, ended_at=time.time() - 60)
    path = script(base, "slow.sh", f"read x < {gate('slow')}")
    lay_down(agent, rid, exit_record=old, hook={"paths": [str(path)], "env": {}, "timeout_secs": 600.0})
    await agent.start()
    await tools.until(lambda: controller.reports, "report")
    assert (controller.reports[0].exit.code, controller.reports[0].epilog_error) == (7, "")
    assert agent.sessions == [rid.dirname()]
    tools.open_gate(base / "work" / "slow")
    await tools.until(lambda: not agent.sessions, "deleted once the epilog is over")


async def test_the_agent_tells_how_to_end_a_supervisor_that_lost_its_agent_in_the_acknowledgement(
    agent, controller, spec_of, tools
):
    """Killed after the controller had the completion: told again, `final` is enough to let it go."""
    controller.silent = True
    rid = tools.batch(321)
    assert (await agent.launch(job(spec_of, rid, "exit 1"))).success
    await tools.until(lambda: controller.reports, "report")
    await agent.kill()
    who = stepd_of(agent, tools, rid)
    with ControlClient(str(agent.session_dir(rid)), rid) as client:
        assert client.query().exit is not None
    controller.silent, controller.verdict = False, pb.REPORT_VERDICT_FINAL
    await agent.start()
    await tools.until(lambda: not agent.sessions, "deleted")
    await tools.until(lambda: not procfs.is_alive(who), "supervisor ended")
