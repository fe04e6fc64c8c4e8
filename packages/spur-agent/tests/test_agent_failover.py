"""Several controllers: whom the agent calls, how soon it goes elsewhere, and whose orders it takes."""

import json
import signal
import time

import grpc
import pytest
from grpc import aio

from spur_agent.terms import FILE_NAME, StaleTerm, Terms
from spur_core.errors import StateError
from spur_proto import agent_pb2 as pb

pytestmark = pytest.mark.node


async def heard(tools, controller, what):
    """Seconds until the controller has got one more heartbeat than it has now."""
    count, begun = len(controller.beats), time.monotonic()
    await tools.until(lambda: len(controller.beats) > count, what)
    return time.monotonic() - begun


async def test_a_dead_controller_is_left_within_a_second(make_agent, controller, deputy, tools):
    agent = make_agent(controllers=f"{controller.address},{deputy.address}")
    await agent.start()
    await tools.until(lambda: controller.beats, "beats at the first")
    await controller.stop()
    # One interval of heartbeats is a second here.
    assert await heard(tools, deputy, "beat at the second") < 2
    assert len(controller.registrations) == 1
    assert not deputy.registrations


async def test_the_group_is_learned_from_the_one_that_was_configured(make_agent, controller, deputy, tools):
    controller.controllers = [controller.address, deputy.address]
    agent = make_agent(controllers=controller.address)
    await agent.start()
    await tools.until(lambda: controller.beats, "beats at the first")
    await controller.stop()
    assert await heard(tools, deputy, "beat at the second") < 2


@pytest.mark.parametrize("way", ["passes on", "refuses"])
async def test_the_leader_is_asked_first(make_agent, controller, deputy, tools, way):
    agent = make_agent(controllers=f"{controller.address},{deputy.address}")
    await agent.start()
    await tools.until(lambda: controller.beats, "beats at the first")
    if way == "passes on":
        controller.leader = deputy.address
    else:
        controller.not_leader = deputy.address
    await tools.until(lambda: len(deputy.beats) > 1, "beats at the leader")
    asked = len(controller.headers["Heartbeat"])
    await heard(tools, deputy, "one more at the leader")
    assert len(controller.headers["Heartbeat"]) == asked


async def test_a_named_leader_that_cannot_be_reached_stops_nothing(make_agent, controller, deputy, tools):
    """The way to it is closed from here only: the follower passes calls on."""
    controller.leader = "127.0.0.1:1"
    agent = make_agent(controllers=f"{controller.address},{deputy.address}")
    await agent.start()
    await tools.until(lambda: len(controller.beats) + len(deputy.beats) > 2, "beats")


async def test_without_a_leader_everything_is_kept_and_told_when_there_is_one(
    make_agent, controller, deputy, spec_of, tools
):
    agent = make_agent(controllers=f"{controller.address},{deputy.address}")
    await agent.start()
    await tools.until(lambda: controller.beats, "beats")
    controller.not_leader = deputy.not_leader = ""
    rid = tools.batch(40)
    assert (await agent.launch(spec_of(rid, "exit 4"))).success
    await tools.until(lambda: "report_failed" in agent.log_text(), "a report nobody takes")
    assert agent.sessions == [rid.dirname()]
    deputy.not_leader = None
    deputy.term = 2
    controller.not_leader = deputy.address
    await tools.until(lambda: deputy.reports, "the report at the new leader", 5)
    assert deputy.reports[0].exit.code == 4
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert not controller.reports


@pytest.mark.parametrize("when", ["before a call", "while it connects"])
async def test_a_controller_behind_a_closed_way_is_left_soon(
    make_agent, controller, deputy, wire_to, tools, when
):
    wire = await wire_to(controller)
    if when == "while it connects":
        wire.cut()
    agent = make_agent(controllers=f"{wire.address},{deputy.address}")
    begun = time.monotonic()
    await agent.start()
    if when == "before a call":
        await tools.until(lambda: controller.beats, "beats at the first")
        wire.cut()
        begun = time.monotonic()
    await tools.until(lambda: deputy.beats, "beat at the second")
    # An interval, two seconds until the silence is noticed, and what a slow machine adds.
    assert time.monotonic() - begun < 5
    # Mended, the first is no better than the second: nobody goes back for no reason.
    wire.mend()
    asked = len(controller.headers.get("Heartbeat", []))
    await heard(tools, deputy, "one more")
    assert len(controller.headers.get("Heartbeat", [])) <= asked + 1


