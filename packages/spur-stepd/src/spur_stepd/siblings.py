"""Ending the other steps of the same attempt on this node, through their own supervisors.

They are found by the names of their sessions, torn down without grace, and asked until they have an exit
and are cleaned up.  Nothing here waits: all of it is a few non-blocking messages between two looks.
"""

from __future__ import annotations

import errno
import os

from spur_core.errors import GrammarError, SpurError
from spur_core.ids import RuntimeId
from spur_proto_lite import control, framing, unixsock
from spur_proto_lite.record import rid_to_json
from spur_proto_lite.versions import PROTOCOL_MIN
from spur_stepd.log import say
from spur_stepd.loop import READ

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_proto_lite.paths import StatePaths
    from spur_stepd.loop import Loop
    from spur_stepd.privileges import Privileges

#: States of a supervisor that will never run anything more.
_NEVER_STARTED = frozenset({"failed", "abandoned", "acknowledged"})
#: What connecting to a dead supervisor's socket, or to one that is gone, says.
_NOBODY = frozenset({errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR})


class Sibling:
    """One other step.  To be called within root sections, but for the loop's own calls."""

    def __init__(self, loop: Loop, path: str, rid: RuntimeId, reason: str) -> None:
        self.rid = rid
        self.is_over = False
        self._loop = loop
        self._path = path
        self._reason = reason
        self._fd = -1
        self._asked = False
        self._buffer = framing.MessageBuffer()

    def look(self) -> None:
        """Order the end if that has not been done, else ask how far it is."""
        if self.is_over:
            return
        try:
            if self._fd < 0:
                self._connect()
                order = {"grace": 0, "reason": self._reason, "requester": "the job's end"}
                self._send(control.TEARDOWN, order)
            elif not self._asked:
                self._asked = True
                self._send(control.QUERY, {})
        except SpurError as error:
            # A supervisor that died has no exit to wait for; what it has left behind is in the job's group.
            cause = error.__cause__
            self.is_over = isinstance(cause, OSError) and cause.errno in _NOBODY
        except OSError:
            self.close()

    def _connect(self) -> None:
        self._fd = unixsock.connect(self._path, 0.0)
        os.set_blocking(self._fd, False)
        self._buffer = framing.MessageBuffer()
        self._asked = False
        self._loop.watch(self._fd, READ, self._on_ready)

    def _send(self, op: str, args: dict[str, object]) -> None:
        request = {**args, "v": PROTOCOL_MIN, "id": 1, "op": op, "rid": rid_to_json(self.rid)}
        os.write(self._fd, framing.encode_message(request))

    def _on_ready(self, _events: int) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
            if not data:
                self.close()
                return
            self._buffer.feed(data)
            while (message := self._buffer.take()) is not None:
                self._take(message)
        except BlockingIOError:
            return
        except (OSError, SpurError) as error:
            say("sibling_lost", rid=self.rid, error=error)
            self.close()

    def _take(self, message: dict[str, object]) -> None:
        if message.get("ok") is not True:
            say("sibling_refused", rid=self.rid, error=message.get("error"), detail=message.get("detail"))
        elif "state" in message:
            self._asked = False
            if message.get("cleaned") is True or message["state"] in _NEVER_STARTED:
                self.is_over = True
                self.close()

    def gone(self) -> None:
        """Its session has been deleted."""
        self.is_over = True
        self.close()

    def close(self) -> None:
        """Drop the connection; the next look makes another."""
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1


class Siblings:
    """All other steps of one attempt, as often as one looks."""

    def __init__(
        self, loop: Loop, state: StatePaths, rid: RuntimeId, reason: str, privileges: Privileges
    ) -> None:
        """
        Args:
            rid: of this supervisor's own step.
            reason: of the teardown.
        """
        self._loop = loop
        self._state = state
        self._rid = rid
        self._reason = reason
        self._privileges = privileges
        self._known: dict[RuntimeId, Sibling] = {}

    def look(self) -> list[RuntimeId]:
        """Go on with each of them; those that are not over."""
        with self._privileges.root():
            there = self._sessions()
            for rid in there:
                path = self._state.session(rid).control
                self._known.setdefault(rid, Sibling(self._loop, path, rid, self._reason)).look()
            for rid in self._known.keys() - there:
                # The agent deletes a session only once it is over to the last.
                self._known[rid].gone()
        return [rid for rid, sibling in self._known.items() if not sibling.is_over]

    def _sessions(self) -> list[RuntimeId]:
        found = []
        try:
            names = os.listdir(self._state.sessions)
        except OSError as error:
            say("no_siblings", error=error)
            return []
        for name in names:
            try:
                rid = RuntimeId.from_dirname(name)
            except GrammarError:
                continue
            if rid != self._rid and rid[:2] == self._rid[:2]:
                found.append(rid)
        return found

    def close(self) -> None:
        """Give up whoever is left."""
        for sibling in self._known.values():
            sibling.close()
