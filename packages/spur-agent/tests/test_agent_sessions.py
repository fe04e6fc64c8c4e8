"""Interactive sessions: the step's own client, watchers, counted input, terminals, the agent's end."""

import asyncio
import signal

import grpc
import pytest
from grpc import aio

from spur_agent.keeper import kept_secs
from spur_core.ids import STEP_EXTERN, RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2 as pb
from spur_proto import agent_pb2_grpc, common_pb2
from spur_proto_lite.exits import ExitRecord

pytestmark = pytest.mark.node

OWNER, WATCHER, EXEC = pb.SESSION_MODE_OWNER, pb.SESSION_MODE_WATCHER, pb.SESSION_MODE_EXEC


class Client:
    """One session of a client that keeps what it has seen."""

    def __init__(self, agent, tools, user, rid, **fields):
        init = pb.SessionInit(rid=tools.wire_rid(rid) if isinstance(rid, RuntimeId) else rid)
        for name, value in fields.items():
            current = getattr(init, name)
            if hasattr(current, "extend"):
                current.extend(value)
            elif hasattr(current, "CopyFrom"):
                current.CopyFrom(value)
            else:
                setattr(init, name, value)
        metadata = (("authorization", f"Bearer {user.token()}"),)
        # A channel of its own: the agent's is closed with the agent.
        options = (("grpc.use_local_subchannel_pool", 1),)
        self.channel = aio.insecure_channel(agent.address, options=options)
        stub = agent_pb2_grpc.SlurmAgentStub(self.channel)
        self.call = stub.InteractiveSession(metadata=metadata, timeout=30)
        self.tools = tools
        self.kinds, self.ready, self.accepted = [], [], 0
        self.task_ends = []
        self.text = {1: b"", 2: b""}
        self.exit = self.error = None
        self._init = init
        self._reader = None

    async def start(self):
        await self.send(init=self._init)
        self._reader = asyncio.create_task(self._read())
        return self

    async def send(self, **fields):
        await self.call.write(pb.InteractiveSessionRequest(**fields))

    async def _read(self):
        try:
            async for answer in self.call:
                kind = answer.WhichOneof("kind")
                self.kinds.append(kind)
                if kind == "ready":
                    self.ready.append(answer.ready)
                elif kind == "stdin_accepted":
                    self.accepted = answer.stdin_accepted
                elif kind == "output":
                    self.text[answer.output.stream] += answer.output.data
                elif kind == "task_exit":
                    self.task_ends.append((answer.task_exit.rank, answer.task_exit.exit.code))
                elif kind == "exit":
                    self.exit = answer.exit
        except aio.AioRpcError as error:
            self.error = error

    async def until_text(self, text, stream=1):
        await self.tools.until(lambda: text in self.text[stream] or self.error, f"{text!r}")
        assert text in self.text[stream], self.error

    async def until_over(self):
        await asyncio.wait_for(self._reader, self.tools.PATIENCE)
        await self.channel.close()
        return self


def client(agent, tools, user, rid, **fields):
    return Client(agent, tools, user, rid, **fields).start()


@pytest.fixture
def step(agent, spec_of):
    """Launches a spooled step with that shell command as a job of its own."""

    async def make(rid, command, **fields):
        spec = spec_of(
            rid, argv=[b"/bin/sh", b"-c", command.encode()], spool_output=True, job_lifetime=True, **fields
        )
        spec.ClearField("script")
        answer = await agent.launch(spec)
        assert answer.success, answer.error
        return rid

    return make


ECHO = 'while read a; do echo "<$a>"; done; exit 4'


async def test_the_owners_input_is_counted_and_taken_once(agent, step, user, tools):
    rid = await step(RuntimeId(400, 1, 0), ECHO)
    first = await client(agent, tools, user, rid)
    await tools.until(lambda: first.ready, "ready")
    assert (first.ready[0].writer, first.ready[0].stdin_offset, first.ready[0].pty) == (True, 0, False)
    assert first.kinds[0] == "ready"
    await first.send(stdin=b"one\ntw", stdin_offset=0)
    await tools.until(lambda: first.accepted == 6, "confirmed")
    first.call.cancel()
    # It comes back, and sends again what it does not know to have arrived.
    again = await client(agent, tools, user, rid)
    await tools.until(lambda: again.ready, "ready")
    assert again.ready[0].stdin_offset == 6
    await again.send(stdin=b"one\ntwo\n", stdin_offset=0)
    await again.send(stdin_eof=True, stdin_offset=8)
    await again.until_over()
    assert again.text[1] == b"<one>\n<two>\n"
    assert again.exit.exit.code == 4


