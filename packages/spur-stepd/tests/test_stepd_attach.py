"""Owners and watchers of real steps: output, input, hand-over, lost connections."""

import contextlib
import os
import random
import signal
import socket
import struct

import pytest
from testkit.supervisor_client import Unconfirmed

from spur_core.errors import Unreachable
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.control import WATCHER, Refused
from spur_proto_lite.exits import exit_of
from spur_proto_lite.launch_spec import TaskSpec
from spur_stepd import attachments

pytestmark = pytest.mark.node

OUT, ERR = framing.DATA_OUT, framing.DATA_ERR


def step(place, text, **changes):
    return place.spec(**{"step_id": 0, "argv": ("/bin/sh", "-c", text), "spool_output": True, **changes})


class Reader:
    """Puts the output of a channel together and answers for it."""

    def __init__(self, channel, credit=False):
        self.channel = channel
        self.channel.sock.settimeout(30)
        self.data = {}
        #: Offsets of the first byte that came of each stream, and of the next one.
        self.first, self.at = {}, {}
        self.credit = credit
        self.exit = None
        self.gaps = []

    def take(self):
        """One frame; False at the end of the connection."""
        frame = self.channel.receive()
        if frame is None:
            return False
        if frame.kind in (OUT, ERR):
            rank, offset, data = framing.decode_data(frame.payload)
            key = (rank, frame.kind)
            self.data.setdefault(key, bytearray()).extend(data)
            if offset != self.at.get(key, offset):
                self.gaps.append((self.at[key], offset))
            self.first.setdefault(key, offset)
            self.at[key] = offset + len(data)
            if self.credit:
                self.channel.credit(frame.kind, rank, offset + len(data))
        elif frame.kind == framing.EXIT:
            self.exit = exit_of(frame)
        return True

    def until(self, text, key=(0, OUT)):
        while text not in self.data.get(key, b""):
            assert self.take(), f"ended before {text!r}: {self.data}"
        return self

    def writer(self):
        """Until this client is told about its part."""
        before = self.channel.writer
        while self.channel.writer == before:
            assert self.take()
        return self.channel.writer

    def end(self):
        while self.take():
            pass
        assert self.exit is not None, "the connection ended without an exit"
        return self.exit


def done(session):
    session.ack(session.wait().exit_seq)
    assert "Traceback" not in session.log()


# -- protocol 1 ------------------------------------------------------------------------------------

#: What an agent of the first release sends to attach, to give input and to end it, byte for byte.
V1_ATTACH = (
    b'{"offsets":[[0,1,2]],"stdin":true,"v":1,"id":9,"op":"attach",'
    b'"rid":{"job_id":7,"run_attempt":1,"step_id":0}}'
)
V1_FRAMES = b"\x03\x03\x00\x00\x00abc" + b"\x03\x02\x00\x00\x00d\n" + b"\x04\x00\x00\x00\x00"
V1_CREDIT = b"\x08\x0d\x00\x00\x00\x01\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"


def test_an_agent_of_the_first_release_attaches_as_before(fast_node):
    session = fast_node.spawn(step(fast_node, "printf 12345; exec cat"))
    session.start()
    sock = socket.socket(fileno=unixsock.connect(session.paths.control))
    sock.settimeout(20)
    with sock:
        sock.sendall(struct.pack("<I", len(V1_ATTACH)) + V1_ATTACH + V1_FRAMES + V1_CREDIT)
        got = b""
        while data := sock.recv(4096):
            got += data
    reply = b'{"v":1,"id":9,"ok":true}'
    assert got.startswith(struct.pack("<I", len(reply)) + reply)
    frames, taken = framing.FrameBuffer(got[4 + len(reply) :]), []
    while (frame := frames.take()) is not None:
        taken.append(frame)
    assert [frame.kind for frame in taken[:-1]] == [OUT] * (len(taken) - 1)  # no credit, no writer
    chunks = [framing.decode_data(frame.payload) for frame in taken[:-1]]
    assert chunks[0].offset == 2
    assert b"".join(chunk.data for chunk in chunks) == b"345abcd\n"
    assert exit_of(taken[-1]).code == 0
    done(session)


def test_a_first_release_client_that_only_listens_holds_nobody_up(fast_node, gate):
    session = fast_node.spawn(step(fast_node, f"echo one; read x < {gate.path}; exec cat"))
    session.start()
    listener = Reader(session.client().attach())
    owner = Reader(session.client().join())
    assert owner.channel.writer
    owner.channel.write(b"two\n")
    owner.channel.write_eof()
    gate.open()
    assert (owner.end().code, listener.end().code) == (0, 0)
    assert listener.data == owner.data == {(0, OUT): b"one\ntwo\n"}
    done(session)


