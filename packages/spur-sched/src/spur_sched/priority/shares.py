"""The border through which fair shares come: whoever keeps usage answers for users and accounts."""

from typing import Protocol


class FairShares(Protocol):
    """Fair shares as of one look at the usage.

    Attributes:
        version: another one means that factors may have changed.
    """

    @property
    def version(self) -> int: ...

    def factor(self, user: str, account: str) -> float:
        """For multifactor priorities: 0 to 1, the highest for who is next in turn."""
        ...

    def ratio(self, user: str, account: str) -> float:
        """For the simple formula: target by actual use, 1 = as it should be."""
        ...


class Neutral:
    """Nobody keeps usage: all are alike."""

    version = 0

    def factor(self, user: str, account: str) -> float:
        return 0.0

    def ratio(self, user: str, account: str) -> float:
        return 1.0
