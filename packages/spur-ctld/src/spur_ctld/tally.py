"""What one controller counts since it started, or since its counts were reset: calls and jobs.

Memory of this process: nothing of it is kept, and another leader begins with its own.
"""

from collections.abc import Callable, Sequence
from typing import Final

from spur_core.states import JobState
from spur_ctld.state.events import DispatchRequested, Event, JobEnded

#: Users that are told apart; whoever comes later is counted by method alone.
MOST_USERS: Final = 4096


class Calls:
    """Answered calls of one kind; seconds."""

    __slots__ = ("count", "last_secs", "most_secs", "total_secs", "uid")

    def __init__(self, uid: int = 0) -> None:
        self.uid = uid
        self.count = 0
        self.total_secs = 0.0
        self.most_secs = 0.0
        self.last_secs = 0.0

    def add(self, secs: float) -> None:
        """One more, that took so long."""
        self.count += 1
        self.total_secs += secs
        self.last_secs = secs
        self.most_secs = max(self.most_secs, secs)


class Tally:
    """The counts.  `since`: seconds since the epoch; `open`: calls that are under way now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.open = 0
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.since = self._clock()
        self.methods: dict[str, Calls] = {}
        self.users: dict[str, Calls] = {}
        self.submitted = 0
        self.started = 0
        self.completed = 0
        self.canceled = 0
        self.failed = 0

    def called(self, method: str, user: str, uid: int | None, secs: float) -> None:
        """A call was answered, or refused.

        Args:
            user: who called; "" = nobody that is known.
        """
        of_method = self.methods.get(method)
        if of_method is None:
            of_method = self.methods[method] = Calls()
        of_method.add(secs)
        if not user:
            return
        of_user = self.users.get(user)
        if of_user is None:
            if len(self.users) >= MOST_USERS:
                return
            of_user = self.users[user] = Calls()
        if uid is not None:
            of_user.uid = uid
        of_user.add(secs)

    def on_events(self, events: Sequence[Event]) -> None:
        """Follow the state."""
        for event in events:
            if isinstance(event, DispatchRequested):
                self.started += 1
            elif isinstance(event, JobEnded):
                if event.state is JobState.COMPLETED:
                    self.completed += 1
                elif event.state is JobState.CANCELLED:
                    self.canceled += 1
                else:
                    self.failed += 1