async def test_input_survives_the_agents_death(agent, step, user, tools):
    rid = await step(RuntimeId(401, 1, 0), ECHO)
    first = await client(agent, tools, user, rid)
    await first.send(stdin=b"one\n", stdin_offset=0)
    await first.until_text(b"<one>")
    await agent.kill()
    await first.until_over()
    assert first.error.code() is grpc.StatusCode.UNAVAILABLE
    await agent.start()
    again = await client(agent, tools, user, rid)
    await tools.until(lambda: again.ready, "ready")
    assert again.ready[0].stdin_offset == 4
    await again.send(stdin=b"two\n", stdin_offset=4)
    await again.send(stdin_eof=True, stdin_offset=8)
    await again.until_over()
    assert (again.text[1], again.exit.exit.code) == (b"<one>\n<two>\n", 4)


async def test_a_stopping_agent_tells_its_clients_to_come_back(agent, step, user, tools):
    rid = await step(RuntimeId(402, 1, 0), ECHO)
    one = await client(agent, tools, user, rid)
    await tools.until(lambda: one.ready, "ready")
    stub = agent_pb2_grpc.SlurmAgentStub(one.channel)
    call = stub.StreamJobOutput(
        pb.StreamJobOutputRequest(rid=tools.wire_rid(rid)),
        metadata=(("authorization", f"Bearer {user.token()}"),),
        timeout=30,
    )
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    who = procfs.identity(tools.descriptor_of(agent, rid.dirname())["task_pid"])
    assert await agent.kill(signal.SIGTERM) == 0
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await one.until_over()
    assert one.error.code() is grpc.StatusCode.UNAVAILABLE
    reading.cancel()
    assert procfs.is_alive(who)
    await agent.start()


async def test_a_watcher_sees_what_is_written_and_takes_nothing_away(
    agent, step, user, gate, tools, controller
):
    fifo = gate()
    rid = await step(RuntimeId(403, 1, 0), f"echo early; read x < {fifo}; echo late; exit 2")
    watcher = await client(agent, tools, user, rid, mode=WATCHER)
    await watcher.until_text(b"early")
    assert watcher.kinds[0] == "ready"
    assert not watcher.ready[0].writer
    await watcher.send(consumed=pb.StreamOffset(rank=0, stream=1, offset=6))
    tools.open_gate(fifo)
    await watcher.until_over()
    assert (watcher.text[1], watcher.exit.exit.code) == (b"early\nlate\n", 2)
    await tools.until(lambda: controller.reports, "report")
    # Its end is no reading of the output: that waits for the step's own client.
    own = await client(agent, tools, user, rid)
    await own.until_over()
    assert own.text[1] == b"early\nlate\n"
    await tools.until(lambda: not agent.sessions, "deleted once the owner has it")


async def test_a_watcher_gives_input_only_while_nobody_else_does(agent, step, user, tools):
    rid = await step(RuntimeId(404, 1, 0), ECHO)
    own = await client(agent, tools, user, rid)
    await tools.until(lambda: own.ready, "ready")
    watcher = await client(agent, tools, user, rid, mode=WATCHER, want_input=True)
    await tools.until(lambda: watcher.ready, "ready")
    assert not watcher.ready[0].writer
    await watcher.send(stdin=b"unheard\n", stdin_offset=0)
    await own.send(stdin=b"mine\n", stdin_offset=0)
    await own.until_text(b"<mine>")
    own.call.cancel()
    await tools.until(lambda: watcher.ready[-1].writer, "its turn")
    await watcher.send(stdin=b"yours\n", stdin_offset=watcher.ready[-1].stdin_offset)
    await watcher.until_text(b"<yours>")
    assert b"unheard" not in watcher.text[1]
    assert await agent.cancel(rid, grace_secs=0)
    await watcher.until_over()


async def test_a_second_client_takes_the_owners_place(agent, step, user, tools):
    rid = await step(RuntimeId(405, 1, 0), ECHO)
    first = await client(agent, tools, user, rid)
    await tools.until(lambda: first.ready, "ready")
    second = await client(agent, tools, user, rid)
    await tools.until(lambda: second.ready, "ready")
    await first.until_over()
    # It is not to come back and take the place again.
    assert first.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    await second.send(stdin_eof=True, stdin_offset=0)
    await second.until_over()
    assert second.exit.exit.code == 4


