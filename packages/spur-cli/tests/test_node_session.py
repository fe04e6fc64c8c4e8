"""The session with an agent: nothing of the input is lost, doubled or mixed up, wherever the link breaks."""

import contextlib
import random
import socket
import threading
import time
from queue import SimpleQueue

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_cli import grpc_setup
from spur_cli.context import Context
from spur_cli.step import session
from spur_cli.step.resend import ResendBuffer
from spur_cli.step.session import Manner, NodeSession
from spur_cli.transport import Transport
from spur_proto import agent_pb2 as ag
from spur_proto import common_pb2 as c

OUT = ag.OUTPUT_STREAM_STDOUT


# The buffer alone.


@given(st.lists(st.one_of(st.binary(max_size=20), st.floats(0, 1), st.none()), max_size=60))
def test_what_arrives_is_what_was_given(steps):
    """Against the plainest model: the whole stream, and how much of it has arrived.

    Bytes are given; a number lets a piece arrive and mostly be confirmed; None breaks the link, so that
    everything is sent anew from the last confirmation.
    """
    buffer, stream, arrived = ResendBuffer(), b"", b""
    cursor = 0
    for step in steps:
        if isinstance(step, bytes):
            buffer.put(step)
            stream += step
        elif step is None:
            cursor = buffer.base
        else:
            piece = buffer.after(cursor, 7)
            offset = max(cursor, buffer.base)
            cursor = offset + len(piece)
            # The receiver passes over what it has.
            arrived += piece[max(len(arrived) - offset, 0) :]
            if step < 0.7:
                buffer.confirm(len(arrived))
        assert arrived == stream[: len(arrived)]
        assert buffer.end == len(stream)
        assert stream[buffer.base :] == buffer.after(0, 1 << 20)
        assert buffer.waiting == len(stream) - buffer.base
    cursor = buffer.base
    rest = buffer.after(cursor, 1 << 20)
    assert arrived[: buffer.base] + rest == stream


def test_somebody_else_gave_more():
    buffer = ResendBuffer()
    buffer.put(b"mine")
    buffer.confirm(10)
    assert (buffer.base, buffer.end, buffer.waiting) == (10, 10, 0)
    buffer.put(b"next")
    assert buffer.after(10, 9) == b"next"


def test_old_news_changes_nothing():
    buffer = ResendBuffer()
    buffer.put(b"abcd")
    buffer.confirm(3)
    buffer.confirm(1)
    assert (buffer.base, buffer.after(0, 9)) == (3, b"d")


# The session against an agent that breaks off.


class Step:
    """The other side of the contract: takes input by offset, passes over what it has, confirms."""

    def __init__(self):
        self.got = b""
        self.ended = threading.Event()
        self.connections = 0
        self.inits = []
        self.signals = []
        self.windows = []

    def ready(self, **more):
        return ag.InteractiveSessionResponse(
            ready=ag.SessionReady(stdin_offset=len(self.got), writer=True, **more)
        )

    def take(self, request):
        """Whether it was the end of the input."""
        kind = request.WhichOneof("kind")
        if kind == "stdin":
            assert request.stdin_offset <= len(self.got), "a gap in the input"
            self.got += request.stdin[len(self.got) - request.stdin_offset :]
        elif kind == "signal":
            self.signals.append(request.signal)
        elif kind == "resize":
            self.windows.append((request.resize.rows, request.resize.cols))
        elif kind == "stdin_eof":
            assert request.stdin_offset == len(self.got)
            self.ended.set()
        return kind == "stdin_eof"

    def accepted(self):
        return ag.InteractiveSessionResponse(stdin_accepted=len(self.got))


OVER = ag.InteractiveSessionResponse(exit=ag.StepExit(ranks=[ag.RankExit(rank=0, exit=c.ExitStatus(code=4))]))


def output(data, offset=0):
    chunk = ag.OutputChunk(rank=0, stream=OUT, offset=offset, data=data)
    return ag.InteractiveSessionResponse(output=chunk)


