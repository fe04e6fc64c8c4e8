"""What is said about agents that cannot be reached for a while.  Pure."""

#: A restart of an agent takes less; who would care?
QUIET_SECS = 3.0


class LinkNotices:
    """Which nodes are out of reach, and whether that was said.

    Args:
        what: what the caller is attached to, e.g. `StepId=7.0`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def lost(self, node: str, now: float) -> None:
        """The session with a node broke; it is being made anew."""
        self._since.setdefault(node, now)

    def over(self, node: str) -> None:
        """The session with a node is over."""
        self._since.pop(node, None)
        self._told.discard(node)

    def ready(self, node: str) -> str:
        """The session with a node stands; what there is to say, "" = nothing."""
        told = node in self._told
        self.over(node)
        return f"{node}: contact with {self._what} is back" if told else ""

    def due(self, now: float) -> list[str]:
        """Errors to tell now, each once a loss."""
        found = []
        for node, since in self._since.items():
            if node not in self._told and now - since >= QUIET_SECS:
                self._told.add(node)
                found.append(f"{node}: lost contact with {self._what}, retrying")
        return found
