"""The socket under `h2_unary`: connect, send, wait for the answer."""

import socket
import time

from spur_cli import cli_errors
from spur_cli.h2_unary import Broken, Exchange, Unfamiliar

__all__ = ["Unfamiliar", "answers", "call"]

CONNECT_SECS = 2.0
#: With another controller to go to.  Connecting may take so long, and the first word of the other side, and
#: its answer to the question whether it is there, which is asked after so long a silence.
QUICK_SECS = 1.0
CODE_KEY, LEADER_KEY = "x-spur-code", "x-spur-leader"


class _Silent(Exception):
    """The other side does not even say that it is there."""


def call(
    address: str,
    path: str,
    message: bytes,
    metadata: tuple[tuple[str, str], ...],
    timeout: float,
    *,
    quick: bool = False,
) -> tuple[bytes, dict[str, str]]:
    """(answer, its metadata) of one unary call to `host:port`.

    Args:
        quick: give up soon on a side that accepts the connection but says nothing: a stopped process, a
            closed way.

    Raises:
        CallFailed: nobody listens, the connection broke, or the call was refused.
        Unfamiliar: the server speaks more of HTTP/2 than this client; use grpcio.
    """
    deadline = time.monotonic() + timeout
    with _connect(address, min(QUICK_SECS if quick else CONNECT_SECS, timeout)) as connection:
        exchange = Exchange(address, path, message, metadata, timeout)
        try:
            while not exchange.done:
                _turn(connection, exchange, deadline, quick)
            status, details = exchange.status()
        except TimeoutError:
            raise cli_errors.translate("DEADLINE_EXCEEDED", "", "") from None
        except (OSError, Broken, _Silent):
            failure = cli_errors.unreachable()
            failure.lost = True
            raise failure from None
    if status == "CANCELLED":
        # Not by this side: the server stopped with the call under way.
        failure = cli_errors.unreachable()
        failure.lost = True
        raise failure
    if status != "OK":
        failure = cli_errors.translate(status, exchange.trailers.get(CODE_KEY, ""), details)
        failure.leader = exchange.trailers.get(LEADER_KEY, "")
        raise failure
    return exchange.body, exchange.trailers


def answers(address: str, timeout: float) -> bool:
    """Whether a server of HTTP/2 says its first word to a new connection within `timeout` seconds."""
    try:
        with _connect(address, timeout) as connection:
            connection.settimeout(timeout)
            return bool(connection.recv(1))
    except (OSError, cli_errors.CallFailed):
        return False


def _connect(address: str, timeout: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout)
    except (OSError, ValueError):
        raise cli_errors.unreachable() from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _turn(connection: socket.socket, exchange: Exchange, deadline: float, quick: bool) -> None:
    """Send what is to be sent, then take what comes.

    Raises:
        TimeoutError: the deadline has passed.
        _Silent: the other side is not there any more.
    """
    wait = _left(deadline, quick)
    connection.settimeout(wait)
    try:
        if out := exchange.to_send():
            # Commands die of SIGPIPE when their reader goes away; the network is not their reader.
            connection.sendall(out, socket.MSG_NOSIGNAL)
        wait = _left(deadline, quick)
        connection.settimeout(wait)
        exchange.receive(connection.recv(1 << 18))
    except TimeoutError:
        if time.monotonic() >= deadline:
            raise
        if not exchange.ask():
            raise _Silent from None


def _left(deadline: float, quick: bool) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return min(left, QUICK_SECS) if quick else left