@pytest.fixture
def open_session(peer, tmp_path):
    """Make a session with the peer; its events come in `.events`."""
    made = []

    def make(talk, manner=session.OWNER, address=None, window=None):
        peer.answers["InteractiveSession"] = talk
        env = {"HOME": str(tmp_path), "SPUR_CONTROLLER_ADDR": peer.address}
        transport = Transport(Context("srun", [], env, str(tmp_path)))
        events = SimpleQueue()
        one = NodeSession(transport, "n1", address or peer.address, (7, 1, 0), events, manner, window)
        one.events = events
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def wait_for(events, kind, secs=20):
    """The payload of the next event of a kind."""
    deadline = time.monotonic() + secs
    while True:
        found, _, payload = events.get(timeout=max(deadline - time.monotonic(), 0.01))
        if found == kind:
            return payload


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(session, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(session, "LAST_PAUSE", 0.01)


@pytest.mark.parametrize("seed", range(12))
def test_input_is_byte_exact_wherever_the_stream_is_cut(open_session, refuse, impatient, seed):
    chance = random.Random(seed)
    step = Step()

    def talk(requests):
        step.connections += 1
        assert next(requests).WhichOneof("kind") == "init"
        left = chance.randrange(6) if step.connections < 30 else 1 << 30
        if left == 0:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "cut before the first word")
        yield step.ready()
        for request in requests:
            end = step.take(request)
            left -= 1
            if left <= 0:
                # What was taken just now is not confirmed.
                raise refuse(grpc.StatusCode.UNAVAILABLE, "cut")
            if end:
                yield OVER
                return
            if chance.random() < 0.5:
                yield step.accepted()

    one = open_session(talk)
    one.start()
    given_bytes = b""
    for _ in range(300):
        data = chance.randbytes(chance.randrange(1, 9000))
        given_bytes += data
        one.wait_for_room()
        one.send_stdin(data)
    one.send_stdin(b"")
    assert wait_for(one.events, session.EXIT).ranks[0].exit.code == 4
    assert step.got == given_bytes
    assert step.connections > 1


def test_a_reader_of_input_waits_for_its_confirmation(open_session, monkeypatch):
    """No more than the window is kept, however slow the step takes it."""
    monkeypatch.setattr(session, "INPUT_BYTES", 10_000)
    step, go_on, held = Step(), threading.Event(), threading.Event()

    def talk(requests):
        next(requests)
        yield step.ready()
        for request in requests:
            if step.take(request):
                yield OVER
                return
            if len(step.got) >= 12_000 and not held.is_set():
                held.set()
                assert go_on.wait(20)
            yield from [step.accepted()] if go_on.is_set() else []

    one = open_session(talk)
    one.start()
    wait_for(one.events, session.READY)
    passed = SimpleQueue()

    def feed():
        for _ in range(100):
            one.wait_for_room()
            one.send_stdin(b"x" * 4000)
            passed.put(1)
        one.send_stdin(b"")

    threading.Thread(target=feed, daemon=True).start()
    assert held.wait(20)
    assert passed.qsize() == 3
    go_on.set()
    wait_for(one.events, session.EXIT)
    assert step.got == b"x" * 400_000


def test_signals_and_sizes_that_never_left_arrive_later(open_session, refuse, impatient):
    step = Step()

    def talk(requests):
        step.connections += 1
        next(requests)
        if step.connections < 4:
            next(requests)  # taken off the wire by an agent that dies before it says anything
            raise refuse(grpc.StatusCode.UNAVAILABLE, "going down")
        yield step.ready()
        for request in requests:
            if step.take(request):
                yield OVER

    one = open_session(talk)
    one.send_signal(10)
    one.send_window(30, 100)
    one.send_signal(12)
    one.start()
    one.send_stdin(b"")
    wait_for(one.events, session.EXIT)
    assert step.signals == [10, 12]
    assert step.windows == [(30, 100)]


def test_the_agent_comes_back_elsewhere(open_session, peer, impatient):
    step = Step()

    def talk(requests):
        next(requests)
        yield step.ready()
        yield OVER

    one = open_session(talk, address="127.0.0.1:9")
    one.start()
    assert wait_for(one.events, session.LOST).status == "UNAVAILABLE"
    one.address = peer.address
    assert wait_for(one.events, session.EXIT).ranks[0].rank == 0


