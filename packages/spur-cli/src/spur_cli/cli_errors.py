"""The one place that turns a failed call into what a user reads.

`CallFailed` carries gRPC's status by name, the stable code of `x-spur-code` and the sentence; nothing here
imports gRPC, so another client can raise the same.
"""

from spur_core.errors import BusyError

CONNECT_FAILURE = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
#: Codes of a controller that does not lead or has just ceased to; the request may be made again.
LEADERLESS = ("not_leader", "no_leader", "leader_lost", "dropped", "unknown_outcome", "stopping")
INTERNAL = "Slurm internal error, contact system administrator"


class CallFailed(BusyError):
    """A call to the controller, the accounting service or an agent did not succeed.

    status: the name of gRPC's status, "UNAVAILABLE" also when nobody could be reached.
    code: the stable word of our error family, "" when the other side gave none.
    text: the sentence to print.
    """

    def __init__(self, status: str, code: str, text: str, *, reached: bool = True) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        #: False when no controller answered.
        self.reached = reached
        #: A connection stood, so the request may have been carried out although no answer came.
        self.lost = False
        #: Who leads, `host:port`, by the word of a controller that does not; "" = not said.
        self.leader = ""
        #: Other controllers have been asked as long as the caller is ready to wait.
        self.final = False

    @property
    def elsewhere(self) -> bool:
        """Whether another controller may answer, or this one soon: it was not reached, or does not lead."""
        if self.status != "UNAVAILABLE":
            return False
        return not self.reached or bool(self.leader) or self.code in LEADERLESS

    @property
    def busy(self) -> bool:
        """Whether asking again can help."""
        return self.status in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED")


def unreachable() -> CallFailed:
    """No controller could be contacted."""
    return CallFailed("UNAVAILABLE", "unreachable", CONNECT_FAILURE, reached=False)


def translate(status: str, code: str, details: str) -> CallFailed:
    """The failure for a status, the peer's code and its details."""
    first = details.strip().splitlines()[0] if details.strip() else ""
    if status == "UNAVAILABLE":
        # Without a code the words are the transport's own ("failed to connect to ..."), not an answer.
        return CallFailed(status, code, first, reached=True) if code and first else unreachable()
    if status == "DEADLINE_EXCEEDED":
        return CallFailed(status, code, TIMED_OUT)
    if status == "UNIMPLEMENTED":
        return CallFailed(status, code, "Requested operation not supported on this system")
    if status == "UNAUTHENTICATED":
        text = "Protocol authentication error"
        return CallFailed(status, code, f"{text}: {first}" if first else text)
    if status == "PERMISSION_DENIED":
        return CallFailed(status, code, first or "Access/permission denied")
    if status == "CANCELLED":
        return CallFailed(status, code, "Zero Bytes were transmitted or received")
    if status in ("INTERNAL", "UNKNOWN", "DATA_LOSS"):
        return CallFailed(status, code, first if code and first else INTERNAL)
    return CallFailed(status, code, first or INTERNAL)


def is_no_such_job(failure: CallFailed) -> bool:
    """Whether the controller does not know the job."""
    return failure.code == "no_such_job"
