"""Messages and frames over streams that cut anywhere; sockets at long paths; spool segments."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import Unreachable
from spur_core.ids import RuntimeId
from spur_proto_lite import framing, spool, unixsock
from spur_proto_lite.errors import BadDocument
from spur_proto_lite.paths import SessionPaths, StatePaths, resolve_state_dir

documents = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)), max_size=4)


@given(documents, st.integers(1, 7))
def test_messages_survive_any_cutting(sent, piece):
    stream = b"".join(framing.encode_message(document) for document in sent)
    buffer, taken = framing.MessageBuffer(), []
    for at in range(0, len(stream), piece):
        buffer.feed(stream[at : at + piece])
        while (message := buffer.take()) is not None:
            taken.append(message)
    assert taken == sent
    assert buffer.rest() == b""


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=9)), max_size=4), st.integers(1, 7))
def test_frames_survive_any_cutting(sent, piece):
    stream = b"".join(framing.encode_frame(kind, payload) for kind, payload in sent)
    buffer, taken = framing.FrameBuffer(stream[:3]), []
    for at in range(3, len(stream), piece):
        buffer.feed(stream[at : at + piece])
        while (frame := buffer.take()) is not None:
            taken.append(tuple(frame))
    if not stream[3:]:
        while (frame := buffer.take()) is not None:
            taken.append(tuple(frame))
    assert taken == sent


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\1\0\0\0{", b"\2\0\0\0[]", b"\1\0\0\0\xff"])
def test_bad_messages_are_refused(data):
    buffer = framing.MessageBuffer()
    buffer.feed(data)
    with pytest.raises(BadDocument):
        buffer.take()


def test_limits():
    with pytest.raises(BadDocument, match="limit"):
        framing.encode_message({"a": "x" * framing.MESSAGE_LIMIT})
    buffer = framing.FrameBuffer(b"\1\xff\xff\xff\xff")
    with pytest.raises(BadDocument, match="limit"):
        buffer.take()


def test_payloads():
    frame = framing.FrameBuffer(framing.encode_data(framing.DATA_ERR, 3, 2**40, b"xyz")).take()
    assert frame.kind == framing.DATA_ERR
    assert framing.decode_data(frame.payload) == (3, 2**40, b"xyz")
    frame = framing.FrameBuffer(framing.encode_credit(framing.DATA_OUT, 3, 9)).take()
    assert framing.decode_credit(frame.payload) == (framing.DATA_OUT, 3, 9)
    frame = framing.FrameBuffer(framing.encode_signal(15)).take()
    assert framing.decode_signal(frame.payload) == 15
    for decode in (framing.decode_data, framing.decode_credit, framing.decode_signal):
        with pytest.raises(BadDocument):
            decode(b"abc")


def test_sockets_at_paths_over_107_bytes(tmp_path):
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    path = str(deep / "ctl.sock")
    with pytest.raises(Unreachable, match=r"ctl\.sock"):
        unixsock.connect(path)
    for _ in range(2):  # a stale one is replaced
        listener = socket.socket(fileno=unixsock.bind(path))
        assert os.stat(path).st_mode & 0o777 == 0o600
        client = unixsock.connect(path, 5.0)
        server, _address = listener.accept()
        assert unixsock.peer(server.fileno()) == (os.getpid(), os.getuid(), os.getgid())
        os.close(client)
        server.close()
        listener.close()
    assert os.listdir(deep) == ["ctl.sock"]


def test_paths_have_one_accessor_each():
    state = StatePaths("/s")
    session = state.session(RuntimeId(7, 1, 0))
    assert session.dir == "/s/runtime/sessions/7.1.0"
    assert session.rid == RuntimeId(7, 1, 0)
    assert StatePaths.of_session(session.dir).notify_sock == state.notify_sock == "/s/runtime/notify.sock"
    assert SessionPaths("/x/oops").rid_or_none is None


@pytest.mark.parametrize(
    ("flag", "environ", "configured", "found"),
    [
        ("/a", {"SPUR_STEPD_STATE_DIR": "/b"}, "/c", "/a"),
        (None, {"SPUR_STEPD_STATE_DIR": "/b"}, "/c", "/b"),
        (None, {}, "/c", "/c"),
        (None, {"SPUR_STEPD_STATE_DIR": ""}, None, "/var/spool/spur"),
    ],
)
def test_state_dir_resolution(flag, environ, configured, found):
    assert resolve_state_dir(flag, environ, configured) == found


@given(
    st.sampled_from([framing.DATA_OUT, framing.DATA_ERR]), st.integers(0, 2**32 - 1), st.integers(0, 2**60)
)
def test_segment_names_round_trip(stream, rank, start):
    segment = spool.Segment(stream, rank, start)
    assert spool.parse_segment(spool.segment_name(segment)) == segment


@pytest.mark.parametrize("name", ["journal", "out", "out.", "out.x", "out.1@", "out.1@x", "log.1", "out.-1"])
def test_other_files_are_no_segments(name):
    assert spool.parse_segment(name) is None


def test_reading_a_spool_across_segments(tmp_path):
    (tmp_path / "out.0").write_bytes(b"abc")
    (tmp_path / "out.0@3").write_bytes(b"defg")
    (tmp_path / "out.1").write_bytes(b"other")
    read = lambda offset: spool.read_from(str(tmp_path), framing.DATA_OUT, 0, offset)  # noqa: E731
    assert read(0) == (0, b"abc")
    assert read(2) == (2, b"c")
    assert read(3) == (3, b"defg")
    assert read(7) == (7, b"")
    (tmp_path / "out.0").unlink()
    assert read(0) == (3, b"defg")


def payload(encoded):
    return framing.FrameBuffer(encoded).take().payload


@given(st.integers(0, 2**60), st.binary(max_size=20))
def test_counted_input_round_trips(offset, data):
    assert framing.decode_stdin(payload(framing.encode_stdin(offset, data))) == (offset, data)
    assert framing.decode_stdin_eof(payload(framing.encode_stdin_eof(offset))) == offset
    credit = framing.decode_credit(payload(framing.encode_credit(framing.INPUT, 0, offset)))
    assert credit == (framing.INPUT, 0, offset)
    for writer in (True, False):
        assert framing.decode_writer(payload(framing.encode_writer(writer, offset))) == (writer, offset)


@given(st.integers(0, 65535), st.integers(0, 65535))
def test_sizes_of_terminals_round_trip(rows, cols):
    assert framing.decode_resize(payload(framing.encode_resize(rows, cols))) == (rows, cols)


#: Frames of protocol 2 as they are on the wire.
RECORDED = [
    (framing.encode_stdin(5, b"ab"), b"\x03\x0a\0\0\0\x05\0\0\0\0\0\0\0ab"),
    (framing.encode_stdin_eof(7), b"\x04\x08\0\0\0\x07\0\0\0\0\0\0\0"),
    (framing.encode_resize(24, 80), b"\x05\x04\0\0\0\x18\0\x50\0"),
    (framing.encode_signal(15), b"\x06\x04\0\0\0\x0f\0\0\0"),
    (framing.encode_credit(0, 0, 9), b"\x08\x0d\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0"),
    (framing.encode_writer(True, 3), b"\x09\x09\0\0\0\x01\x03\0\0\0\0\0\0\0"),
]


@pytest.mark.parametrize(("made", "recorded"), RECORDED)
def test_frames_are_what_they_were(made, recorded):
    assert made == recorded


@pytest.mark.parametrize(
    "decode",
    [framing.decode_stdin, framing.decode_stdin_eof, framing.decode_resize, framing.decode_writer],
)
def test_frames_that_are_too_short_are_refused(decode):
    with pytest.raises(BadDocument):
        decode(b"\0")


@pytest.mark.parametrize("number", [0, 65, 2**32 - 1])
def test_signals_that_do_not_exist_are_refused(number):
    with pytest.raises(BadDocument, match=str(number)):
        framing.decode_signal(payload(framing.encode_signal(number)))
