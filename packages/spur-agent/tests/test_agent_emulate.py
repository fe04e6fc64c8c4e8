"""spurd --emulate: many nodes in one program that runs nothing."""

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from spur_agent import options
from spur_agent.emulate.script import Doing, of_script, of_words
from spur_agent.options import UsageError
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2

pytestmark = pytest.mark.node


@pytest_asyncio.fixture
async def emulated(make_agent):
    agent = make_agent("e")
    agent.extra = ("--emulate", "12")
    await agent.start()
    return agent


async def launch(agent, tools, spec, node):
    return await agent.call("LaunchJob", tools.launch_request(spec, node))


async def run_command(agent, request):
    return await agent.call(
        "RunCommand",
        agent_pb2.RunCommandRequest(
            spec=request.spec,
            target_node=request.target_node,
            launch_token=request.launch_token,
            term=request.term,
        ),
    )


async def test_each_node_registers_and_beats_for_itself(emulated, controller, tools):
    names = {f"e{number:02d}" for number in range(1, 13)}
    await tools.until(lambda: {one.node for one in controller.registrations} == names, "registrations")
    await tools.until(lambda: {one.node for one in controller.beats} == names, "beats")
    assert all(one.labels["emulated"] == "yes" for one in controller.registrations)
    assert all(one.inventory.sockets for one in controller.registrations)
    assert len({(one.address, one.port) for one in controller.registrations}) == 1
    assert len({one.boot_id for one in controller.registrations}) == 1
    # No state of a node, no supervisors' program.
    assert not emulated.state.exists()
    assert 'text="these nodes are not real: jobs sent to them run nothing"' in emulated.log_text()
    beats = len(controller.beats)
    controller.register_again = True
    await tools.until(lambda: len(controller.registrations) > 12, "a node registers again")
    await tools.until(lambda: len(controller.beats) > beats + 12, "beats go on")


async def test_a_job_of_several_nodes_ends_once_on_each(emulated, controller, spec_of, tools):
    rid = tools.batch(7)
    for at, node in enumerate(("e01", "e02")):
        spec = spec_of(rid, "exit 3", nodes=["e01", "e02"], hold=at > 0)
        answer = await launch(emulated, tools, spec, node)
        assert answer.success
    again = await launch(emulated, tools, spec, "e02")
    assert (again.success, again.started_at) == (True, answer.started_at)
    await tools.until(lambda: controller.reports, "the first node's report")
    first = controller.reports[0]
    assert (first.node, first.exit.code, first.rid.job_id) == ("e01", 3, 7)
    assert await emulated.cancel(rid)
    await tools.until(lambda: len(controller.reports) == 2, "the second node's report")
    assert (controller.reports[1].node, controller.reports[1].exit.code) == ("e02", 0)
    await tools.until(lambda: emulated.running, "still there")
    assert not await emulated.cancel(rid)
    assert not (await emulated.probe(rid)).active
    with pytest.raises(aio.AioRpcError) as caught:
        await launch(emulated, tools, spec_of(rid, "exit 3", nodes=["e01", "e02"]), "e01")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_what_sleeps_lasts_until_it_is_ended(emulated, controller, spec_of, tools):
    rid = tools.batch(8)
    assert (await launch(emulated, tools, spec_of(rid, "sleep 1000"), "e03")).success
    found = await emulated.probe(rid)
    assert (found.active, found.state) == (True, "live")
    held = {(h.rid.job_id, h.state) for beat in controller.beats if beat.node == "e03" for h in beat.held}
    await tools.until(
        lambda: (
            held
            or any(h.rid.job_id == 8 for beat in controller.beats if beat.node == "e03" for h in beat.held)
        ),
        "a heartbeat tells it",
    )
    # A step of the attempt ends with it, and is told before.
    step = spec_of(RuntimeId(8, 1, 0), "", argv=[b"/bin/sleep", b"1000"])
    request = tools.launch_request(step, "e03")
    assert (await run_command(emulated, request)).success
    # WINCH is ignored by default.
    assert await emulated.cancel(rid, signal=28)
    assert not controller.reports
    controller.verdicts.append(4)
    assert await emulated.cancel(rid)
    await tools.until(lambda: len(controller.reports) == 3, "both reports, one of them twice")
    assert [(r.rid.step_id == 0, r.exit.signal) for r in controller.reports] == [
        (True, 9),
        (True, 9),
        (False, 15),
    ]


async def test_refusals_are_an_agents(emulated, spec_of, tools):
    spec = spec_of(tools.batch(9), "true")
    with pytest.raises(aio.AioRpcError, match="which is not emulated here"):
        await launch(emulated, tools, spec, "n77")
    with pytest.raises(aio.AioRpcError) as caught:
        await emulated.call("LaunchJob", tools.launch_request(spec, "e01", token=""))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    request = tools.launch_request(spec_of(RuntimeId(9, 1, 0), ""), "e01")
    with pytest.raises(aio.AioRpcError, match="that attempt is not on this node"):
        await run_command(emulated, request)


@pytest.mark.parametrize(
    ("script", "doing"),
    [
        (b"#!/bin/sh\n# sleep 5\ntrue\n", (0, 0)),
        (b"#!/bin/sh\nsleep 2.5\nexec sleep 1m 1s\nexit 4\nsleep 9", (63.5, 4)),
        (b"sleep 1; sleep 2 && sleep 3", (6, 0)),
        (b"sleep 'x\nsleep 1", (1, 0)),
        (b"sleep forever; exit many", (0, 0)),
        (b"\xff\xfe", (0, 0)),
    ],
)
def test_what_a_script_would_do(script, doing):
    assert of_script(script) == Doing(*doing)


def test_what_a_command_would_do():
    assert of_words([b"/bin/sleep", b"3"]) == Doing(3, 0)
    assert of_words([b"false"]) == Doing(0, 1)
    assert of_words([]) == Doing(0, 0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--emulate", "0", "-N", "e"], "--emulate '0' is not a number from 1 to 20000"),
        (["--emulate", "many", "-N", "e"], "--emulate 'many' is not a number from 1 to 20000"),
        (["--emulate", "5"], "--emulate: give -N too, what the nodes' names begin with"),
    ],
)
def test_options_that_cannot_be_used(words, text):
    with pytest.raises(UsageError) as caught:
        options.parse(words)
    assert caught.value.text == text