# -- output ----------------------------------------------------------------------------------------


def test_a_watcher_gets_the_last_64_kib_and_then_everything(fast_node, gate):
    size = 300_000
    text = f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end >&2; read x < {gate.path}; echo more"
    session = fast_node.spawn(step(fast_node, text, spool_limit=1 << 20))
    session.start()
    owner = Reader(session.client().join(), credit=True)
    owner.until(b"\n").until(b"end\n", (0, ERR))
    watcher = Reader(session.client().join(WATCHER))
    begin = size + 1 - (1 << 16)
    gate.open()
    assert watcher.end().code == 0
    assert bytes(watcher.data[0, OUT]) == b"x" * ((1 << 16) - 1) + b"\nmore\n"
    assert watcher.data[0, ERR] == b"end\n"
    assert (watcher.first, watcher.gaps) == ({(0, OUT): begin, (0, ERR): 0}, [])
    assert owner.end().code == 0
    assert bytes(owner.data[0, OUT]) == b"x" * size + b"\nmore\n"
    # A watcher that comes back says where it was.
    again = Reader(session.client().join(WATCHER, ((0, OUT, begin + 5), (0, ERR, 4))))
    again.end()
    assert again.first == {(0, OUT): begin + 5}
    assert len(again.data[0, OUT]) == (1 << 16) - 5 + len("more\n")
    done(session)


def test_a_watcher_that_takes_nothing_holds_nobody_up(fast_node):
    """It misses what it has not taken in time, and sees that from the offsets."""
    size = 12 << 20
    text = f"head -c {size} /dev/zero | tr '\\0' x; echo end"
    session = fast_node.spawn(step(fast_node, text, spool_limit=1 << 20))
    watcher = Reader(session.client().join(WATCHER))
    owner = Reader(session.client().join(), credit=True)
    session.start()
    assert owner.end().code == 0
    assert owner.data[0, OUT] == b"x" * size + b"end\n"
    assert watcher.end().code == 0
    assert len(watcher.gaps) == 1
    ((missed_from, missed_to),) = watcher.gaps
    assert 0 < missed_from < missed_to < size
    assert watcher.data[0, OUT].endswith(b"x" * (1 << 16) + b"end\n"[-4:])
    done(session)


def test_the_credit_and_orders_of_a_watcher_do_not_count(fast_node):
    text = "trap 'echo got; exit 4' USR1; head -c 3000000 /dev/zero; while :; do sleep 0.01; done"
    session = fast_node.spawn(step(fast_node, text, spool_limit=1 << 20))
    session.start()
    watcher = Reader(session.client().join(WATCHER), credit=True)
    watcher.channel.signal(signal.SIGUSR1)
    with contextlib.suppress(Unreachable):
        watcher.channel.sock.settimeout(0.3)
        while watcher.take():
            pass
    assert session.client().query().state == "running"
    owner = Reader(session.client().join(), credit=True)
    assert len(owner.data) == 0
    owner.until(b"\0" * 3_000_000)
    owner.channel.signal(signal.SIGUSR1)
    assert owner.end().code == 4
    done(session)


def test_an_owner_that_comes_back_has_what_is_before_its_offset(fast_node):
    """Its last credit may have been lost with its connection: the step must not wait for that."""
    text = "head -c 3000000 /dev/zero; echo end"
    session = fast_node.spawn(step(fast_node, text, spool_limit=1 << 20))
    session.start()
    first = Reader(session.client().join())
    while first.at.get((0, OUT), 0) < 1 << 20:
        first.take()
    first.channel.close()
    # A watcher's offset says nothing of the kind.
    watcher = Reader(session.client().join(WATCHER, ((0, OUT, 1 << 20),)))
    watcher.channel.sock.settimeout(0.3)
    with pytest.raises(Unreachable):
        watcher.take()
    second = Reader(session.client().join(offsets=((0, OUT, 1 << 20),)), credit=True)
    assert second.end().code == 0
    assert second.first == {(0, OUT): 1 << 20}
    assert len(second.data[0, OUT]) == 3_000_000 + 4 - (1 << 20)
    done(session)


