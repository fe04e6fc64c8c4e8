"""The highest term of a controller that this node has heard of: whoever has a lower one leads no more.

Kept in a private file in the runtime directory and fsynced before anything is done by a new term, so that
an agent that was restarted refuses the orders of a deposed controller too.
"""

import json
import logging
import os
from typing import Final

from spur_agent.logs import value
from spur_core.errors import StateError, WrongState
from spur_core.linux import fsync

log = logging.getLogger(__name__)

FILE_NAME: Final = "term.json"
_MOST_BYTES: Final = 4096
#: The wire's numbers have 64 bits.
_MOST_TERM: Final = (1 << 64) - 1


class StaleTerm(WrongState):
    """An order of a controller that does not lead any more."""

    code = "stale_term"

    def __init__(self, term: int, highest: int) -> None:
        super().__init__(f"term {term} is over, the controller's term is {highest}")
        self.term = term
        self.highest = highest


class Terms:
    """The highest term seen; a deposed controller must not launch or kill.

    Args:
        folder: the agent's private runtime directory; "" = remembered in memory only.
    """

    def __init__(self, folder: str = "") -> None:
        self._path = f"{folder}/{FILE_NAME}" if folder else ""
        self._kept = 0
        self._doubted = 0
        self.highest = 0

    def load(self) -> "Terms":
        """Read the file.  A damaged one counts as none: a term is heard again with the registration.

        Raises:
            StateError: there is something in its place that cannot be read.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return self
        except OSError as error:
            raise StateError(f"{self._path}: {error.strerror}") from None
        try:
            found = json.loads(data)["term"]
        except (ValueError, KeyError, TypeError):
            found = None
        if type(found) is int and 0 <= found <= _MOST_TERM:
            self.highest = self._kept = found
        else:
            log.error("term_unreadable path=%s", value(self._path))
        return self

    def see(self, term: int) -> None:
        """A controller with that term has been accepted."""
        if 0 < term < self.highest and term != self._doubted:
            # An answer that was long on its way; or the controllers have lost their state.
            self._doubted = term
            text = f"if the controllers were set up anew remove {self._path} and restart spurd"
            log.warning("lower_term term=%d highest=%d hint=%s", term, self.highest, value(text))
        if term > self.highest:
            if self.highest:
                log.info("new_term term=%d before=%d", term, self.highest)
            self.highest = term
        if self.highest > self._kept:
            self._keep()

    def check(self, term: int) -> None:
        """Refuse a lower term, remember a higher one.

        Raises:
            StaleTerm: it is lower; nothing may be done.
        """
        if term < self.highest:
            raise StaleTerm(term, self.highest)
        self.see(term)

    def _keep(self) -> None:
        """Blocks until it is on the disk, once for each new leader.

        On a disk that takes nothing the term holds as long as this agent lives: to refuse the new leader's
        kills would be worse, and its launches fail there by themselves.
        """
        if not self._path:
            return
        try:
            fsync.write_whole(self._path, json.dumps({"term": self.highest}).encode())
        except OSError as error:
            log.error("term_not_kept path=%s error=%s", value(self._path), value(error))
        else:
            self._kept = self.highest
