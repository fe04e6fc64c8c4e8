"""Bytes that are no protocol at all, to every socket that listens."""

import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

GARBAGE = {
    "nothing": b"",
    "zeros": b"\0" * 4096,
    "ones": b"\xff" * 65536,
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
    "long": struct.pack("<I", 0xFFFFFFFF) + b"x" * 100,
    "over the limit": struct.pack("<I", (1 << 20) + 1) + b"{" * 4096,
    "not json": struct.pack("<I", 5) + b"{nope",
    "not utf-8": struct.pack("<I", 4) + b'"\xff\xfe"',
    "a list": struct.pack("<I", 2) + b"[]",
    "deep": struct.pack("<I", 200000) + b"[" * 200000,
    "nan": struct.pack("<I", 16) + b'{"v":NaN,"o":1e999}'[:16],
    "empty frame": struct.pack("<I", 0),
}


def documents() -> dict[str, bytes]:
    """JSON objects that are no request."""
    found: dict[str, Any] = {
        "no words": {},
        "odd types": {"op": 7, "rid": "x", "id": [], "v": {}},
        "huge number": {"op": "signal", "signal": 10**400, "rid": [10**30, -1, 0.5]},
        "odd op": {"op": "x" * 100000},
        "nested": {"op": {"op": {"op": None}}},
    }
    packed = {}
    for word, document in found.items():
        body = json.dumps(document).encode()
        packed[word] = struct.pack("<I", len(body)) + body
    return packed


def throw(family: int, address: Any, data: bytes) -> bytes:
    """Send it all, hang up half, take what comes until the other side closes or is silent."""
    with socket.socket(family) as sock:
        sock.settimeout(2)
        sock.connect(address)
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            got = b""
            while (part := sock.recv(65536)) and len(got) < 1 << 20:
                got += part
        except OSError:
            return b""
        return got


@pytest.mark.parametrize("word", GARBAGE)
def test_the_ports(target: Any, word: str) -> None:
    with target.responsive():
        for address in (target.controller, *target.agents.values()):
            host, _, port = address.rpartition(":")
            throw(socket.AF_INET, (host, int(port)), GARBAGE[word])


def test_silent_connections(target: Any) -> None:
    """Hundreds that say nothing keep nobody out."""
    host, _, port = target.controller.rpartition(":")
    held = [socket.create_connection((host, int(port))) for _ in range(300)]
    try:
        with target.responsive():
            target.works()
    finally:
        for sock in held:
            sock.close()


@pytest.mark.node
def test_the_sockets_of_a_node(target: Any, helpers: Any) -> None:
    """The supervisor's control socket and the agent's notify socket, thrown at by their own owner."""
    cluster = target.cluster
    job = cluster.sbatch("-o", "/dev/null", "--wrap", "exec sleep 600")
    cluster.wait(job, "RUNNING")
    sockets = list((cluster.folder / "state").rglob("*.sock"))
    assert {"notify.sock", "ctl.sock"} <= {path.name for path in sockets}
    with target.responsive():
        for path in sockets:
            for data in (*GARBAGE.values(), *documents().values()):
                directory = os.open(path.parent, os.O_RDONLY)
                throw(socket.AF_UNIX, f"/proc/self/fd/{directory}/{path.name}", data)
                os.close(directory)
    assert cluster.state(job) == "RUNNING"
    # The supervisor still takes orders, the agent still hears of ends.
    cluster.ok("scancel", job)
    cluster.wait(job, "CANCELLED")
    helpers.until(cluster.idle, "idle")
    target.works()


@pytest.mark.node
def test_many_attach_to_a_control_socket(target: Any) -> None:
    """A hundred that connect and say nothing do not keep the agent from its supervisor."""
    cluster = target.cluster
    job = cluster.sbatch("-o", "/dev/null", "--wrap", "exec sleep 600")
    cluster.wait(job, "RUNNING")
    path = next((cluster.folder / "state").rglob("ctl.sock"))
    directory = os.open(path.parent, os.O_RDONLY)
    held = []
    for _ in range(100):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"/proc/self/fd/{directory}/ctl.sock")
        held.append(sock)
    cluster.ok("scancel", job)
    cluster.wait(job, "CANCELLED")
    for sock in held:
        sock.close()
    os.close(directory)


def test_nothing_secret_is_shown(target: Any) -> None:
    """Neither in arguments, environments, logs nor in files that others may read."""
    key = target.key.decode()
    folder: Path = target.cluster.folder
    pids = [int(path.read_text()) for path in (folder / "run").glob("*.pid")]
    for pid in pids:
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{pid}/{name}").read_bytes()
            assert key.encode() not in text
            assert b"eyJ" not in text
    logs = target.logs()
    assert key not in logs
    assert "eyJ" not in logs
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o077:
            data = path.read_bytes()
            assert key.encode() not in data, path
            assert b"eyJ" not in data, path


def test_threads_of_garbage(target: Any) -> None:
    """Ten at once, while the cluster works."""
    host, _, port = target.controller.rpartition(":")

    def storm() -> None:
        for data in GARBAGE.values():
            throw(socket.AF_INET, (host, int(port)), data)

    threads = [threading.Thread(target=storm) for _ in range(10)]
    with target.responsive():
        for thread in threads:
            thread.start()
        target.works()
        for thread in threads:
            thread.join()