def test_a_silent_connection_to_the_old_place_is_left(open_session, peer):
    """The call stands, but the agent is known to be elsewhere by now."""
    step, gone = Step(), threading.Event()

    def talk(requests):
        step.connections += 1
        next(requests)
        yield step.ready()
        if step.connections == 1:
            for _ in requests:
                pass
            gone.set()
            return
        yield OVER

    one = open_session(talk)
    one.start()
    wait_for(one.events, session.READY)
    one.address = peer.address.replace("127.0.0.1", "localhost")
    wait_for(one.events, session.EXIT)
    assert step.connections == 2


def test_losing_and_finding_again_is_told(open_session, refuse, impatient):
    step = Step()

    def talk(requests):
        step.connections += 1
        next(requests)
        if step.connections in (2, 3):
            raise refuse(grpc.StatusCode.UNAVAILABLE, "away", "unreachable")
        yield step.ready()
        if step.connections == 1:
            raise refuse(grpc.StatusCode.UNAVAILABLE, "dying", "unreachable")
        yield OVER

    one = open_session(talk)
    one.start()
    kinds = []
    while not kinds or kinds[-1] != session.EXIT:
        kinds.append(one.events.get(timeout=20)[0])
    assert kinds == [session.READY, session.LOST, session.READY, session.EXIT]


def test_a_long_quiet_session_gets_the_whole_time_to_come_back(open_session, refuse, impatient, monkeypatch):
    """The time that an agent may be away counts from its loss, not from its last word."""
    monkeypatch.setattr(session, "RECONNECT_SECS", 0.4)
    step = Step()

    def talk(requests):
        step.connections += 1
        next(requests)
        yield step.ready()
        if step.connections == 1:
            threading.Event().wait(0.8)
            raise refuse(grpc.StatusCode.UNAVAILABLE, "restart")
        yield OVER

    one = open_session(talk)
    one.start()
    wait_for(one.events, session.EXIT)


def test_an_agent_of_the_first_release_never_confirms(open_session, refuse, impatient, monkeypatch):
    monkeypatch.setattr(session, "INPUT_BYTES", 1000)
    got, calls = [], []

    def talk(requests):
        calls.append(1)
        next(requests)
        for request in requests:
            if request.stdin:
                got.append(request.stdin)
                yield output(request.stdin, sum(map(len, got[:-1])))
            if len(got) == 2 and len(calls) == 1:
                raise refuse(grpc.StatusCode.UNAVAILABLE, "restart")
            if request.stdin_eof:
                yield OVER
                return

    one = open_session(talk)
    one.start()
    for piece in (b"a" * 2000, b"b" * 2000):
        one.wait_for_room()
        one.send_stdin(piece)
        assert wait_for(one.events, session.OUTPUT)[3] == piece
    wait_for(one.events, session.LOST)
    one.wait_for_room()
    one.send_stdin(b"c" * 2000)
    one.send_stdin(b"")
    wait_for(one.events, session.EXIT)
    assert b"".join(got) == b"a" * 2000 + b"b" * 2000 + b"c" * 2000


class SilentProxy:
    """Passes bytes on to `port` until it falls silent, as a host does that lost its power."""

    def __init__(self, port):
        self._port = port
        self.silent = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._sockets = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.silent.is_set():
                    target.sendall(data)

    def close(self):
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_host_that_falls_silent_is_left(open_session, peer, monkeypatch):
    """Nothing ever tells that it is gone; the agent may be back at the same address long since."""
    monkeypatch.setattr(grpc_setup, "KEEPALIVE_MS", 300)
    monkeypatch.setattr(grpc_setup, "KEEPALIVE_ANSWER_MS", 300)
    step = Step()

    def talk(requests):
        step.connections += 1
        next(requests)
        yield step.ready()
        if step.connections == 1:
            with contextlib.suppress(grpc.RpcError):
                for _ in requests:
                    pass
            return
        yield OVER

    proxy = SilentProxy(peer.port)
    try:
        one = open_session(talk, address=proxy.address)
        one.start()
        wait_for(one.events, session.READY)
        proxy.silent.set()
        wait_for(one.events, session.LOST, secs=30)
        one.address = peer.address
        wait_for(one.events, session.EXIT)
    finally:
        proxy.close()