async def test_the_end_of_one_task_is_told_while_others_run(agent, step, user, gate, tools):
    rid, fifo = RuntimeId(413, 1, 0), gate()
    slice_ = common_pb2.NodeSlice(node="n1", cpus=1, memory_mb=64, ranks=[0, 1])
    command = f"[ $SLURM_PROCID = 1 ] && exit 5; read x < {fifo}; exit 2"
    await step(rid, command, slice=slice_, total_tasks=2, step_tasks=2)
    own = await client(agent, tools, user, rid)
    await tools.until(lambda: own.task_ends, "told")
    assert (own.task_ends, own.exit) == ([(1, 5)], None)
    late = await client(agent, tools, user, rid, mode=WATCHER)
    await tools.until(lambda: late.task_ends == [(1, 5)], "told to one that comes later")
    tools.open_gate(fifo)
    await own.until_over()
    assert own.task_ends == [(1, 5), (0, 2)]
    assert own.exit.exit.code == 5


async def test_a_present_attempt_is_found_without_its_number(agent, step, user, tools):
    rid = await step(RuntimeId(406, 3, 0), "echo here")
    wire = tools.wire_rid(rid)
    wire.run_attempt = 0
    wire.ClearField("step_id")
    one = await client(agent, tools, user, wire)
    await one.until_over()
    assert one.text[1] == b"here\n"
    wire.run_attempt = 2
    other = await client(agent, tools, user, wire)
    await other.until_over()
    assert other.error.code() is grpc.StatusCode.NOT_FOUND


async def test_a_steps_lost_end_is_an_error_of_its_own(agent, controller, step, user, tools):
    import os

    from spur_proto import controller_pb2

    controller.recover = lambda entry: controller_pb2.RECOVERY_VERDICT_WAIT
    rid = await step(RuntimeId(407, 1, 0), ECHO)
    one = await client(agent, tools, user, rid)
    await tools.until(lambda: one.ready, "ready")
    os.kill(tools.descriptor_of(agent, rid.dirname())["stepd_pid"], signal.SIGKILL)
    await one.until_over()
    assert one.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert dict(one.error.trailing_metadata())["x-spur-code"] == "supervisor_lost"
    late = await client(agent, tools, user, rid)
    await late.until_over()
    assert dict(late.error.trailing_metadata())["x-spur-code"] == "supervisor_lost"


async def test_mistakes_in_the_first_message_are_refused(agent, step, user, tools):
    rid = await step(RuntimeId(408, 1, 0), ECHO)
    for fields, text in (
        ({"mode": EXEC}, "a command is needed"),
        ({"mode": EXEC, "argv": [b"x"], "environment": [b"=y"]}, "NAME=value"),
        ({"mode": EXEC, "argv": [b"x\0y"]}, "zero byte"),
        ({"mode": 77}, "no mode"),
        ({"offsets": [pb.StreamOffset(stream=0)]}, "stdout or stderr"),
    ):
        one = await client(agent, tools, user, rid, **fields)
        await one.until_over()
        assert one.error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in one.error.details()
    assert await agent.cancel(rid, grace_secs=0)


async def test_a_terminal_survives_the_agent_and_follows_the_clients_size(agent, spec_of, user, tools):
    rid = RuntimeId(409, 1, 0)
    spec = spec_of(
        rid, argv=[b"/bin/sh", b"-c", b"echo up; while read a; do stty size; done"], spool_output=True
    )
    spec.ClearField("script")
    spec.job_lifetime = spec.shape.pty = True
    spec.shape.pty_rows, spec.shape.pty_cols = 20, 70
    answer = await agent.launch(spec)
    assert answer.success, answer.error
    one = await client(agent, tools, user, rid, window=pb.WindowSize(rows=31, cols=91))
    await one.until_text(b"up")
    assert one.ready[0].pty
    await one.send(stdin=b"a\n", stdin_offset=0)
    await one.until_text(b"31 91")
    await agent.kill()
    await one.until_over()
    await agent.start()
    again = await client(agent, tools, user, rid)
    await tools.until(lambda: again.ready, "ready")
    await again.send(resize=pb.WindowSize(rows=12, cols=34))
    await again.send(stdin=b"b\n", stdin_offset=again.ready[0].stdin_offset)
    await again.until_text(b"12 34")
    await again.send(stdin_eof=True, stdin_offset=again.ready[0].stdin_offset + 2)
    await again.until_over()
    assert again.exit.exit.code == 0


