"""Cancel, signal, probe, output streams: by exact identity and by the right caller."""

import signal
import time

import grpc
import pytest
from grpc import aio

from spur_auth import mint
from spur_core.ids import RuntimeId
from spur_proto import agent_pb2 as pb

pytestmark = pytest.mark.node


async def test_signals_and_the_graceful_end(agent, controller, spec_of, base, tools):
    rid = tools.batch(40)
    script = (
        "trap 'echo usr1 >> log' USR1; trap 'echo term >> log; exit 5' TERM; echo up >> log\n"
        "while :; do sleep 0.05; done"
    )
    assert (await agent.launch(spec_of(rid, script))).success
    log = base / "work" / "log"
    await tools.until(lambda: log.exists(), "script up")
    with pytest.raises(aio.AioRpcError) as error:
        await agent.cancel(rid, signal=99)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # The whole attempt, its batch shell only; another attempt and another step are not there.
    assert await agent.cancel(rid, signal=signal.SIGUSR1, batch_only=True)
    await tools.until(lambda: "usr1" in log.read_text(), "signal")
    assert not await agent.cancel(tools.batch(40, 2), signal=signal.SIGKILL)
    assert not await agent.cancel(RuntimeId(40, 1, 0), grace_secs=0)
    request = pb.AgentCancelJobRequest(term=1, grace_secs=10, reason="cancelled")
    request.rid.job_id, request.rid.run_attempt = 40, 1
    assert (await agent.call("CancelJob", request)).active
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 5
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert not (await agent.call("CancelJob", request)).active
    with pytest.raises(aio.AioRpcError) as error:
        await agent.cancel(RuntimeId(40, 0, 0))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_finished_step_is_active_until_it_is_reported(agent, controller, spec_of, tools):
    controller.refuse = grpc.StatusCode.UNAVAILABLE
    rid = tools.batch(41)
    assert (await agent.launch(spec_of(rid, "exit 8"))).success
    await tools.until(lambda: controller.reports, "refused report")
    probe = await agent.probe(rid)
    assert (probe.active, probe.state, probe.exit.code) == (True, "finished", 8)
    assert await agent.cancel(rid, grace_secs=0)
    controller.refuse = None
    await tools.until(lambda: not agent.sessions, "session deleted")
    assert not (await agent.probe(rid)).active


async def collect(call):
    """(text per stream, exit) of a stream, offsets checked."""
    texts, end = {1: b"", 2: b""}, None
    async for answer in call:
        if answer.WhichOneof("kind") == "exit":
            end = answer.exit
        elif answer.WhichOneof("kind") == "output":
            part = answer.output
            assert part.offset == len(texts[part.stream])
            texts[part.stream] += part.data
    return texts, end


def srun_spec(spec_of, rid, command, **fields):
    spec = spec_of(rid, argv=[b"/bin/sh", b"-c", command.encode()], spool_output=True, **fields)
    spec.ClearField("script")
    return spec


def owner(user):
    return (("authorization", f"Bearer {user.token()}"),)


async def test_output_of_a_spooled_step_reaches_its_owner(agent, controller, spec_of, user, tools):
    rid = RuntimeId(42, 1, 0)
    answer = await agent.launch(
        srun_spec(spec_of, rid, "echo out; echo err >&2; echo $SLURM_PROCID$SLURM_STEP_ID; exit 3")
    )
    assert answer.success, answer.error
    # The step is over and reported long before anybody reads; its output waits for a reader.
    await tools.until(lambda: controller.reports, "report")
    assert not (await agent.probe(rid)).active
    request = pb.StreamJobOutputRequest(rid=tools.wire_rid(rid))
    texts, end = await collect(agent.stub().StreamJobOutput(request, metadata=owner(user), timeout=20))
    assert texts == {1: b"out\n00\n", 2: b"err\n"}
    assert end.exit.code == 3
    assert agent.sessions == [rid.dirname()]
    request.offsets.add(rank=0, stream=1, offset=4)
    rest = b""
    async for part in agent.stub().StreamJobOutput(request, metadata=owner(user), timeout=20):
        if part.WhichOneof("kind") == "output" and part.output.stream == 1:
            assert part.output.offset == 4
            rest += part.output.data
    assert rest == b"00\n"


