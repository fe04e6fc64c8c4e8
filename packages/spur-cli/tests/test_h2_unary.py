"""The small HTTP/2 client against a real gRPC server, and against bytes that no good server sends."""

import concurrent.futures
import select
import socket
import struct
import subprocess
import sys

import grpc
import pytest

from spur_cli import h2_call
from spur_cli.cli_errors import CONNECT_FAILURE, TIMED_OUT, CallFailed
from spur_cli.h2_unary import Broken, Exchange, Unfamiliar

META = (("authorization", "Bearer x"),)


@pytest.fixture
def server():
    """Echoes; `/t.S/Refuse` fails with a text that needs escaping, `/t.S/Slow` never answers in time."""
    seen = []

    def echo(request, context):
        seen.append((request, dict(context.invocation_metadata())))
        return request

    def refuse(_request, context):
        context.set_trailing_metadata((("x-spur-code", "no_such_job"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "100% Größe\nweg")

    def slow(request, context):
        gate.wait(20)
        return request

    import threading

    gate = threading.Event()
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(call)
        for name, call in (("Echo", echo), ("Refuse", refuse), ("Slow", slow))
    }
    running = grpc.server(
        concurrent.futures.ThreadPoolExecutor(2),
        options=[("grpc.max_receive_message_length", 32 << 20), ("grpc.max_send_message_length", 32 << 20)],
    )
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", handlers),))
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    yield f"127.0.0.1:{port}", seen
    gate.set()
    running.stop(None).wait()


@pytest.mark.parametrize("size", [0, 1, 16_383, 65_536, 300_000, 9_000_000])
def test_any_size_goes_both_ways(server, size):
    """More than a frame, more than a window, more than the first window in both directions."""
    address, seen = server
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert h2_call.call(address, "/t.S/Echo", message, META, 30)[0] == message
    request, metadata = seen[-1]
    assert request == message
    assert metadata["authorization"] == "Bearer x"


def test_a_long_credential_is_sent_whole(server):
    address, seen = server
    token = "Bearer " + "t" * 5000
    h2_call.call(address, "/t.S/Echo", b"", (("authorization", token),), 30)
    assert seen[-1][1]["authorization"] == token


def test_a_refusal_brings_status_text_and_code(server):
    address, _ = server
    with pytest.raises(CallFailed) as caught:
        h2_call.call(address, "/t.S/Refuse", b"", META, 30)
    assert (caught.value.status, caught.value.code) == ("NOT_FOUND", "no_such_job")
    assert caught.value.text == "100% Größe"


def test_an_unknown_method_and_a_late_answer(server):
    address, _ = server
    with pytest.raises(CallFailed) as caught:
        h2_call.call(address, "/t.S/Nope", b"", META, 30)
    assert caught.value.status == "UNIMPLEMENTED"
    with pytest.raises(CallFailed, match=TIMED_OUT):
        h2_call.call(address, "/t.S/Slow", b"", META, 0.2)


def test_nobody_listens():
    with pytest.raises(CallFailed, match="connect failure") as caught:
        h2_call.call("127.0.0.1:1", "/t.S/Echo", b"", META, 5)
    assert caught.value.text == CONNECT_FAILURE
    assert not caught.value.reached


def test_a_server_that_dies_while_we_send_is_a_failed_call_even_where_sigpipe_kills():
    """Commands end silently when their reader goes away (`squeue | head`); a controller is no reader."""
    program = """
import signal, sys
from spur_cli import h2_call
from spur_cli.cli_errors import CallFailed
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    h2_call.call(sys.argv[1], "/t.S/Echo", bytes(8 << 20), (), 30)
except CallFailed as failure:
    print("lost", failure.lost)
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        client = subprocess.Popen(
            [sys.executable, "-c", program, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = listener.accept()
        taken = 0
        while taken < 65_535 or select.select([connection], [], [], 0.3)[0]:
            taken += len(connection.recv(1 << 16))
        # In one packet: ready to take it all, and gone.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        window = struct.pack(">L", 1 << 28)
        settings = struct.pack(">HL", 4, 1 << 28)
        connection.sendall(frame(4, 0, 0, settings) + frame(8, 0, 0, window) + frame(8, 0, 1, window))
        connection.close()
        out, err = client.communicate(timeout=30)
    assert (client.returncode, out) == (0, "lost True\n"), err


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">HBBBL", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def exchange() -> Exchange:
    return Exchange("h:1", "/p", b"m", (), 5)


def test_fragments_pings_padding_and_continuations():
    """The answer cut into single bytes, with everything around it that the protocol allows."""
    block = b"\x88" + b"\x00\x0bgrpc-status\x010"
    answer = (
        frame(4, 0, 0, struct.pack(">HL", 4, 10))
        + frame(6, 0, 0, b"12345678")
        + frame(1, 0x8, 1, b"\x02" + block[:3] + b"\0\0")
        + frame(9, 0x4, 1, block[3:])
        + frame(0, 0x9, 1, b"\x01" + b"\0\0\0\0\x02ok" + b"\0")
    )
    one = exchange()
    one.to_send()
    for at in range(len(answer)):
        one.receive(answer[at : at + 1])
    assert one.done
    assert (one.status(), one.body) == (("OK", ""), b"ok")
    sent = one.to_send()
    assert frame(6, 1, 0, b"12345678") in sent
    assert frame(4, 1, 0, b"") in sent


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Broken),
        (frame(3, 0, 1, struct.pack(">L", 8)), Broken),
        (frame(7, 0, 0, struct.pack(">LL", 0, 2)), Broken),
        (frame(1, 5, 1, b"\x00\x84abcd\x00"), Unfamiliar),
        (frame(1, 5, 1, b"\xff\x20"), Unfamiliar),
    ],
)
def test_what_ends_or_exceeds_it(data, error):
    with pytest.raises(error):
        exchange().receive(data)


def test_an_answer_that_is_not_grpcs():
    one = exchange()
    one.receive(frame(1, 5, 1, b"\x8d"))
    with pytest.raises(Broken, match="HTTP status 404"):
        one.status()
