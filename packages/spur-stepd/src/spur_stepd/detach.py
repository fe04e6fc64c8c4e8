"""Becoming nobody's child: own session, own group, no terminal, no descriptors of whoever started us."""

from __future__ import annotations

import os

from spur_core.lean import signal

#: Signals whose disposition the supervisor, or Python for it, changes after `default_signals`.
CHANGED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


def detach() -> None:
    """In the grandchild: everything between the second fork and the program itself.

    Standard output is left alone: the caller may still have to write a record there.
    """
    os.setsid()
    os.umask(0o077)
    os.chdir("/")


def default_signals() -> None:
    """Default dispositions and an empty mask, whatever the starter had ignored or blocked.

    Broken pipes and files over their limit stay what Python makes of them, an error to be caught.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_signals() -> None:
    """In a child of a supervisor: default again for those that the supervisor, or Python for it, has changed
    since `default_signals`."""
    signal.set_wakeup_fd(-1)
    for number in CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


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
