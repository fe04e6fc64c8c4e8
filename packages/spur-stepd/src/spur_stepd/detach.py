"""Becoming nobody's child: own session, own group, no terminal, no descriptors of whoever started us."""

from __future__ import annotations

import os


def detach() -> None:
    """In the grandchild: everything between the second fork and the program itself.

    Standard output is left alone: the caller may still have to write a record there.
    """
    os.setsid()
    os.umask(0o077)
    os.chdir("/")


def std_streams(log: str | None) -> None:
    """Standard input from nowhere, output and errors into the log, `/dev/null` where that is impossible."""
    null = os.open("/dev/null", os.O_RDWR)
    sink = null
    if log is not None:
        try:
            sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        except OSError:
            sink = null
    for target, fd in ((0, null), (1, sink), (2, sink)):
        os.dup2(fd, target, inheritable=True)
    for fd in {null, sink}:
        if fd > 2:
            os.close(fd)
