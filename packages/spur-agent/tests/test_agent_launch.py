"""What a launch refuses, absorbs, displaces and leaves behind."""

import asyncio
import os
import signal
import time

import grpc
import pytest
from grpc import aio

from spur_agent import launch, trust
from spur_agent.allocation import AllocationTable
from spur_agent.claim import Claim
from spur_agent.environment import NodeContext
from spur_agent.hooks import Hooks
from spur_agent.ledger import Ledger
from spur_agent.local_spec import NodeRules
from spur_agent.prolog import Prologs
from spur_agent.sessions import Phase, Session, SessionTable
from spur_agent.terms import Terms
from spur_auth import mint
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb
from spur_proto_lite.paths import StatePaths

pytestmark = pytest.mark.node


async def refused(call, status, text=""):
    with pytest.raises(aio.AioRpcError) as error:
        await call
    assert error.value.code() is status, error.value.details()
    assert text in (error.value.details() or "")


def nothing_left(agent):
    assert agent.sessions == []
    spool = agent.state / "spool"
    assert not spool.exists() or os.listdir(spool) == []


async def test_a_repeated_launch_is_absorbed_also_after_a_restart(
    agent, controller, spec_of, gate, base, tools
):
    rid, fifo = tools.batch(20), gate()
    spec = spec_of(rid, f"echo run >> runs; read x < {fifo}")
    first = await agent.launch(spec)
    again = await agent.launch(spec)
    assert again == first
    await agent.kill(signal.SIGKILL)
    await agent.start()
    await tools.until(lambda: len(controller.registrations) > 1, "registration")
    third = await agent.launch(spec)
    assert (third.success, third.stdout_path) == (True, first.stdout_path)
    assert third.started_at == pytest.approx(first.started_at, abs=1)
    other = spec_of(rid, "echo other >> runs")
    await refused(agent.launch(other), grpc.StatusCode.ALREADY_EXISTS, "another spec")
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports and not agent.sessions, "end")
    assert (base / "work" / "runs").read_text() == "run\n"
    await refused(agent.launch(spec), grpc.StatusCode.FAILED_PRECONDITION, "has run here")
    assert (base / "work" / "runs").read_text() == "run\n"


@pytest.mark.parametrize("how", ["spawner", "exec"])
async def test_v07_a_missing_supervisor_program_fails_fast_and_leaves_nothing(
    make_agent, controller, spec_of, base, tools, how
):
    path = base / "no-such-spurstepd"
    agent = make_agent(config=tools.config_text(f'[agent]\nstepd_path = "{path}"\nspawn = "{how}"'))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    begun = time.monotonic()
    answer = await agent.launch(spec_of(tools.batch(21)))
    assert time.monotonic() - begun < 1
    assert not answer.success
    assert answer.failure == pb.LAUNCH_FAILURE_NODE
    assert str(path) in answer.error
    assert "No such file" in answer.error
    nothing_left(agent)
    assert not (await agent.probe(tools.batch(21))).active
    assert "supervisor_missing" in agent.log_text()
    path.symlink_to(tools.BIN / "spurstepd")
    assert (await agent.launch(spec_of(tools.batch(21), cpus=1))).success
    await tools.until(lambda: controller.reports, "report")


async def test_the_program_vanishes_while_the_spawner_runs(make_agent, controller, spec_of, base, tools):
    path = base / "spurstepd"
    path.symlink_to(tools.BIN / "spurstepd")
    agent = make_agent(config=tools.config_text(f'[agent]\nstepd_path = "{path}"'))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    path.unlink()
    answer = await agent.launch(spec_of(tools.batch(22)))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_NODE)
    assert str(path) in answer.error
    nothing_left(agent)


async def test_a_dead_spawner_is_replaced(agent, controller, spec_of, tools):
    first = int(agent.log_text().split("event=spawner_ready pid=")[1].split()[0])
    os.kill(first, signal.SIGKILL)
    assert (await agent.launch(spec_of(tools.batch(23), "exit 0"))).success
    assert agent.log_text().count("event=spawner_ready") == 2
    await tools.until(lambda: not agent.sessions, "end")


