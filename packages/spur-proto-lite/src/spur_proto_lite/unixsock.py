"""Unix sockets at paths of any length.

A socket address holds 107 bytes.  Both ends therefore open the directory and name the socket through
`/proc/self/fd/N/`, so a long state directory works.

Everything here deals in descriptors (close-on-exec), so that the supervisor need not import `socket`;
wrap one with `socket.socket(fileno=fd)` where a socket object is wanted.
"""

from __future__ import annotations

import _socket
import os
import struct

from spur_core.errors import Unreachable

_UCRED = struct.Struct("3i")


def _open_dir(path: str) -> int:
    return os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _through(directory: int, name: str) -> str:
    return f"/proc/self/fd/{directory}/{name}"


def connect(path: str, timeout: float | None = None) -> int:
    """A blocking descriptor connected to the socket at `path`; `timeout` seconds for the connecting.

    Raises:
        Unreachable: nobody listens there, or the socket is not there.
    """
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        directory = _open_dir(path)
        try:
            sock.connect(_through(directory, os.path.basename(path)))
        finally:
            os.close(directory)
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise Unreachable(f"{path}: {error.strerror or error}") from error
    return sock.detach()


def bind(path: str, mode: int = 0o600, backlog: int = 64) -> int:
    """A descriptor that listens at `path`.

    It is made under a temporary name and renamed, so nobody meets a half-made one and a stale one is
    replaced.  The caller must hold whatever makes it the only owner of the name.

    Raises:
        OSError: the directory is missing or may not be written.
    """
    name = os.path.basename(path)
    temporary = f".new-{name}"
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        directory = _open_dir(path)
        try:
            try:
                os.unlink(temporary, dir_fd=directory)
            except FileNotFoundError:
                pass
            sock.bind(_through(directory, temporary))
            os.chmod(_through(directory, temporary), mode)
            sock.listen(backlog)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            os.close(directory)
    except OSError:
        sock.close()
        raise
    return sock.detach()


def peer(fd: int) -> tuple[int, int, int]:
    """(pid, uid, gid) of the other end, as the kernel recorded them when it connected."""
    sock = _socket.socket(fileno=fd)
    try:
        raw = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _UCRED.size)
    finally:
        sock.detach()
    pid, uid, gid = _UCRED.unpack(raw)
    return pid, uid, gid
