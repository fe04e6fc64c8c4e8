"""Session directories that the release before this one left, as its supervisors really wrote them.

`fixtures/release1/JOB.1.STEP`: 101 ready, 102 running, 103 finished, 104 a finished step with spooled output,
105 cancelled, 106 abandoned, 107 suspended, 108 acknowledged.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from spur_agent import scan
from spur_agent.classify import Evidence, Found, classify
from spur_core.ids import STEP_BATCH, RuntimeId
from spur_core.linux import procfs
from spur_proto import agent_pb2
from spur_proto import controller_pb2 as pb
from spur_proto_lite.paths import SessionPaths

pytestmark = pytest.mark.node

RELEASE1 = Path(__file__).parent / "fixtures" / "release1"


def batch(job_id):
    return RuntimeId(job_id, 1, STEP_BATCH)


def read(rid, folder=RELEASE1):
    return scan.read_session(rid, SessionPaths(str(folder / rid.dirname())))


def judged(rid, folder=RELEASE1, **seen):
    """Its class, with a dead supervisor unless told otherwise."""
    found = read(rid, folder)
    story = found.story
    evidence = Evidence(
        descriptor=found.descriptor_word,
        journal_ok=story is not None,
        same_boot=True,
        alive=False,
        answer="",
        started=story is not None and story.started_at is not None,
        exited=story is not None and story.exit is not None,
        acknowledged=story is not None and story.acknowledged,
        abandoned=story is not None and story.abandoned,
    )
    return classify(evidence._replace(**seen))


@pytest.mark.parametrize(
    ("rid", "seen", "found"),
    [
        (batch(101), {}, Found.UNSTARTED),
        (batch(101), {"alive": True, "answer": "ready"}, Found.UNSTARTED),
        (batch(102), {}, Found.STALE),
        (batch(102), {"same_boot": False}, Found.STALE),
        (batch(102), {"alive": True, "answer": "running"}, Found.LIVE),
        (batch(103), {}, Found.FINISHED),
        (batch(103), {"alive": True, "answer": "exited"}, Found.FINISHED),
        (RuntimeId(104, 1, 0), {}, Found.FINISHED),
        (batch(105), {}, Found.FINISHED),
        (batch(106), {}, Found.UNSTARTED),
        (batch(107), {"alive": True, "answer": "suspended"}, Found.LIVE),
        (batch(107), {}, Found.STALE),
        (batch(108), {}, Found.DONE),
    ],
)
def test_each_is_classified_as_what_it_is(rid, seen, found):
    assert judged(rid, **seen) is found


def test_everything_in_them_is_understood():
    found = read(RuntimeId(104, 1, 0))
    assert found.descriptor is not None
    assert (found.descriptor.user, found.descriptor.uid, found.descriptor.protocol) == ("nobody", 65534, 1)
    assert found.claim is not None
    assert (found.claim.wire_sha256, found.claim.spooled) == ("ab" * 32, True)
    assert (found.claim.grant.cpu_ids, found.claim.grant.gres[0].indices) == ((0,), (1,))
    # Its steps were alone in their jobs: each stands for its attempt, and owes no epilog.
    assert (found.claim.job_lifetime, found.claim.epilog) == (True, False)
    assert found.story is not None
    assert found.story.exit is not None
    assert (found.story.exit.code, found.story.exit_seq) == (3, 3)
    cancelled = read(batch(105)).story
    assert cancelled is not None
    assert cancelled.exit is not None
    assert (cancelled.exit.signal, cancelled.exit.teardown_reason) == (9, "cancelled")


def newer(folder, name, **changes):
    """Write a later format number into one of the files."""
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}))


def test_a_newer_descriptor_is_fenced_and_never_guessed(tmp_path):
    folder = tmp_path / batch(102).dirname()
    shutil.copytree(RELEASE1 / batch(102).dirname(), folder)
    newer(folder, "descriptor.json", version=99)
    assert judged(batch(102), tmp_path, alive=True, answer="running") is Found.CORRUPT
    assert "format 99" in read(batch(102), tmp_path).trouble


async def test_an_agent_takes_over_a_state_directory_of_that_release(
    make_agent, controller, user, tools, base
):
    agent = make_agent()
    sessions = agent.state / "runtime" / "sessions"
    sessions.mkdir(parents=True, mode=0o700)
    (agent.state / "runtime").chmod(0o700)
    sessions.chmod(0o700)
    for folder in RELEASE1.iterdir():
        shutil.copytree(folder, sessions / folder.name)
        (sessions / folder.name).chmod(0o700)
        newer(sessions / folder.name, "descriptor.json", boot_id=procfs.boot_id(), stepd_start_ticks=1)
    newer(sessions / batch(107).dirname(), "descriptor.json", version=2)
    step = RuntimeId(104, 1, 0)
    newer(sessions / step.dirname(), "descriptor.json", uid=user.uid, user=user.name)
    controller.recover = lambda entry: (
        pb.RECOVERY_VERDICT_WAIT
        if entry.state in (pb.RECOVERY_STATE_STALE, pb.RECOVERY_STATE_CORRUPT)
        else pb.RECOVERY_VERDICT_KEEP
    )
    await agent.start()
    await tools.until(lambda: len(controller.reports) == 3, "reports")
    assert {(r.rid.job_id, r.exit.code, r.exit.signal) for r in controller.reports} == {
        (103, 7, 0),
        (104, 3, 0),
        (105, 0, 9),
    }
    await tools.until(lambda: len({e.rid.job_id for e in controller.recoveries}) >= 2, "told")
    states = {e.rid.job_id: e.state for e in controller.recoveries}
    assert (states[102], states[107]) == (pb.RECOVERY_STATE_STALE, pb.RECOVERY_STATE_CORRUPT)
    # What it spooled is still there for its owner.
    call = agent.stub().StreamJobOutput(
        agent_pb2.StreamJobOutputRequest(rid=tools.wire_rid(step)),
        metadata=(("authorization", f"Bearer {user.token()}"),),
        timeout=20,
    )
    text = b"".join([part.output.data async for part in call])
    assert text == b"out\nerr\n"
    kept = {batch(102).dirname(), batch(107).dirname(), step.dirname()}
    await tools.until(lambda: set(agent.sessions) == kept, "the others are deleted")
    controller.recover = lambda entry: pb.RECOVERY_VERDICT_FORGET
    await tools.until(lambda: agent.sessions == [step.dirname()], "forgotten when told to")
    assert [n.rpartition(".")[0] for n in os.listdir(agent.state / "runtime" / "quarantine")] == [
        batch(107).dirname()
    ]


class OldSupervisor:
    """A supervisor of that release as an agent sees it: it speaks protocol 1 and refuses any other."""

    def __init__(self, folder, rid, state="running"):
        self.rid, self.state, self.folder = rid, state, folder
        self.asked = []
        self.inputs = []
        self._server = None

    async def start(self):
        self._server = await asyncio.start_unix_server(self._serve, str(self.folder / "ctl.sock"))

    async def stop(self):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        from spur_agent.link import read_message
        from spur_core.errors import SpurError
        from spur_proto_lite import control, framing

        try:
            while True:
                request = control.decode_request(await read_message(reader))
                self.asked.append((request.op, request.v))
                if request.v != 1 and request.op != control.HELLO:
                    text = f"version {request.v} is not spoken here: 1 to 1"
                    reply = control.encode_error(request.v, request.id, control.VERSION, text, self.rid)
                    writer.write(framing.encode_message(reply))
                    continue
                body = {}
                if request.op == control.HELLO:
                    me = procfs.identity(os.getpid())
                    body = control.HelloReply(
                        rid=self.rid,
                        state=self.state,
                        min=1,
                        max=1,
                        stepd_pid=me.pid,
                        stepd_start_ticks=me.start_ticks,
                        boot_id=me.boot_id,
                    )
                elif request.op == control.QUERY:
                    body = control.QueryReply(state=self.state)
                writer.write(framing.encode_message(control.encode_reply(request, body)))
                if request.op == control.ATTACH:
                    await self._frames(request, reader, writer)
                    return
        except SpurError:
            pass
        finally:
            writer.close()

    async def _frames(self, request, reader, writer):
        from spur_proto_lite import framing
        from spur_proto_lite.exits import ExitRecord

        assert set(request.args) <= {"offsets", "stdin"}
        writer.write(framing.encode_data(framing.DATA_OUT, 0, 0, b"old\n"))
        buffer = framing.FrameBuffer()
        while (frame := buffer.take()) is None or frame.kind != framing.STDIN_EOF:
            if frame is not None:
                self.inputs.append((frame.kind, frame.payload))
                continue
            buffer.feed(await reader.read(65536))
        self.inputs.append((frame.kind, frame.payload))
        text = json.dumps(ExitRecord(code=2).to_json()).encode()
        writer.write(framing.encode_frame(framing.EXIT, text))
        await writer.drain()


async def test_a_supervisor_of_that_release_is_driven_in_its_own_protocol(
    make_agent, controller, user, tools, base
):
    """Supervisors outlive agents: its step is adopted, asked, attached to and sent input as it knows it."""
    from spur_proto_lite import framing

    agent = make_agent()
    rid = RuntimeId(104, 1, 0)
    sessions = agent.state / "runtime" / "sessions"
    sessions.mkdir(parents=True, mode=0o700)
    (agent.state / "runtime").chmod(0o700)
    sessions.chmod(0o700)
    folder = sessions / rid.dirname()
    shutil.copytree(RELEASE1 / rid.dirname(), folder)
    folder.chmod(0o700)
    lines = (folder / "journal").read_bytes().splitlines(keepends=True)
    (folder / "journal").write_bytes(b"".join(lines[:2]))
    me = procfs.identity(os.getpid())
    newer(
        folder,
        "descriptor.json",
        boot_id=me.boot_id,
        stepd_pid=me.pid,
        stepd_start_ticks=me.start_ticks,
        uid=user.uid,
        user=user.name,
    )
    old = OldSupervisor(folder, rid)
    await old.start()
    await agent.start()
    assert (await agent.probe(rid)).state == "live"
    init = agent_pb2.SessionInit(rid=tools.wire_rid(rid))
    init.window.rows = 10
    requests = [
        agent_pb2.InteractiveSessionRequest(init=init),
        agent_pb2.InteractiveSessionRequest(stdin=b"words", stdin_offset=0),
        agent_pb2.InteractiveSessionRequest(resize=agent_pb2.WindowSize(rows=5, cols=5)),
        agent_pb2.InteractiveSessionRequest(stdin_eof=True, stdin_offset=5),
    ]
    call = agent.stub().InteractiveSession(
        iter(requests), metadata=(("authorization", f"Bearer {user.token()}"),), timeout=20
    )
    said = [part async for part in call]
    assert [part.WhichOneof("kind") for part in said if part.WhichOneof("kind") != "stdin_accepted"] == [
        "ready",
        "output",
        "exit",
    ]
    assert (said[0].ready.writer, said[0].ready.stdin_offset) == (True, 0)
    assert [part.stdin_accepted for part in said if part.WhichOneof("kind") == "stdin_accepted"] == [5]
    assert old.inputs == [(framing.STDIN, b"words"), (framing.STDIN_EOF, b"")]
    assert {v for op, v in old.asked} == {1}
    # A command inside it is more than that release could do, and is refused in words.
    init = agent_pb2.SessionInit(rid=tools.wire_rid(rid), mode=agent_pb2.SESSION_MODE_EXEC, argv=[b"true"])
    call = agent.stub().InteractiveSession(
        iter([agent_pb2.InteractiveSessionRequest(init=init)]),
        metadata=(("authorization", f"Bearer {user.token()}"),),
        timeout=20,
    )
    with pytest.raises(tools.aio.AioRpcError) as error:
        [part async for part in call]
    assert error.value.code() is tools.grpc.StatusCode.FAILED_PRECONDITION
    assert "release" in error.value.details()
    await agent.kill()
    await old.stop()
    shutil.rmtree(folder)
