"""`spurctld raft seed`: give a member whose directory was lost a new one while the group runs.

Nothing is copied here: the directory gets an empty log whose first frame says what the lost member may no
longer promise (`replication.seeding`), and once the controller runs, the leader fills it as it fills any
member that was away for long.
"""

import time
from collections.abc import Callable, Iterator

import grpc

from spur_core.config import group
from spur_core.errors import ConfigError, StateError
from spur_ctld import __version__
from spur_ctld.raft_tools.place import Place
from spur_ctld.replication import certs
from spur_ctld.replication.files import Files
from spur_ctld.replication.identity import Identity
from spur_ctld.replication.meta import Member, hash_members
from spur_ctld.replication.recovery import init_directory
from spur_ctld.replication.seeding import first_state
from spur_ctld.replication.tls import Tls, read_tls
from spur_ctld.state import versions
from spur_proto import raft_internal_pb2 as pb
from spur_proto.raft_internal_pb2_grpc import RaftInternalStub

Say = Callable[[str], None]
#: Seconds that another member may take to answer.
_SECS = 5.0
_STOP_ALL = (
    "or replace this one with all controllers stopped: copy the `raft` directory of the one whose log is"
    " longest and run `spurctld raft reconfigure --copy-of N` on the copy, see docs/replication.md"
)


def seed(place: Place, say: Say) -> None:
    """Make the new directory.  The lost controller's program must not run any more, anywhere.

    Raises:
        ConfigError: the group has one member.
        StateError: there is a directory already, it is another user's, or too few other members answer.
    """
    if place.alone:
        raise ConfigError(
            "[controller] peers: a single controller has nobody to be filled from;"
            " restore its state directory from a copy"
        )
    folder = place.state_dir / "raft"
    if (folder / "meta").exists():
        raise StateError(
            f"{folder}: is the directory of a controller; if its contents are lost, move it away first"
        )
    place.require_own()
    problems = certificate_problems(place)
    if problems:
        raise ConfigError(problems)
    cluster_id = place.cluster_id()
    assert cluster_id is not None
    terms: dict[int, int] = {}
    for member, told in ask(place, cluster_id, _SECS):
        if isinstance(told, str):
            say(f"controller {member.id} ({member.address}): does not answer: {told}")
        elif told.abstains:
            say(f"controller {member.id} ({member.address}): is being filled itself and does not count")
        else:
            terms[member.id] = told.term
    try:
        hard = first_state(place.member_id, [member.id for member in place.members], terms)
    except ValueError as error:
        raise StateError(f"{error}, {_STOP_ALL}") from None
    place.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    init_directory(place.state_dir, place.member_id, place.members, Files(), cluster_id, hard)
    say(
        f"{folder}: controller {place.member_id} of {len(place.members)}, term {hard.term};"
        " start it now, it is filled by the others and votes again when it is"
    )


def certificate_problems(place: Place) -> list[str]:
    """What keeps this member from talking to the others."""
    return certs.problems(group.tls_dir(place.config, place.state_dir), place.member_id, time.time())


def ask(place: Place, cluster_id: str, secs: float) -> Iterator[tuple[Member, pb.StatusReply | str]]:
    """How each other member is; a text says why it does not answer.  `secs`: the time that one may take."""
    own = next(member for member in place.members if member.id == place.member_id)
    identity = Identity(
        cluster_id,
        place.member_id,
        hash_members(place.members),
        own.client,
        versions.known(),
        __version__,
    )
    tls = read_tls(group.tls_dir(place.config, place.state_dir))
    for member in place.members:
        if member.id != place.member_id:
            yield member, _ask(member, identity, tls, secs)


def _ask(member: Member, identity: Identity, tls: Tls, secs: float) -> pb.StatusReply | str:
    options = (("grpc.ssl_target_name_override", member.name),)
    with grpc.secure_channel(member.address, tls.client(), options=options) as channel:
        try:
            request = pb.StatusRequest(hello=identity.hello(member.id))
            reply: pb.StatusReply = RaftInternalStub(channel).Status(request, timeout=secs)
        except grpc.RpcError as error:
            # What is raised is a call as well, which its declared type does not say.
            details = getattr(error, "details", str)
            return str(details())
    return reply
