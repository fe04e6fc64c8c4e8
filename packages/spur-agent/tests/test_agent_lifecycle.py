"""From launch to report, and through the death of the agent."""

import json
import os
import signal
import time

import pytest

from spur_core.linux import procfs
from spur_proto import controller_pb2 as pb

pytestmark = pytest.mark.node


async def test_a_step_is_launched_reported_acknowledged_and_forgotten(
    agent, controller, spec_of, base, tools, user
):
    rid = tools.batch(7)
    begun = time.time()
    answer = await agent.launch(spec_of(rid, "env | sort; id -u; pwd; exit 3"))
    assert answer.success, answer.error
    assert answer.stdout_path == str(base / "work" / "out-7.txt")
    assert begun - 1 <= answer.started_at <= time.time() + 1
    await tools.until(lambda: controller.reports, "report")
    report = controller.reports[0]
    assert (report.rid.job_id, report.rid.run_attempt, report.rid.step_id) == rid
    assert (report.exit.code, report.exit.signal, report.node) == (3, 0, "n1")
    assert begun - 1 <= report.started_at <= report.ended_at <= time.time() + 1
    assert report.stdout_path == answer.stdout_path
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert len(controller.reports) == 1
    lines = (base / "work" / "out-7.txt").read_text().splitlines()
    assert str(user.uid) in lines
    assert str(base / "work") in lines
    assert "SLURM_JOB_ID=7" in lines
    assert "MINE=1" in lines
    assert not any("SECRET_OF_THE_DAEMON" in line for line in lines)
    assert not (await agent.probe(rid)).active


async def test_the_true_end_is_reported_once_by_the_next_agent(agent, controller, spec_of, gate, tools):
    rid, fifo = tools.batch(8), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}; exit 9"))).success
    await agent.kill(signal.SIGKILL)
    tools.open_gate(fifo)
    journal = agent.session_dir(rid) / "journal"
    await tools.until(lambda: b"ExitObserved" in journal.read_bytes(), "exit on disk")
    ended = next(json.loads(line) for line in journal.read_bytes().splitlines() if b"ExitObserved" in line)[
        "exit"
    ]["ended_at"]
    assert not controller.reports
    await agent.start()
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 9
    assert controller.reports[0].ended_at == pytest.approx(ended)
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert len(controller.reports) == 1


async def test_a_running_step_is_taken_back_with_the_same_processes(
    agent, controller, spec_of, gate, base, tools
):
    rid, fifo = tools.batch(9), gate()
    assert (await agent.launch(spec_of(rid, f"echo $$ > pid; read x < {fifo}; exit 4"))).success
    pid_file = base / "work" / "pid"
    pid = int(await tools.until(lambda: pid_file.exists() and pid_file.read_text().strip(), "pid"))
    before = procfs.identity(pid)
    await agent.kill(signal.SIGKILL)
    await agent.start()
    assert before is not None
    assert procfs.is_alive(before)
    held = await tools.until(
        lambda: len(controller.registrations) > 1 and controller.registrations[-1].held, "held"
    )
    assert [(h.rid.job_id, h.rid.run_attempt, h.state) for h in held] == [(9, 1, "live")]
    probe = await agent.probe(rid)
    assert (probe.active, probe.state) == (True, "live")
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 4
    await tools.until(lambda: not agent.sessions, "session deleted")


async def test_sigterm_says_farewell_and_leaves_the_step_alone(agent, controller, spec_of, gate, base, tools):
    rid, fifo = tools.batch(10), gate()
    assert (
        await agent.launch(spec_of(rid, f"trap 'echo hurt > hurt' TERM HUP INT; read x < {fifo}"))
    ).success
    task = json.loads((agent.session_dir(rid) / "descriptor.json").read_bytes())["task_pid"]
    who = procfs.identity(task)
    begun = time.monotonic()
    assert await agent.kill(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 5
    assert [f.reason for f in controller.farewells] == ["agent restarting"]
    assert who is not None
    assert procfs.is_alive(who)
    assert not (base / "work" / "hurt").exists()
    await agent.start()
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert not (base / "work" / "hurt").exists()


async def test_reports_are_repeated_until_there_is_a_verdict(agent, controller, spec_of, tools):
    controller.verdicts = [pb.REPORT_VERDICT_RETRY, pb.REPORT_VERDICT_WRONG_NODE]
    assert (await agent.launch(spec_of(tools.batch(11), "exit 1"))).success
    await tools.until(lambda: len(controller.reports) == 3, "third report")
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert {r.exit.code for r in controller.reports} == {1}


async def test_a_controller_that_is_away_gets_the_report_when_it_is_back(
    agent, controller, spec_of, gate, tools
):
    rid, fifo = tools.batch(12), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}; exit 6"))).success
    await controller.stop()
    tools.open_gate(fifo)
    await tools.until(lambda: "report_failed" in agent.log_text(), "a report that reaches nobody")
    assert (await agent.probe(rid)).state == "finished"
    assert agent.sessions == [rid.dirname()]
    await controller.start()
    await tools.until(lambda: controller.reports, "late report")
    assert controller.reports[0].exit.code == 6
    await tools.until(lambda: not agent.sessions, "session deleted")


async def test_an_agent_that_dies_before_the_verdict_reports_again(agent, controller, spec_of, tools):
    controller.silent = True
    rid = tools.batch(14)
    assert (await agent.launch(spec_of(rid, "exit 2"))).success
    await tools.until(lambda: controller.reports, "first report")
    await agent.kill(signal.SIGKILL)
    controller.silent = False
    await agent.start()
    await tools.until(lambda: len(controller.reports) == 2, "second report")
    assert controller.reports[0].exit == controller.reports[1].exit
    await tools.until(lambda: not agent.sessions, "session deleted")


async def test_a_lost_supervisor_takes_its_step_along_and_the_controller_is_told(
    agent, controller, spec_of, gate, tools
):
    rid, fifo = tools.batch(15), gate()
    assert (await agent.launch(spec_of(rid, f"sleep 1000 & read x < {fifo}"))).success
    found = json.loads((agent.session_dir(rid) / "descriptor.json").read_bytes())
    task = procfs.identity(found["task_pid"])
    await tools.until(lambda: any(b.held for b in controller.beats), "held in a heartbeat")
    os.kill(found["stepd_pid"], signal.SIGKILL)
    await tools.until(lambda: task is None or not procfs.is_alive(task), "task killed")
    await tools.until(lambda: [h.state for h in controller.beats[-1].held] == ["lost"], "told as lost")
    assert not (await agent.probe(rid)).active
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert not controller.reports


async def test_the_node_is_described(agent, controller):
    said = controller.registrations[0]
    assert said.node == "n1"
    assert said.cpus == len(os.sched_getaffinity(0)) or said.cpus > 0
    assert said.sockets * said.cores_per_socket * said.threads_per_core == said.cpus
    assert said.memory_mb > 100
    assert said.boot_id == procfs.boot_id()
    assert said.port == int(agent.address.rpartition(":")[2])
    assert said.address == "127.0.0.1"
