"""The kinds of token, and what a checked token says.

Each kind has an audience and a signing key of its own (decision 0002), so a token of one kind is worth
nothing where another is expected.
"""

from collections import namedtuple
from typing import TYPE_CHECKING, Final

from spur_core.ids import RuntimeId

#: A person (or a program acting for one) who calls the controller or an agent.
USER: Final = "user"
#: An agent that calls the controller.
NODE: Final = "node"
#: The controller that calls an agent or another controller.
CONTROLLER: Final = "controller"
#: Not a caller: a signed statement of what one node shall run.
LAUNCH: Final = "launch"
#: The kind of an identity without any token.  No token can claim it.
ANONYMOUS: Final = "anonymous"

#: Every kind that a token can have.
TOKEN_KINDS: Final = (USER, NODE, CONTROLLER, LAUNCH)
#: The kinds that name a caller.
CALLER_KINDS: Final = (USER, NODE, CONTROLLER)

#: The one algorithm; a token that names another is refused whatever its signature.
ALGORITHM: Final = "HS256"
#: Clocks of two hosts may differ by this many seconds.
LEEWAY_SECS: Final = 60
#: Life of a node token; agents renew at half of it.
NODE_TTL_SECS: Final = 7 * 86400
#: Life of the controller's token towards agents; minted per connection.
CONTROLLER_TTL_SECS: Final = 300
#: Life of a launch statement; a launch that takes longer is signed again.
LAUNCH_TTL_SECS: Final = 300
#: Characters of a holder's secret; longer ones are none of ours.
MAX_HOLDER_CHARS: Final = 128
#: The subject of every controller token.
CONTROLLER_SUBJECT: Final = "spurctld"

if TYPE_CHECKING:
    from typing import NamedTuple

    class _Identity(NamedTuple):
        kind: str
        name: str
        uid: int | None
        verified: bool
        holder: str = ""

    class _LaunchStatement(NamedTuple):
        rid: RuntimeId
        uid: int
        gid: int
        spec_digest: str
        node: str
else:  # typing costs more start-up time than this whole module
    _Identity = namedtuple("_Identity", ("kind", "name", "uid", "verified", "holder"), defaults=("",))
    _LaunchStatement = namedtuple("_LaunchStatement", ("rid", "uid", "gid", "spec_digest", "node"))


class Identity(_Identity):
    """Who calls.

    kind: one of `CALLER_KINDS`, or `ANONYMOUS`.
    name: user or node name; empty for a caller that says nothing.
    uid: the uid in a user's token; None when not known.  The controller looks uid and gid up itself.
    verified: True only when a signature was checked.
    holder: of a node: what the agent that has the node's name at present knows, and no other; else empty.
    """

    __slots__ = ()


class LaunchStatement(_LaunchStatement):
    """What the controller signed for one node: run `rid` as uid:gid from exactly this spec.

    spec_digest: lower-case hex SHA-256 of the serialized launch spec.
    """

    __slots__ = ()


#: A caller without a token.
NOBODY: Final = Identity(ANONYMOUS, "", None, False)


def asserted_user(name: str, uid: int | None = None) -> Identity:
    """The user that an unauthenticated caller says it is; believed only where the mode allows it."""
    return Identity(USER, name, uid, False)


def audience(kind: str) -> str:
    """The audience of a kind: `spur:user` and so on."""
    return f"spur:{kind}"
