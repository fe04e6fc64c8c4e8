"""What proves, over restarts, that this agent is the one that has its node's name.

One private file in the runtime directory holds a random secret, made and fsynced before the first
registration, and the token that the controller gave last.  The secret is in every token of this node: a
second agent with the same name does not know it and is refused while the node is not down.  Made before
anything is sent, it survives an agent that is killed before it has the answer.
"""

import json
import logging
import os
import secrets
from typing import Final

from spur_agent.logs import value
from spur_core.errors import StateError
from spur_core.linux import fsync

log = logging.getLogger(__name__)

FILE_NAME: Final = "node.json"
_SECRET_BYTES: Final = 16
_MOST_BYTES: Final = 65536


class NodeProof:
    """The secret and the last token of one node name.

    Args:
        folder: the agent's private runtime directory.
        node: the node's name; an agent that gets another name is another node's.
    """

    def __init__(self, folder: str, node: str) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._node = node
        self.holder = ""
        self.token = ""

    def load(self) -> "NodeProof":
        """Read the file, or make it.

        Without a place to keep it there is no secret: what is not known after a restart must not be asked for
        then.  The node's name is then held by whoever knows the cluster key.

        Raises:
            StateError: there is something in its place that cannot be read.
        """
        try:
            found = self._read()
        except OSError as error:
            raise StateError(f"{self._path}: {error.strerror}") from None
        if found is not None:
            self.holder, self.token = found
            return self
        self.holder = secrets.token_hex(_SECRET_BYTES)
        try:
            self._write()
        except OSError as error:
            self.holder = ""
            log.error("node_proof_not_kept path=%s error=%s", value(self._path), value(error))
        return self

    def keep(self, token: str) -> None:
        """Remember the token that the controller gave; not being able to costs nothing but a log line."""
        self.token = token
        try:
            self._write()
        except OSError as error:
            log.warning("token_not_kept path=%s error=%s", value(self._path), value(error))

    def _read(self) -> tuple[str, str] | None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:
            data = file.read(_MOST_BYTES)
        try:
            found = json.loads(data)
            node, holder, token = found["node"], found["holder"], found["token"]
        except (ValueError, KeyError, TypeError):
            log.error("node_proof_unreadable path=%s", value(self._path))
            return None
        if not (isinstance(holder, str) and holder and isinstance(token, str)) or node != self._node:
            log.warning("node_proof_of_another path=%s node=%s", value(self._path), value(node))
            return None
        return holder, token

    def _write(self) -> None:
        record = {"node": self._node, "holder": self.holder, "token": self.token}
        fsync.write_whole(self._path, json.dumps(record).encode())
