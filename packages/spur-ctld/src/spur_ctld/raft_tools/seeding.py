"""`spurctld raft seed`: fill the lost directory of a member."""

from collections.abc import Callable

from spur_core.errors import StateError
from spur_ctld.raft_tools.place import Place

Say = Callable[[str], None]


def seed(place: Place, say: Say) -> None:
    """Refused: online seeding is not part of this release.

    Raises:
        StateError: names the procedure that replaces a lost directory.
    """
    del say
    raise StateError(
        f"{place.state_dir / 'raft'}: a lost directory cannot be filled while the group runs; stop all"
        " controllers, copy the `raft` directory of the one whose log is longest (`spurctld raft inspect`),"
        " run `spurctld raft reconfigure --copy-of N` on the copy, start all; see docs/replication.md"
    )