# Watchers.


def ready(offset, writer):
    return ag.InteractiveSessionResponse(ready=ag.SessionReady(stdin_offset=offset, writer=writer))


def test_a_watcher_that_may_write_goes_on_after_the_others(open_session):
    step = Step()
    step.got = b"others'"

    def talk(requests):
        init = next(requests).init
        assert (init.mode, init.want_input) == (ag.SESSION_MODE_WATCHER, True)
        assert (init.window.rows, init.window.cols) == (24, 80)
        yield output(b"recent", 5000)
        yield ready(len(step.got), True)
        for request in requests:
            if step.take(request):
                yield OVER

    one = open_session(talk, Manner(watch=True, want_input=True), window=(24, 80))
    one.send_stdin(b" mine")
    one.start()
    assert wait_for(one.events, session.OUTPUT) == (0, OUT, 5006, b"recent")
    one.send_stdin(b"")
    wait_for(one.events, session.EXIT)
    assert step.got == b"others' mine"


def test_a_watcher_without_the_keyboard_gives_nothing_and_later_only_what_comes_later(open_session):
    step, hand_over = Step(), threading.Event()

    def talk(requests):
        next(requests)
        yield ready(3, False)
        assert hand_over.wait(20)
        step.got = b"abcd"
        yield ready(4, True)
        for request in requests:
            if step.take(request):
                yield OVER

    one = open_session(talk, Manner(watch=True, want_input=True))
    one.send_stdin(b"early")
    one.start()
    assert not wait_for(one.events, session.READY).writer
    one.send_stdin(b"lost too")
    hand_over.set()
    assert wait_for(one.events, session.READY).writer
    one.send_stdin(b"late")
    one.send_stdin(b"")
    wait_for(one.events, session.EXIT)
    assert step.got == b"abcdlate"


def test_a_watcher_drops_nothing_of_the_owners_output(open_session):
    """Credit lets the supervisor drop what its owner may not have had yet."""
    seen = SimpleQueue()

    def talk(requests):
        next(requests)
        yield ready(0, False)
        yield output(b"x" * 600_000)
        yield output(b"y" * 600_000, 600_000)
        for request in requests:
            seen.put(request.WhichOneof("kind"))
            if request.signal:
                yield OVER

    one = open_session(talk, Manner(watch=True))
    one.start()
    for _ in range(2):
        rank, stream, end, data = wait_for(one.events, session.OUTPUT)
        one.delivered(rank, stream, end, len(data))
    one.send_signal(1)
    wait_for(one.events, session.EXIT)
    assert seen.get(timeout=5) == "signal"


def test_a_slow_reader_of_output_holds_the_agent_back(open_session, monkeypatch):
    monkeypatch.setattr(session, "OUTPUT_BYTES", 100_000)

    def talk(requests):
        next(requests)
        yield ready(0, True)
        for at in range(100):
            yield output(b"z" * 50_000, at * 50_000)
        yield OVER

    one = open_session(talk)
    one.start()
    total = 0
    while True:
        kind, _, payload = one.events.get(timeout=20)
        assert one.events.qsize() <= 2
        if kind == session.EXIT:
            break
        if kind == session.OUTPUT:
            total += len(payload[3])
            one.delivered(*payload[:3], len(payload[3]))
    assert total == 5_000_000


# Commands inside a step.


def test_a_command_is_never_tried_twice(open_session, refuse, impatient):
    calls = []

    def talk(requests):
        init = next(requests).init
        calls.append(init)
        raise refuse(grpc.StatusCode.UNAVAILABLE, "going down")
        yield

    one = open_session(talk, Manner(argv=(b"ls", b"-l"), environment=(b"A=\xff",), pty=True, work_dir="/w"))
    one.start()
    assert wait_for(one.events, session.FAILED).status == "UNAVAILABLE"
    (init,) = calls
    assert (init.mode, list(init.argv), list(init.environment), init.pty, init.work_dir) == (
        ag.SESSION_MODE_EXEC,
        [b"ls", b"-l"],
        [b"A=\xff"],
        True,
        "/w",
    )