async def test_exec_mode_runs_steps_too(make_agent, controller, spec_of, tools):
    agent = make_agent(config=tools.config_text('[agent]\nspawn = "exec"'))
    await agent.start()
    await tools.until(lambda: controller.registrations, "registration")
    answer = await agent.launch(spec_of(tools.batch(24), "exit 7"))
    assert answer.success, answer.error
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 7
    await tools.until(lambda: not agent.sessions, "end")


async def test_only_the_controllers_statement_starts_anything(agent, spec_of, user, tools):
    spec = spec_of(tools.batch(25))
    other = spec_of(tools.batch(26))
    denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
    await refused(agent.launch(spec, token=""), unknown, "no credential")
    await refused(agent.launch(spec, key="f" * 32), unknown, "forged")
    await refused(agent.launch(spec, signed=other), denied, "another")
    await refused(agent.launch(spec, signed_node="n2"), denied, "another node")
    root = spec_of(tools.batch(25))
    root.uid = 0
    await refused(agent.launch(spec, signed=root), denied, "another uid")
    request = tools.launch_request(spec, "n1")
    await refused(agent.call("LaunchJob", request, user.token()), unknown, "a user credential")
    await refused(agent.call("LaunchJob", request, ""), unknown, "no credential")
    node = mint.mint_node(tools.KEY.encode(), "n1", now=time.time())
    await refused(agent.call("LaunchJob", request, node), unknown, "a node credential")
    old = mint.mint_controller(tools.KEY.encode(), now=time.time() - 1000)
    await refused(agent.call("LaunchJob", request, old), unknown, "expired")
    cancel = pb.AgentCancelJobRequest(rid=tools.wire_rid(tools.batch(25)), term=1)
    await refused(agent.call("CancelJob", cancel, user.token()), unknown, "a user credential")
    probe = pb.ProbeStepdRequest(rid=tools.wire_rid(tools.batch(25)))
    await refused(agent.call("ProbeStepd", probe, user.token()), unknown)
    nothing_left(agent)


async def test_a_launch_for_another_node_a_lower_term_or_no_attempt_is_refused(agent, spec_of, tools):
    spec = spec_of(tools.batch(27))
    wrong = tools.launch_request(spec, "n2")
    await refused(agent.call("LaunchJob", wrong), grpc.StatusCode.FAILED_PRECONDITION, "this is n1")
    low = tools.launch_request(spec, "n1", term=0)
    await refused(agent.call("LaunchJob", low), grpc.StatusCode.FAILED_PRECONDITION, "term 0")
    zero = spec_of(RuntimeId(27, 0, tools.STEP_BATCH))
    await refused(agent.launch(zero), grpc.StatusCode.INVALID_ARGUMENT, "attempt")
    nothing_left(agent)


@pytest.mark.root
async def test_root_may_not_run_jobs(agent, spec_of, tools):
    spec = spec_of(tools.batch(28), uid=0, gid=0)
    spec.user = "root"
    await refused(agent.launch(spec), grpc.StatusCode.PERMISSION_DENIED, "allow_root_jobs")
    nothing_left(agent)


async def test_a_full_node_refuses_and_frees_at_the_end(make_agent, controller, spec_of, gate, tools):
    agent = make_agent(
        config=tools.config_text('[[nodes]]\nnames = "n1"\ncpus = 3\nmemory_mb = 500\ngres = ["gpu:2"]')
    )
    await agent.start()
    said = await tools.until(lambda: controller.registrations, "registration")
    assert (said[0].cpus, said[0].memory_mb, said[0].gres[0].count) == (3, 500, 2)
    fifo = gate()
    assert (await agent.launch(spec_of(tools.batch(29), f"read x < {fifo}", cpus=2))).success
    answer = await agent.launch(spec_of(tools.batch(30), cpus=2))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_RESOURCES)
    assert "2 CPUs wanted" in answer.error
    assert len(agent.sessions) == 1
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    # The room is free by the time the controller hears of the end.
    assert (await agent.launch(spec_of(tools.batch(30), cpus=2))).success
    await tools.until(lambda: not agent.sessions, "end")


