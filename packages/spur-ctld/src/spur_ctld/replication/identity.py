"""Who a member says it is, and whether another one believes it."""

from collections.abc import Collection, Sequence

import grpc
import msgspec

from spur_ctld.replication.meta import Member
from spur_proto import raft_internal_pb2 as pb


class Identity(msgspec.Struct, frozen=True):
    """One member as it presents itself to the others.

    Attributes:
        members_hash: of the whole list of members.
        client: HOST:PORT of its other services.
        command_version: newest version of commands it can apply.
        version: of the program, for people.
    """

    cluster_id: str
    id: int
    members_hash: str
    client: str = ""
    command_version: int = 0
    version: str = ""

    def hello(self, dst: int) -> pb.Hello:
        """What begins every call to member `dst`."""
        return pb.Hello(
            cluster_id=self.cluster_id,
            src=self.id,
            dst=dst,
            members_hash=self.members_hash,
            client_address=self.client,
            command_version=self.command_version,
            version=self.version,
        )


class Refused(Exception):
    """A caller is not who it should be; `code` is gRPC's, the text says what differs."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def identify(
    identity: Identity, members: Sequence[Member], names: Collection[str], hello: pb.Hello
) -> Member:
    """The member that sent `hello` and whose certificate carries `names`.

    Raises:
        Refused: nobody of this group, not the member it says it is, or configured otherwise.
    """
    found = [member for member in members if member.name in names and member.id != identity.id]
    if len(found) != 1:
        shown = ", ".join(sorted(names)) or "nothing"
        raise Refused(
            grpc.StatusCode.PERMISSION_DENIED,
            f"a certificate for {shown} names no other controller of this group",
        )
    member = found[0]
    if hello.cluster_id != identity.cluster_id:
        raise Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"controller {member.id} belongs to cluster {hello.cluster_id or 'none'},"
            f" this is {identity.cluster_id}",
        )
    if hello.members_hash != identity.members_hash:
        raise Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"controller {member.id} is configured with another list of controllers",
        )
    if hello.src != member.id:
        raise Refused(
            grpc.StatusCode.PERMISSION_DENIED,
            f"controller {member.id} says that it is controller {hello.src}",
        )
    if hello.dst != identity.id:
        raise Refused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"controller {member.id} looks for controller {hello.dst}, this is {identity.id}",
        )
    return member