async def test_an_interactive_session_carries_input_signals_and_the_end(
    agent, controller, spec_of, user, tools
):
    rid = RuntimeId(43, 1, 0)
    command = 'trap \'echo got\' USR1; read a; echo "<$a>"; while read b; do echo "[$b]"; done; exit 4'
    assert (await agent.launch(srun_spec(spec_of, rid, command))).success
    call = agent.stub().InteractiveSession(metadata=owner(user), timeout=20)
    await call.write(pb.InteractiveSessionRequest(init=pb.SessionInit(rid=tools.wire_rid(rid))))
    await call.write(pb.InteractiveSessionRequest(stdin=b"hello\n"))
    seen = b""
    end = None
    eof = signalled = False
    async for answer in call:
        if answer.WhichOneof("kind") == "exit":
            end = answer.exit
            break
        seen += answer.output.data
        consumed = pb.StreamOffset(
            rank=0, stream=answer.output.stream, offset=answer.output.offset + len(answer.output.data)
        )
        await call.write(pb.InteractiveSessionRequest(consumed=consumed))
        if b"<hello>" in seen and not signalled:
            signalled = True
            await call.write(pb.InteractiveSessionRequest(signal=signal.SIGUSR1))
            await call.write(pb.InteractiveSessionRequest(stdin=b"more\n"))
        if b"got" in seen and b"[more]" in seen and not eof:
            eof = True
            await call.write(pb.InteractiveSessionRequest(stdin_eof=True))
    assert end is not None
    assert end.exit.code == 4
    await tools.until(lambda: not agent.sessions, "session deleted once its output was taken")


async def test_streams_belong_to_the_owner(agent, spec_of, user, tools):
    rid = RuntimeId(44, 1, 0)
    assert (await agent.launch(srun_spec(spec_of, rid, "read x; echo secret"))).success
    request = pb.StreamJobOutputRequest(rid=tools.wire_rid(rid))
    stranger = mint.mint_user(tools.KEY.encode(), "mallory", 4242, 60, time.time())
    same_name = mint.mint_user(tools.KEY.encode(), user.name, user.uid + 1, 60, time.time())
    for token, status in (
        (stranger, grpc.StatusCode.PERMISSION_DENIED),
        (same_name, grpc.StatusCode.PERMISSION_DENIED),
        ("", grpc.StatusCode.UNAUTHENTICATED),
    ):
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        with pytest.raises(aio.AioRpcError) as error:
            await collect(agent.stub().StreamJobOutput(request, metadata=metadata, timeout=20))
        assert error.value.code() is status
        init = pb.InteractiveSessionRequest(init=pb.SessionInit(rid=tools.wire_rid(rid)))
        # By an iterator: a write of our own to a call that is refused already would be the error seen here.
        call = agent.stub().InteractiveSession(iter([init]), metadata=metadata, timeout=20)
        assert await call.code() is status
    assert await agent.cancel(rid, grace_secs=0)


async def test_output_in_files_is_not_streamed(agent, spec_of, gate, user, tools):
    rid, fifo = tools.batch(45), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}"))).success
    with pytest.raises(aio.AioRpcError) as error:
        await collect(
            agent.stub().StreamJobOutput(
                pb.StreamJobOutputRequest(rid=tools.wire_rid(rid)), metadata=owner(user), timeout=20
            )
        )
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "out-45.txt" in (error.value.details() or "")
    tools.open_gate(fifo)


async def test_a_stream_is_taken_up_again_after_the_agents_restart(
    agent, controller, spec_of, gate, user, tools
):
    rid, fifo = RuntimeId(46, 1, 0), gate()
    assert (
        await agent.launch(srun_spec(spec_of, rid, f"echo one; read x < {fifo}; echo two; exit 1"))
    ).success
    request = pb.StreamJobOutputRequest(rid=tools.wire_rid(rid))
    first = agent.stub().StreamJobOutput(request, metadata=owner(user), timeout=20)
    part = await first.read()
    assert part.output.data == b"one\n"
    await agent.kill(signal.SIGKILL)
    tools.open_gate(fifo)
    await agent.start()
    request.offsets.add(rank=0, stream=1, offset=4)
    seen, end = b"", None
    async for answer in agent.stub().StreamJobOutput(request, metadata=owner(user), timeout=20):
        if answer.WhichOneof("kind") == "exit":
            end = answer.exit.exit.code
        else:
            seen += answer.output.data
    assert (seen, end) == (b"two\n", 1)


async def test_a_stopping_agent_lets_served_steps_go(agent, controller, spec_of, user, tools):
    rid = RuntimeId(47, 1, 0)
    assert (await agent.launch(srun_spec(spec_of, rid, "echo done"))).success
    init = pb.InteractiveSessionRequest(init=pb.SessionInit(rid=tools.wire_rid(rid)))
    call = agent.stub().InteractiveSession(iter([init]), metadata=owner(user), timeout=20)
    texts, end = await collect(call)
    assert (texts[1], end.exit.code) == (b"done\n", 0)
    await tools.until(lambda: controller.reports, "report")
    assert agent.sessions == [rid.dirname()]
    assert await agent.kill(signal.SIGTERM) == 0
    assert agent.sessions == []
