"""The socket under `h2_unary`: connect, send, wait for the answer."""

import socket
import time

from spur_cli import cli_errors
from spur_cli.h2_unary import Broken, Exchange, Unfamiliar

__all__ = ["Unfamiliar", "call"]

CONNECT_SECS = 2.0
CODE_KEY = "x-spur-code"


def call(
    address: str, path: str, message: bytes, metadata: tuple[tuple[str, str], ...], timeout: float
) -> bytes:
    """The answer of one unary call to `host:port`.

    Raises:
        CallFailed: nobody listens, the connection broke, or the call was refused.
        Unfamiliar: the server speaks more of HTTP/2 than this client; use grpcio.
    """
    deadline = time.monotonic() + timeout
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), min(CONNECT_SECS, timeout))
    except (OSError, ValueError):
        raise cli_errors.unreachable() from None
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange = Exchange(address, path, message, metadata, timeout)
        try:
            while not exchange.done:
                if out := exchange.to_send():
                    connection.sendall(out)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise cli_errors.translate("DEADLINE_EXCEEDED", "", "")
                connection.settimeout(left)
                exchange.receive(connection.recv(1 << 18))
            status, details = exchange.status()
        except TimeoutError:
            raise cli_errors.translate("DEADLINE_EXCEEDED", "", "") from None
        except (OSError, Broken):
            failure = cli_errors.unreachable()
            failure.lost = True
            raise failure from None
    if status != "OK":
        raise cli_errors.translate(status, exchange.trailers.get(CODE_KEY, ""), details)
    return exchange.body
