"""Who is attached to a step, and which one of them gives it its input.  Pure.

There is one owner at most, and any number of watchers.  The owner gives the input; while there is none, or
it does not want to, the watcher that has asked first does.
"""

from __future__ import annotations

from spur_core.lean import namedtuple
from spur_proto_lite.control import OWNER

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from spur_stepd.server import Connection

    class Turn(NamedTuple):
        """A change of the giver of input; None = nobody."""

        lost: Client | None
        gained: Client | None
else:
    Turn = namedtuple("Turn", ("lost", "gained"))

#: Clients of protocol 1 that only look on.  They may give credit and send signals, as they always could.
LISTENER = "listener"


class Client:
    """One attached connection and what it wants."""

    def __init__(
        self,
        connection: Connection,
        mode: str,
        wants_input: bool,
        version: int = 2,
        offsets: dict[tuple[int, int], int] | None = None,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.connection = connection
        self.mode = mode
        self.wants_input = wants_input
        self.version = version
        #: (rank, stream) -> offset of the next byte to send; streams that are not named are not wanted.
        self.offsets = offsets or {}
        #: Rows and columns of its terminal, 0 = not known.
        self.window = window
        #: How far its input was confirmed to it.
        self.confirmed = 0
        #: How many ends of single tasks it has been told.
        self.told_ends = 0

    @property
    def is_owner(self) -> bool:
        return self.mode == OWNER

    @property
    def takes_for_good(self) -> bool:
        """Whether its credit lets output be dropped."""
        return self.is_owner or self.version < 2


class Seats:
    """The clients, in the order in which they came."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.writer: Client | None = None

    @property
    def owner(self) -> Client | None:
        return next((client for client in self.clients if client.is_owner), None)

    def join(self, client: Client) -> Client | None:
        """Take a seat; the owner that has to leave for it, which was removed already."""
        former = self.owner if client.is_owner else None
        if former is not None:
            self.leave(former)
        self.clients.append(client)
        return former

    def leave(self, client: Client) -> None:
        """Give a seat back; nothing happens without one."""
        if client in self.clients:
            self.clients.remove(client)

    def settle(self) -> Turn:
        """Decide anew who gives the input; to be called after every coming and going."""
        wanting = [client for client in self.clients if client.wants_input]
        wanting.sort(key=lambda client: not client.is_owner)  # stable: the first that asked comes first
        before, self.writer = self.writer, wanting[0] if wanting else None
        if before is self.writer:
            return Turn(None, None)
        return Turn(before, self.writer)
