"""The decisions about attached clients, their input and terminals, without a supervisor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testkit.supervisor_client import Unconfirmed

from spur_proto_lite import framing
from spur_proto_lite.control import OWNER, WATCHER
from spur_proto_lite.errors import BadDocument
from spur_stepd.inflow import Inflow
from spur_stepd.seats import LISTENER, Client, Seats
from spur_stepd.terminal_rules import HANG_UP, KILL, KILL_PAUSE, Detachment, EndOfInput


def client(mode, wants=True, version=2):
    return Client(None, mode, wants, version)


# -- who gives the input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "writers"),
    [
        # Each step: (+ or -, name).  o = owners, w = watchers that want, q = watchers that do not.
        ("+o1", ["o1"]),
        ("+q1", [None]),
        ("+w1 +w2", ["w1", "w1"]),
        ("+w1 +w2 -w1", ["w1", "w1", "w2"]),
        ("+w1 +o1", ["w1", "o1"]),
        ("+w1 +o1 -o1", ["w1", "o1", "w1"]),
        ("+w1 +w2 +o1 -w1 -o1", ["w1", "w1", "o1", "o1", "w2"]),
        ("+o1 +o2", ["o1", "o2"]),
        ("+o1 +o2 -o1 -o2", ["o1", "o2", "o2", None]),
        ("+q1 +w1 -w1", [None, "w1", None]),
        ("+w1 -w1 -w1", ["w1", None, None]),
    ],
)
def test_who_gives_the_input(story, writers):
    seats, made, seen = Seats(), {}, []
    for word in story.split():
        sign, name = word[0], word[1:]
        if sign == "+":
            made[name] = client(OWNER if name[0] == "o" else WATCHER, name[0] != "q")
            seats.join(made[name])
        else:
            seats.leave(made[name])
        before = seats.writer
        turn = seats.settle()
        assert (turn.lost, turn.gained) == (
            (None, None) if before is seats.writer else (before, seats.writer)
        )
        seen.append(seats.writer)
    assert seen == [made.get(name) for name in writers]


def test_a_second_owner_takes_the_place_of_the_first():
    seats, first, second, listener = Seats(), client(OWNER), client(OWNER), client(LISTENER, False, 1)
    assert seats.join(first) is None
    assert seats.join(listener) is None
    assert seats.join(second) is first
    assert seats.clients == [listener, second]
    assert [c.takes_for_good for c in (first, listener, client(WATCHER), client(WATCHER, version=1))] == [
        True,
        True,
        False,
        True,
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_there_is_a_giver_whenever_somebody_wants_to_be_one(moves):
    seats = Seats()
    people = [client(OWNER if n < 2 else WATCHER, n != 5) for n in range(6)]
    for number, comes in moves:
        if comes and people[number] not in seats.clients:
            seats.join(people[number])
        elif not comes:
            seats.leave(people[number])
        seats.settle()
        wanting = [one for one in seats.clients if one.wants_input]
        assert (seats.writer in wanting) if wanting else (seats.writer is None)
        assert sum(one.is_owner for one in seats.clients) <= 1
        if seats.owner is not None:
            assert seats.writer is seats.owner


# -- offsets of the input --------------------------------------------------------------------------


def test_input_is_taken_once():
    inflow = Inflow()
    assert inflow.take(0, b"abc") == b"abc"
    assert inflow.take(0, b"abc") == b""
    assert inflow.take(1, b"bcde") == b"de"
    assert inflow.offset == 5
    with pytest.raises(BadDocument, match="from 5 to 6"):
        inflow.take(6, b"g")
    assert inflow.offset == 5


def test_the_end_of_input_is_told_once():
    inflow = Inflow()
    inflow.take(0, b"abc")
    with pytest.raises(BadDocument, match="missing before its end"):
        inflow.end(4)
    assert inflow.end(2) is False  # from before what followed it
    assert inflow.end(3) is True
    assert inflow.end(3) is False
    assert inflow.take(0, b"abc") == b""
    assert inflow.ended
    assert inflow.take(3, b"d") == b"d"
    assert not inflow.ended
    assert inflow.end(3) is False
    assert inflow.end(4) is True


class Line:
    """A connection that loses whatever is on its way when it is cut."""

    def __init__(self, source, inflow, taken):
        self.source, self.inflow, self.taken = source, inflow, taken
        self.up, self.down = bytearray(), []
        source.resume(inflow.offset)

    def send(self):
        self.up += self.source.frames(7)

    def arrive(self, count):
        """The next `count` bytes reach the supervisor, which takes whole frames."""
        self.buffer = getattr(self, "buffer", framing.FrameBuffer())
        self.buffer.feed(bytes(self.up[:count]))
        del self.up[:count]
        while (frame := self.buffer.take()) is not None:
            if frame.kind == framing.STDIN:
                self.taken += self.inflow.take(*framing.decode_stdin(frame.payload))
            else:
                assert frame.kind == framing.STDIN_EOF
                self.inflow.end(framing.decode_stdin_eof(frame.payload))
            self.down.append(self.inflow.offset)

    def confirm(self):
        if self.down:
            self.source.confirm(self.down.pop(0))


moves = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=30),
        st.integers(1, 60),
        st.sampled_from(["cut", "confirm", "send"]),
    ),
    max_size=60,
)


@given(moves)
def test_input_is_lossless_over_any_cuts(story):
    """Whatever is cut wherever: at the end the step has exactly what was given, and knows the end."""
    source, inflow, taken, given_ = Unconfirmed(), Inflow(), bytearray(), bytearray()
    line = Line(source, inflow, taken)
    for move in story:
        if isinstance(move, bytes):
            source.push(move)
            given_ += move
            line.send()
        elif isinstance(move, int):
            line.arrive(move)
        elif move == "cut":
            line = Line(source, inflow, taken)
        elif move == "confirm":
            line.confirm()
        else:
            line.send()
        assert given_.startswith(taken)
        assert source.confirmed <= inflow.offset == len(taken)
    source.finish()
    line = Line(source, inflow, taken)
    line.send()
    line.arrive(1 << 20)
    assert (taken, inflow.ended) == (given_, True)


def test_a_giver_keeps_within_its_window():
    source = Unconfirmed()
    source.resume(0)
    source.push(b"x" * (3 * framing.STDIN_WINDOW))
    source.finish()
    sent = 0
    for step in range(3):
        buffer = framing.FrameBuffer(source.frames())
        while (frame := buffer.take()) is not None:
            if frame.kind == framing.STDIN_EOF:
                assert step == 2
                break
            offset, data = framing.decode_stdin(frame.payload)
            assert offset == sent
            sent += len(data)
        assert sent == (step + 1) * framing.STDIN_WINDOW
        assert source.frames() == b""
        source.confirm(sent)
    assert source.frames() == b""


def test_input_that_was_kept_for_later_begins_where_it_is_told_to():
    source = Unconfirmed()
    source.push(b"typed before")
    source.resume(40)
    buffer = framing.FrameBuffer(source.frames())
    assert framing.decode_stdin(buffer.take().payload) == (40, b"typed before")


# -- terminals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "done"),
    [
        # (time, clients) or a time at which the clock is looked at.
        ([(0, 0), 9.9], []),
        ([(0, 0), 10.0], [HANG_UP]),
        ([(0, 0), 10.0, 10.0, 14.9], [HANG_UP]),
        ([(0, 0), 10.0, 15.0, 99.0], [HANG_UP, KILL]),
        ([(0, 1), 99.0], []),
        ([(0, 0), (9, 1), 99.0], []),
        ([(0, 0), (9, 1), (20, 0), 29.0], []),
        ([(0, 0), (9, 1), (20, 0), 30.0], [HANG_UP]),
        ([(0, 0), (5, 0), 10.0], [HANG_UP]),  # one more that leaves does not prolong it
        ([(0, 2), (1, 1), 99.0], []),
        ([(0, 0), 10.0, (11, 1), 15.0], [HANG_UP, KILL]),  # too late
    ],
)
def test_a_terminal_without_a_client_is_hung_up(story, done):
    watch, seen = Detachment(10.0), []
    for move in story:
        if isinstance(move, tuple):
            watch.clients(move[1], float(move[0]))
        else:
            seen += filter(None, [watch.tick(move)])
    assert seen == done
    if done == [HANG_UP]:
        assert watch.deadline is not None
    watch.ended()
    assert watch.deadline is None
    watch.clients(0, 500.0)
    assert (watch.deadline, watch.tick(1000.0)) == (None, "")


def test_a_terminal_may_be_hung_up_at_once():
    watch = Detachment(0.0)
    watch.clients(0, 7.0)
    assert watch.tick(7.0) == HANG_UP
    assert watch.deadline == 7.0 + KILL_PAUSE


def test_the_end_of_input_is_told_while_nothing_is_unread():
    end = EndOfInput()
    assert end.tick(0.0, False) is False
    end.begin(5.0)
    assert end.tick(5.0, False) is True
    assert end.deadline == pytest.approx(5.05)
    assert end.tick(5.01, False) is False  # not yet
    assert end.tick(5.05, True) is False  # it has not been read yet
    assert end.deadline == pytest.approx(5.15)
    assert end.tick(5.15, False) is True
    now, pauses = 5.15, []
    for _ in range(6):
        pauses.append(end.deadline - now)
        now = end.deadline
        end.tick(now, False)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0, 1.0])
    end.cancel()
    assert (end.deadline, end.tick(99.0, False)) == (None, False)
