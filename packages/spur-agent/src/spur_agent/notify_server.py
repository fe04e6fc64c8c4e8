"""`notify.sock`: where supervisors say that their step has ended."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from spur_agent.link import read_message
from spur_agent.logs import value
from spur_core.errors import Unreachable
from spur_proto_lite import framing, notify, unixsock
from spur_proto_lite.errors import BadDocument

log = logging.getLogger(__name__)


class NotifyServer:
    """Takes pushes and answers them.

    Args:
        path: of the socket; the caller holds the agent lock.
        take: the answer to one notification.
    """

    def __init__(self, path: str, take: Callable[[notify.Notification], str]) -> None:
        self._take = take
        self._sock = socket.socket(fileno=unixsock.bind(path))
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer; whoever connected before has been waiting."""
        self._sock.setblocking(False)
        self._server = await asyncio.start_unix_server(self._serve, sock=self._sock)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            sock = writer.get_extra_info("socket")
            _, uid, _ = unixsock.peer(sock.fileno())
            if uid not in (0, os.geteuid()):
                log.warning("notify_refused uid=%d", uid)
                return
            while True:
                said = notify.Notification.from_json(await read_message(reader))
                answer = self._take(said)
                log.debug("notified step=%s answer=%s", said.rid, answer)
                writer.write(framing.encode_message(notify.encode_answer(answer)))
                await writer.drain()
        except (Unreachable, OSError):
            pass  # it has said what it had to say
        except BadDocument as error:
            log.warning("notify_malformed error=%s", value(error))
        except asyncio.CancelledError:
            pass  # the agent stops; asyncio would report a cancelled connection as an error
        finally:
            writer.close()

    async def close(self) -> None:
        """Stop answering; the socket stays as a name until the next agent replaces it."""
        if self._server is not None:
            self._server.close()
        else:
            self._sock.close()
