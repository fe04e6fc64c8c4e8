"""The error family: sorted by who can fix it, each with a stable code.

`RequestError`: the caller can fix it.  `BusyError`: nobody did wrong, try again.
`StateError`: this program or its disk is broken; it refuses to go on.

Only the edge of a program (gRPC, REST, command line) knows about status and exit codes; everybody
else raises one of these with one line of text that names the thing and the mend.
"""


class SpurError(Exception):
    """Base of everything this project raises on purpose.

    Attributes:
        code: the stable word that clients may match on; never reworded.
    """

    code = "error"

    @property
    def text(self) -> str:
        """The one line a user sees."""
        return str(self)


class RequestError(SpurError):
    """The caller can fix it: a bad value, something unknown, something not allowed."""

    code = "bad_request"


class GrammarError(RequestError):
    """A value does not follow its grammar.  The text is complete and names the value."""

    code = "bad_value"


class NotFound(RequestError):
    """The named thing does not exist."""

    code = "not_found"


class NoSuchJob(NotFound):
    """No job has this id, or its record is gone."""

    code = "no_such_job"

    def __init__(self, what: object = "") -> None:
        super().__init__("Invalid job id specified")
        self.what = what


class AlreadyExists(RequestError):
    """The thing is there already, and not the same."""

    code = "already_exists"


class WrongState(RequestError):
    """The request is well formed but does not fit the thing's present state."""

    code = "wrong_state"


class AccessDenied(RequestError):
    """The caller may not do this."""

    code = "access_denied"

    def __init__(self, text: str = "Access/permission denied") -> None:
        super().__init__(text)


class Unauthenticated(RequestError):
    """The caller's credential is missing, expired, forged or of the wrong kind; the text says which."""

    code = "unauthenticated"


class Unsupported(RequestError):
    """Known to Slurm, refused by this release; never silently ignored."""

    code = "unsupported"


class IdentityMismatch(RequestError):
    """The request names another run than the one held here; nothing was done (rule R-ID-4)."""

    code = "identity_mismatch"

    def __init__(self, asked: object, held: object) -> None:
        super().__init__(f"identity mismatch: asked for {asked}, held is {held}")
        self.asked = asked
        self.held = held


class IllegalTransition(RequestError):
    """An event met a state in which it has no meaning; nothing was changed."""

    code = "illegal_transition"

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"{event} is not possible in state {state}")
        self.state = state
        self.event = event


class ConfigError(RequestError):
    """A configuration file cannot be used.

    Attributes:
        problems: every problem found, one line each, in file order.
    """

    code = "bad_config"

    def __init__(self, problems: "list[str] | str") -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))


class BusyError(SpurError):
    """Try again: no leader, a queue is full, a deadline passed."""

    code = "busy"


class Unreachable(BusyError):
    """The other side does not answer."""

    code = "unreachable"


class StateError(SpurError):
    """The program's own state is damaged or unusable; it refuses to go on."""

    code = "broken_state"
