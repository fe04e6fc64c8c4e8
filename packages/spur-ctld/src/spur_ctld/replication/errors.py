"""How a proposed command can end other than with a result.

`NotLeader`, `Dropped`: certainly not executed, safe to repeat.  `Overloaded`, `TooLarge`: not executed.
`Unknown`: may have been executed; repeat with the same request id.
"""

from spur_core.errors import BusyError, RequestError, StateError


class NotLeader(BusyError):
    """Another member leads, or nobody does.  `hint`: the leader's id when known."""

    code = "not_leader"

    def __init__(self, hint: int | None = None) -> None:
        super().__init__("no controller leads yet" if hint is None else f"controller {hint} leads")
        self.hint = hint


class Dropped(BusyError):
    """The command did not enter the log."""

    code = "dropped"


class Overloaded(BusyError):
    """Too much waits to be committed, or the disk is nearly full; nothing was queued."""

    code = "overloaded"


class TooLarge(RequestError):
    """The command exceeds the size limit."""

    code = "too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"command of {size} bytes exceeds the limit of {limit} bytes")
        self.size = size
        self.limit = limit


class Unknown(BusyError):
    """The deadline passed, or this member cannot tell any more."""

    code = "unknown_outcome"


class TooNew(StateError):
    """The log or a snapshot holds what only a newer release understands.

    Nothing of it was skipped: the newer release goes on where this one stopped.
    """

    code = "too_new"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: install the newer release on this host and start it again, nothing is lost"
        )


class CorruptLog(StateError):
    """The log holds something that no crash explains.  The text names file and byte offset."""

    code = "corrupt_log"


class BadSnapshot(StateError):
    """A snapshot file is torn or damaged.  The text names the file and what is wrong."""

    code = "bad_snapshot"