async def test_what_the_controller_names_is_taken_also_after_a_restart(
    make_agent, controller, spec_of, gate, base, tools
):
    agent = make_agent(
        config=tools.config_text('[[nodes]]\nnames = "n1"\ncpus = 4\nmemory_mb = 500\ngres = ["gpu:4"]')
    )
    await agent.start()
    said = await tools.until(lambda: controller.registrations, "registration")
    assert [list(socket.threads) for socket in said[0].inventory.sockets] == [["0-3"]]
    assert [(one.name, one.indices) for one in said[0].inventory.devices] == [("gpu", "0-3")]

    def named(job, cpu_ids, indices, script="exit 0"):
        spec = spec_of(tools.batch(job), script, cpus=1)
        spec.slice.cpu_ids = cpu_ids
        spec.slice.gres.add(name="gpu", count=2, indices=indices)
        return spec

    fifo = gate()
    spec = named(32, "2", "1,3", f"echo $SLURM_JOB_GPUS $CUDA_VISIBLE_DEVICES > seen; read x < {fifo}")
    assert (await agent.launch(spec)).success
    seen = base / "work" / "seen"
    await tools.until(lambda: seen.exists() and seen.read_text(), "its word")
    assert seen.read_text() == "1,3 1,3\n"
    for _ in range(2):
        for cpu_ids, indices, text in (
            ("2", "0,2", "CPU 2 is wanted, job 32 has it"),
            ("0", "0,3", "gpu 3 is wanted, job 32 has it"),
            ("7", "0,2", "CPU 7 is wanted, this node has no such"),
        ):
            answer = await agent.launch(named(33, cpu_ids, indices))
            assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_RESOURCES)
            assert answer.error == text
        assert len(agent.sessions) == 1
        await agent.kill(signal.SIGKILL)
        await agent.start()
    await refused(
        agent.launch(named(33, "3-1", "0,2")), grpc.StatusCode.INVALID_ARGUMENT, "not a list of numbers"
    )
    assert (await agent.launch(named(33, "0", "0,2"))).success
    tools.open_gate(fifo)
    await tools.until(lambda: not agent.sessions, "end")


async def test_a_newer_attempt_displaces_the_older_one(agent, controller, spec_of, base, tools):
    old, new = tools.batch(31, 1), tools.batch(31, 2)
    script = "trap '' TERM; echo up >> log; sleep 1000 & wait"
    assert (await agent.launch(spec_of(old, script))).success
    log = base / "work" / "log"
    await tools.until(lambda: log.exists() and log.read_text() == "up\n", "first attempt up")
    controller.verdicts = []
    controller.verdict = 2
    assert (await agent.launch(spec_of(new, "echo second >> log; sleep 1000"))).success
    await tools.until(lambda: controller.reports, "report of the first")
    assert controller.reports[0].rid.run_attempt == 1
    assert controller.reports[0].exit.signal == signal.SIGKILL
    await tools.until(lambda: agent.sessions == [new.dirname()], "only the new one")
    assert (await agent.probe(new)).active
    await refused(agent.launch(spec_of(old, script)), grpc.StatusCode.FAILED_PRECONDITION, "has run here")
    other = RuntimeId(31, 1, tools.STEP_BATCH + 1)
    await refused(agent.launch(spec_of(other)), grpc.StatusCode.FAILED_PRECONDITION, "attempt 2")
    # A late kill for the old attempt must not touch the new one.
    assert not await agent.cancel(old, grace_secs=0)
    assert not await agent.cancel(old, signal=signal.SIGKILL)
    assert (await agent.probe(new)).active
    assert await agent.cancel(new, grace_secs=0, reason="cancelled")
    await tools.until(lambda: len(controller.reports) == 2, "report of the second")