async def exec_text(agent, tools, user, rid, command, **fields):
    one = await client(agent, tools, user, rid, mode=EXEC, argv=[b"/bin/sh", b"-c", command], **fields)
    await tools.until(lambda: one.ready or one.error, "an answer")
    if one.ready:
        await one.send(stdin=b"in\n", stdin_offset=0)
        await one.send(stdin_eof=True, stdin_offset=3)
    return await one.until_over()


async def test_a_command_runs_inside_a_batch_job_and_changes_nothing_of_it(
    agent, controller, spec_of, user, gate, tools
):
    rid, fifo = tools.batch(410), gate()
    assert (await agent.launch(spec_of(rid, f"read x < {fifo}; exit 6", job_lifetime=True))).success
    wire = tools.wire_rid(rid)
    wire.run_attempt = 0
    wire.ClearField("step_id")
    one = await exec_text(
        agent,
        tools,
        user,
        wire,
        b'echo "$SLURM_JOB_ID $MINE $EXTRA"; echo bad >&2; cat; exit 7',
        environment=[b"EXTRA=more"],
    )
    assert one.error is None, one.error
    assert one.kinds[0] == "ready"
    assert (one.text[1], one.text[2], one.exit.exit.code) == (b"410 1 more\nin\n", b"bad\n", 7)
    assert not controller.reports
    tools.open_gate(fifo)
    await tools.until(lambda: controller.reports, "report")
    assert controller.reports[0].exit.code == 6


async def test_a_command_ends_with_its_client_and_with_the_agent(agent, spec_of, user, gate, base, tools):
    rid = RuntimeId(411, 1, STEP_EXTERN)
    spec = spec_of(rid, hold=True, job_lifetime=True)
    spec.ClearField("script")
    assert (await agent.launch(spec)).success
    for at, end in enumerate(("client", "agent")):
        pid_file = base / "work" / f"pid{at}"
        argv = [b"/bin/sh", b"-c", f"echo $$ > {pid_file}; exec sleep 1000".encode()]
        one = await client(agent, tools, user, rid, mode=EXEC, argv=argv)
        await tools.until(lambda f=pid_file: f.exists() and f.read_text().strip(), "running")
        who = procfs.identity(int(pid_file.read_text()))
        if end == "client":
            one.call.cancel()
        else:
            await agent.kill()
        await tools.until(lambda who=who: not procfs.is_alive(who), f"ends with the {end}")
    assert one.error is None or one.error.code() is grpc.StatusCode.UNAVAILABLE
    await agent.start()
    assert (await agent.probe(rid)).state == "live"


async def test_a_command_needs_a_step_that_runs(agent, step, user, tools, controller):
    controller.refuse = grpc.StatusCode.UNAVAILABLE
    rid = await step(RuntimeId(412, 1, 0), "exit 0")
    await tools.until(lambda: controller.reports, "over")
    one = await exec_text(agent, tools, user, rid, b"true")
    assert one.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    controller.refuse = None


async def test_unread_output_of_a_superseded_attempt_is_not_kept(agent, controller, step, tools):
    old, new = RuntimeId(440, 1, 0), RuntimeId(440, 2, 0)
    await step(old, "echo nobody reads this")
    await tools.until(lambda: controller.reports, "the end is told")
    assert agent.sessions == [old.dirname()]
    await step(new, "sleep 1000")
    await tools.until(lambda: agent.sessions == [new.dirname()], "only the new attempt", 10)


@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        (None, 300.0),
        (ExitRecord(), 300.0),
        (ExitRecord(ended_at=1000.0), 300.0),
        (ExitRecord(ended_at=900.0), 200.0),
        (ExitRecord(ended_at=100.0), 15.0),
        (ExitRecord(ended_at=2000.0), 300.0),
        (ExitRecord(ended_at=1000.0, teardown_reason="cancelled"), 15.0),
    ],
)
def test_unread_output_is_kept_from_the_end_on(ended, kept):
    """However often agents die meanwhile; a clock that was set makes it neither endless nor none."""
    assert kept_secs(ended, 1000.0) == kept