def test_streams_that_end_early_do_not_disturb_who_comes_later(fast_node, gate):
    """The descriptors of a stream that has ended are soon those of somebody else."""
    session = fast_node.spawn(step(fast_node, f"echo a; echo b >&2; exec >&- 2>&-; read x < {gate.path}"))
    session.start()
    owner = Reader(session.client().join()).until(b"a\n").until(b"b\n", (0, ERR))
    others = [Reader(session.client().join(WATCHER)) for _ in range(6)]
    gate.open()
    for reader in (owner, *others):
        assert reader.end().code == 0
        assert reader.data == {(0, OUT): b"a\n", (0, ERR): b"b\n"}
    done(session)


def test_a_new_owner_takes_the_place_of_the_old_one(fast_node):
    session = fast_node.spawn(step(fast_node, "exec cat"))
    session.start()
    first = Reader(session.client().join())
    first.channel.write(b"abc\n")
    first.until(b"abc\n")
    second = Reader(session.client().join(offsets=((0, OUT, 4),), source=first.channel.source))
    assert second.channel.writer
    assert first.take() is False or not first.take()
    second.channel.write(b"def\n")
    second.channel.write_eof()
    assert second.end().code == 0
    assert second.data == {(0, OUT): b"def\n"}
    done(session)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"mode": "boss"}, "boss"),
        ({"mode": 3}, "mode"),
        ({"offsets": [[0, 3, 0]]}, "offset"),
        ({"stdin_offset": 5}, "input from 0 to 5 is missing"),
        ({"want_input": "yes"}, "want_input"),
    ],
)
def test_malformed_attachments_are_refused(fast_node, args, word):
    session = fast_node.spawn(step(fast_node, "true"))
    with pytest.raises(Refused, match=word) as caught:
        session.client().call("attach", 2, **args)
    assert caught.value.code == control.BAD_REQUEST
    session.run()


def test_what_has_no_channel_refuses(fast_node):
    session = fast_node.spawn(fast_node.script("true\n"))
    with pytest.raises(Refused, match="goes to files") as caught:
        session.client().join()
    assert caught.value.code == control.BAD_STATE
    session.run()
    held = fast_node.spawn(fast_node.spec(step_id=0xFFFFFFFC, hold=True, spool_output=True))
    with pytest.raises(Refused, match="no task of its own"):
        held.client().join()
    held.start()
    held.client().teardown("cancelled", 0.0)
    held.ack(held.wait().exit_seq)


# -- input -----------------------------------------------------------------------------------------


def test_the_turn_to_give_input_passes_on(fast_node):
    session = fast_node.spawn(step(fast_node, "exec cat"))
    session.start()
    quiet = Reader(session.client().join(WATCHER))
    one = Reader(session.client().join(WATCHER, want_input=True))
    two = Reader(session.client().join(WATCHER, want_input=True))
    assert [r.channel.writer for r in (quiet, one, two)] == [False, True, False]
    two.channel.write(b"kept by two\n")  # it is not its turn: kept until it is
    quiet.channel.send(framing.encode_stdin(0, b"not wanted\n"))
    one.channel.write(b"from one\n")
    quiet.until(b"from one\n")
    owner = Reader(session.client().join())
    assert owner.channel.writer
    assert one.writer() is False
    one.channel.send(framing.encode_stdin(9, b"too late\n"))
    owner.channel.write(b"from owner\n")
    quiet.until(b"from owner\n")
    owner.channel.close()
    assert one.writer() is True
    assert one.channel.source.confirmed == 9
    one.channel.close()
    assert two.writer() is True
    quiet.until(b"kept by two\n")
    two.channel.write_eof()  # of a watcher: only its own turn ends
    assert two.writer() is False
    owner = Reader(session.client().join(source=owner.channel.source))
    owner.channel.write(b"back\n")
    owner.channel.write_eof()
    assert quiet.end().code == 0
    assert quiet.data[0, OUT] == b"from one\nfrom owner\nkept by two\nback\n"
    done(session)


def test_an_owner_may_leave_the_input_to_others(fast_node):
    session = fast_node.spawn(step(fast_node, "read x; echo got $x"))
    session.start()
    owner = Reader(session.client().join(want_input=False))
    assert not owner.channel.writer
    watcher = session.client().join(WATCHER, want_input=True)
    assert watcher.writer
    watcher.write(b"this\n")
    assert owner.end().code == 0
    assert owner.data == {(0, OUT): b"got this\n"}
    done(session)