async def test_v02_lower_terms_are_refused_also_after_a_restart(agent, controller, spec_of, gate, tools):
    rid, fifo = tools.batch(41), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"), term=5)).success
    assert json.loads((agent.state / "runtime" / FILE_NAME).read_bytes()) == {"term": 5}
    for restart in (False, True):
        if restart:
            await agent.kill(signal.SIGKILL)
            await agent.start()
            await tools.until(lambda: len(controller.registrations) > 1, "registered again")
        wire = tools.wire_rid(rid)
        orders = [
            ("LaunchJob", tools.launch_request(spec_of(tools.batch(42)), "n1", term=4)),
            ("CancelJob", pb.AgentCancelJobRequest(rid=wire, term=4)),
            ("SuspendJob", pb.AgentSuspendJobRequest(rid=wire, term=4)),
            ("ProbeStepd", pb.ProbeStepdRequest(rid=wire, term=4)),
        ]
        for name, request in orders:
            with pytest.raises(aio.AioRpcError) as caught:
                await agent.call(name, request)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert caught.value.details() == "term 4 is over, the controller's term is 5"
            assert dict(caught.value.trailing_metadata())["x-spur-code"] == "stale_term"
    assert agent.sessions == [rid.dirname()]
    tools.open_gate(fifo)


async def test_v02_a_beat_tells_the_term_and_a_probe_too(agent, controller, spec_of, tools):
    controller.term = 7
    kept = agent.state / "runtime" / FILE_NAME
    await tools.until(lambda: kept.exists() and json.loads(kept.read_bytes()) == {"term": 7}, "kept")
    with pytest.raises(aio.AioRpcError, match="term 6 is over"):
        await agent.launch(spec_of(tools.batch(43)), term=6)
    await agent.call("ProbeStepd", pb.ProbeStepdRequest(rid=tools.wire_rid(tools.batch(43)), term=9))
    with pytest.raises(aio.AioRpcError, match="term 8 is over, the controller's term is 9"):
        await agent.launch(spec_of(tools.batch(43)), term=8)


async def test_v02_a_term_that_nobody_proves_locks_no_controller_out(agent, controller, spec_of, tools):
    """Whoever listens at a controller's address can answer, but has no key of the cluster."""
    controller.term, controller.proof_key = (1 << 64) - 1, b"another cluster's key"
    beats = len(controller.beats)
    await tools.until(lambda: len(controller.beats) > beats + 1, "two beats")
    assert "term_not_proven" in agent.log_text()
    # Nor is a launch that nobody signed believed to be of the newest term.
    forged = tools.launch_request(spec_of(tools.batch(44)), "n1", term=1 << 63)
    forged.launch_token = "x"
    with pytest.raises(aio.AioRpcError, match="credential"):
        await agent.call("LaunchJob", forged)
    kept = agent.state / "runtime" / FILE_NAME
    assert json.loads(kept.read_bytes()) == {"term": 1}
    assert (await agent.launch(spec_of(tools.batch(45)), term=1)).success


async def test_v02_an_order_that_waits_for_its_turn_is_overtaken_by_a_new_leader(
    agent, controller, spec_of, base, tools
):
    """A launch waits for the end of an older attempt; meanwhile the next leader asks, is told "nothing here",
    and decides; the old leader's launch must not run after that."""
    old, new = tools.batch(44, 1), tools.batch(44, 2)
    fifo = base / "work" / "deaf"
    script = f"trap '' TERM; touch {fifo}; while :; do sleep 0.1; done"
    assert (await agent.launch(spec_of(old, script), term=2)).success
    await tools.until(fifo.exists, "the old attempt runs")
    stepd = tools.descriptor_of(agent, old.dirname())["stepd_pid"]
    import asyncio
    import os

    os.kill(stepd, signal.SIGSTOP)
    try:
        launch = asyncio.create_task(agent.launch(spec_of(new), term=2))
        await tools.until(lambda: "attempt_displaced" in agent.log_text(), "the launch waits")
        answer = await agent.call("ProbeStepd", pb.ProbeStepdRequest(rid=tools.wire_rid(new), term=3))
        assert not answer.active
    finally:
        os.kill(stepd, signal.SIGCONT)
    with pytest.raises(aio.AioRpcError, match="term 2 is over"):
        await launch
    assert new.dirname() not in agent.sessions


def test_the_term_on_the_disk(tmp_path):
    folder = str(tmp_path)
    terms = Terms(folder).load()
    terms.check(0)
    assert not (tmp_path / FILE_NAME).exists()
    terms.check(3)
    terms.see(2)
    again = Terms(folder).load()
    assert again.highest == 3
    with pytest.raises(StaleTerm) as caught:
        again.check(2)
    assert (caught.value.term, caught.value.highest) == (2, 3)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"term": "x"}', '{"term": -1}', '{"term": true}', "\xff"])
def test_a_damaged_file_counts_as_none(tmp_path, text):
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    assert Terms(str(tmp_path)).load().highest == 0


def test_a_file_that_is_none_ends_the_start_and_a_full_disk_does_not(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StateError, match=FILE_NAME):
        Terms(str(tmp_path)).load()
    terms = Terms(f"{tmp_path}/gone")
    terms.check(2)
    with pytest.raises(StaleTerm):
        terms.check(1)