async def test_a_job_fault_is_the_jobs_and_leaves_nothing(agent, controller, spec_of, tools):
    answer = await agent.launch(spec_of(tools.batch(32), stdout_path="/proc/no/such/out"))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_JOB)
    assert "/proc/no/such" in answer.error
    await tools.until(lambda: not agent.sessions, "nothing left")
    nothing_left(agent)
    assert not controller.drains
    assert not (await agent.probe(tools.batch(32))).active
    assert (await agent.launch(spec_of(tools.batch(33), "exit 0"))).success


async def test_a_planted_session_directory_is_refused(agent, spec_of, base, tools):
    rid = tools.batch(34)
    target = base / "elsewhere"
    target.mkdir()
    agent.session_dir(rid).symlink_to(target)
    answer = await agent.launch(spec_of(rid))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_NODE)
    assert "symbolic link" in answer.error
    assert os.listdir(target) == []
    assert agent.session_dir(rid).is_symlink()
    agent.session_dir(rid).unlink()


async def test_two_agents_share_a_host_but_not_a_state_directory(
    make_agent, controller, spec_of, base, tools
):
    one, two = make_agent("n1"), make_agent("n2")
    await one.start()
    await two.start()
    await tools.until(lambda: {r.node for r in controller.registrations} == {"n1", "n2"}, "both")
    # Both nodes of one job have the same run: nothing of it may collide on this host.
    rid = tools.batch(35)
    both = {"nodes": ["n1", "n2"], "cpus": 1}
    assert (await one.launch(spec_of(rid, "exit 1", **both, stdout_path="one"))).success
    assert (await two.launch(spec_of(rid, "exit 2", node="n2", **both, stdout_path="two"))).success
    await tools.until(lambda: len(controller.reports) == 2, "both reports")
    assert {(r.node, r.exit.code) for r in controller.reports} == {("n1", 1), ("n2", 2)}
    third = make_agent("n3")
    third.state = one.state
    process = await third.spawn()
    assert await process.wait() == 1
    text = third.log_text()
    assert text.startswith("spurd: error: ")
    assert "another spurd works in this state directory" in text
    assert "Traceback" not in text


async def test_an_older_attempt_that_does_not_go_keeps_the_newer_out_and_drains_the_node(
    tmp_path, monkeypatch, spec_of, tools
):
    monkeypatch.setattr(launch, "DISPLACE_SECS", 0.05)
    drained = []

    class Stuck:
        """A keeper whose steps cannot be killed."""

        async def end_now(self, session, reason):
            assert (session.rid, reason) == (tools.batch(36, 1), "superseded")
            await asyncio.Event().wait()

    async def drain(reason):
        drained.append(reason)

    paths = StatePaths(str(tmp_path))
    old = tools.batch(36, 1)
    table, allocation = SessionTable(), AllocationTable((0, 1), 1000, {})
    table.add(Session(old, paths.session(old), Claim(wire_sha256="x"), 1, "x", Phase.LIVE))
    site = launch.LaunchSite(
        names=frozenset({"n1"}),
        rules=NodeRules("n1", True, "none", False),
        trust=trust.Rules("disabled", ()),
        here=NodeContext("n1", "", "", None),
        paths=paths,
        table=table,
        allocation=allocation,
        keeper=Stuck(),
        ledger=Ledger(f"{tmp_path}/ledger"),
        terms=Terms(),
        bring_up=None,
        hooks=Hooks(),
        prologs=Prologs(str(tmp_path), "boot"),
        drain=drain,
    )
    answer = await launch.Launcher(site).launch(tools.launch_request(spec_of(tools.batch(36, 2)), "n1"))
    assert (answer.success, answer.failure) == (False, pb.LAUNCH_FAILURE_NODE)
    assert drained == [answer.error]
    assert "did not end within" in answer.error
    assert allocation.held() == {}
    assert [s.rid for s in table] == [old]