@pytest.mark.parametrize(("rank", "served"), [(None, {4, 5}), (-1, set()), (5, {5}), (99, set())])
def test_only_the_wanted_rank_gets_the_input(fast_node, rank, served):
    tasks = (TaskSpec(rank=4, local_rank=0), TaskSpec(rank=5, local_rank=1))
    session = fast_node.spawn(step(fast_node, "cat; echo done", tasks=tasks, stdin_rank=rank))
    session.start()
    owner = Reader(session.client().join())
    owner.channel.write(b"in\n")
    owner.channel.write_eof()
    assert owner.end().code == 0
    expected = {(r, OUT): (b"in\n" if r in served else b"") + b"done\n" for r in (4, 5)}
    assert owner.data == expected
    done(session)


def test_input_is_confirmed_only_as_fast_as_it_is_taken(fast_node, gate):
    """8 MiB for a task that reads nothing yet: the giver stops within its window, and goes on later."""
    size = 8 << 20
    session = fast_node.spawn(step(fast_node, f"read x < {gate.path}; wc -c"))
    session.start()
    owner = Reader(session.client().join())
    owner.channel.write(b"z" * size)
    owner.channel.write_eof()
    owner.channel.sock.settimeout(0.3)
    with contextlib.suppress(Unreachable):
        while owner.take():
            pass
    assert owner.channel.source.confirmed < 2 * framing.STDIN_WINDOW
    assert owner.channel.source.sent <= 3 * framing.STDIN_WINDOW
    owner.channel.sock.settimeout(30)
    gate.open()
    assert owner.end().code == 0
    assert int(owner.data[0, OUT]) == size
    assert owner.channel.source.confirmed == size
    done(session)


def test_orders_arrive_while_input_is_stuck(fast_node):
    text = "trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done"
    session = fast_node.spawn(step(fast_node, text))
    session.start()
    owner = Reader(session.client().join())
    owner.until(b"up\n")
    owner.channel.write(b"z" * (8 << 20))
    owner.channel.signal(signal.SIGUSR1)
    assert owner.end().code == 9
    done(session)


@pytest.mark.parametrize("seed", range(4))
def test_input_and_output_survive_any_number_of_lost_connections(fast_node, seed):
    """Random data through `cat`, with the connection cut at random places: nothing lost, nothing doubled."""
    chance = random.Random(seed)
    size = 3_000_000
    data = chance.randbytes(size)
    session = fast_node.spawn(step(fast_node, "exec cat", spool_limit=1 << 18))
    session.start()
    source, got, given, cuts, ended = Unconfirmed(), bytearray(), 0, 0, None
    while ended is None:
        credited = len(got)
        channel = session.client().join(offsets=((0, OUT, len(got)),), source=source)
        channel.sock.settimeout(30)
        assert channel.writer
        until = chance.choice([0, 1, 70_000, 400_000, 900_000]) if cuts < 25 else 1 << 40
        taken = 0
        while taken <= until:
            if given < size and source.end - source.confirmed < 200_000:
                piece = data[given : given + chance.randint(1, 150_000)]
                given += len(piece)
                channel.write(piece)
                if given == size:
                    channel.write_eof()
            frame = channel.receive()
            assert frame is not None
            if frame.kind == OUT:
                chunk = framing.decode_data(frame.payload)
                assert chunk.offset == len(got)
                got += chunk.data
                taken += len(chunk.data)
                if chance.random() < 0.7 or len(got) - credited > 100_000:
                    credited = len(got)
                    channel.credit(OUT, 0, credited)
            elif frame.kind == framing.EXIT:
                ended = exit_of(frame)
                break
        if ended is None:
            cuts += 1
            if chance.random() < 0.5:  # in the middle of a frame
                cut = framing.encode_stdin(source.sent, os.urandom(50))[:20]
                with contextlib.suppress(OSError):
                    channel.send(cut)
        channel.close()
    assert cuts >= 3
    assert got == data
    assert ended.code == 0
    done(session)


def test_only_so_many_watch_and_the_owner_always_finds_a_place(fast_node):
    """Each client costs a descriptor and memory: endless ones would use up what the step's own needs."""
    session = fast_node.spawn(step(fast_node, "exec sleep 1000"))
    session.start()
    watching = [session.client().join(WATCHER) for _ in range(attachments.MOST_WATCHERS)]
    with pytest.raises(Refused, match="64 clients are attached") as refused:
        session.client().join(WATCHER)
    assert refused.value.code == control.BAD_STATE
    owner = session.client().join()
    assert owner.writer
    watching.pop().sock.close()
    watching.pop().sock.close()
    session.client().query()
    watching.append(session.client().join(WATCHER))
    session.client().teardown("cancelled", 0.0)
    for channel in (*watching, owner):
        channel.sock.close()
    done(session)
