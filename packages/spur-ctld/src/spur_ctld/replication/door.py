"""What other members may ask of this one; nothing that comes in here goes on to a third."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import grpc

from spur_ctld.replication import comparing, forwarding, wire
from spur_ctld.replication.errors import NotLeader, TooNew
from spur_ctld.replication.identity import Identity, Refused
from spur_ctld.replication.inbox import Inbox
from spur_ctld.replication.meta import Member
from spur_ctld.replication.roles import Role
from spur_ctld.replication.shared import Shared
from spur_ctld.replication.transfer import Receiving
from spur_ctld.replication.types import AnyMessage, InstallSnapshot
from spur_proto import raft_internal_pb2 as pb

#: Takes a command and its deadline; the future's exception is a SpurError.
Enter = Callable[[bytes, float | None], asyncio.Future[bytes]]


class Door:
    """A `transport.Receiver` and a `forwarding.Executor`.

    Args:
        enter: proposes another member's command here, or raises.
        silent: seconds since the leader was heard.
        identity: this member's.
        used: version of commands that the group uses.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        shared: Shared,
        inbox: Inbox,
        enter: Enter,
        silent: Callable[[], float],
        identity: Identity,
        used: Callable[[], int],
        wall: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._inbox = inbox
        self._enter = enter
        self._silent = silent
        self._receiving = Receiving(shared, identity.id, self._received)
        self._identity = identity
        self._used = used
        self._wall = wall
        #: Called when a stream to a member opened.
        self.came: Callable[[], None] = lambda: None

    async def stop(self) -> None:
        """Give up a snapshot that is arriving."""
        await self._receiving.stop()

    # --- greetings ----------------------------------------------------------------------------------------

    def greet(self, hello: pb.Hello) -> None:
        """See `Receiver.greet`."""
        hello.wall_clock = self._wall()
        hello.group_command_version = self._used()

    def greeted(self, member: Member, hello: pb.Hello) -> None:
        """See `Receiver.greeted`: a release that is too old for the group takes no part, here or there."""
        own, used = self._identity.command_version, self._used()
        if hello.group_command_version > own:
            group = (
                f"the group uses command version {hello.group_command_version}, says controller {member.id}"
            )
            self._shared.fail(TooNew(f"{group}, and this release knows up to {own}"))
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f"this release knows commands up to {own} only"
            )
        if hello.command_version < used:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the group uses command version {used}, and controller {member.id} runs a release"
                f" ({hello.version or 'unknown'}) that knows up to {hello.command_version}: install the newer"
                " one there and start it again",
            )

    # --- messages -----------------------------------------------------------------------------------------

    async def deliver(self, messages: Sequence[AnyMessage], size: int) -> None:
        """See `Receiver.deliver`."""
        await self._inbox.put(messages, size)

    def connected(self) -> None:
        """See `Receiver.connected`: what waits for the leader may go now."""
        self._shared.wake()
        self.came()

    def lost(self, peer: int) -> None:
        """See `Receiver.lost`."""
        self._shared.core.unreachable(peer)
        self._shared.wake()

    async def snapshot(self, src: int, header: pb.SnapshotHeader, parts: AsyncIterator[bytes]) -> None:
        """See `Receiver.snapshot`."""
        await self._receiving.receive(src, header, parts)

    async def _received(self, msg: InstallSnapshot) -> None:
        await self._inbox.put([msg], wire.size_of(msg))

    # --- calls --------------------------------------------------------------------------------------------

    async def forwarded(self, items: Sequence[pb.ForwardItem]) -> list[pb.ForwardAnswer]:
        """See `Receiver.forwarded`."""
        return await forwarding.serve(items, self, self._shared.loop)

    def execute(self, cmd: bytes, deadline: float | None) -> asyncio.Future[bytes]:
        """See `Executor.execute`."""
        future = self._enter(cmd, deadline)
        future.add_done_callback(_look_at)
        return future

    def read_index(self) -> asyncio.Future[int]:
        """See `Executor.read_index`."""
        core = self._shared.core
        if core.role is not Role.LEADER or not self._shared.usable:
            raise NotLeader(core.leader or None)
        future: asyncio.Future[int] = self._shared.loop.create_future()
        future.add_done_callback(_look_at)
        self._shared.reads.ask_for_other(future, core.read_index)
        self._shared.wake()
        return future

    def status(self) -> pb.StatusReply:
        """See `Receiver.status`."""
        core = self._shared.core
        leads = core.role is Role.LEADER
        return pb.StatusReply(
            role=core.role.value,
            term=core.term,
            leader=core.leader,
            first_index=core.log.base.index + 1,
            last_index=core.last_index,
            commit_index=core.commit,
            applied_index=core.applied,
            snapshot_index=core.snapshot.index,
            snapshot_term=core.snapshot.term,
            silent_secs=self._silent(),
            leads=leads and core.committed_own_term,
            low_space=self._shared.disk.low,
            abstains=core.abstain > 0,
            digests=comparing.wire(self._shared.digests.own()),
        )

    def digests(self, member: int, digests: Sequence[pb.StateDigest]) -> None:
        """See `Receiver.digests`."""
        self._shared.digests.heard(member, comparing.unwired(digests))


def _look_at(future: "asyncio.Future[bytes] | asyncio.Future[int]") -> None:
    """The caller may be gone: nobody else looks at the error."""
    if not future.cancelled():
        future.exception()
