"""Descriptors passed to another process over a Unix socket."""

from __future__ import annotations

import _socket
import array
import os

#: The most one message may carry here.
MAX_FDS = 16


def send(sock: int, data: bytes, fds: tuple[int, ...]) -> None:
    """Send `data` (not empty) with descriptors over the socket descriptor `sock`.

    Raises:
        OSError: the other side is gone.
    """
    assert data
    assert len(fds) <= MAX_FDS
    wrapped = _socket.socket(fileno=sock)
    try:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
        wrapped.sendmsg([data], rights)
    finally:
        wrapped.detach()


def receive(sock: int, limit: int = 4096) -> tuple[bytes, list[int]]:
    """The next data and the descriptors (close-on-exec) that came with it; b"" at the end.

    Raises:
        OSError: the connection broke.
        ValueError: more descriptors came than fit; none of them is kept open.
    """
    wrapped = _socket.socket(fileno=sock)
    fds = array.array("i")
    try:
        room = _socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
        data, controls, flags, _address = wrapped.recvmsg(limit, room, _socket.MSG_CMSG_CLOEXEC)
    finally:
        wrapped.detach()
    for level, kind, payload in controls:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if flags & _socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise ValueError("too many descriptors in one message")
    return data, list(fds)
