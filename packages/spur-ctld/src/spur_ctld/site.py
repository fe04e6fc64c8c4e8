"""Everything a handler, effect or timer of this controller works with, made once at start."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from spur_auth.kinds import Identity
from spur_auth.ownership import is_owner
from spur_core.errors import AccessDenied, BusyError
from spur_ctld.api.caller import CALLER, REQUEST, GateRules, caller_is_admin, require_user
from spur_ctld.api.node_view import Load
from spur_ctld.client_memory import ClientMemory, StepLines
from spur_ctld.dispatch.agents import AgentPool
from spur_ctld.ledger import Ledger
from spur_ctld.node_memory import NodeMemory
from spur_ctld.replication.errors import NotLeader
from spur_ctld.scheduling.catalog import Catalog
from spur_ctld.scheduling.network import Network
from spur_ctld.scheduling.priorities import Priorities
from spur_ctld.settings import ShellSettings
from spur_ctld.state.ops import AnyOp, OpResult, Who
from spur_ctld.state.records import Job
from spur_ctld.tally import Tally
from spur_ctld.users import UserDirectory, UserRecord

if TYPE_CHECKING:
    from spur_ctld.dispatch.steps import StepRunner
    from spur_ctld.office import Office
    from spur_ctld.recovery.service import Recovery
    from spur_ctld.scheduling.outlook import Outlook
    from spur_ctld.scheduling.snapshot import SnapshotBuilder


class Stopping(BusyError):
    """This controller ends the call because it stops, or leads no longer; the client asks again."""

    code = "stopping"


@dataclass
class Site:
    """The parts; `clock` gives seconds since the epoch, `monotonic` seconds for measuring silence.

    What only a leader has is in `office`; asking for it elsewhere raises `NotLeader`.
    """

    ledger: Ledger
    catalog: Catalog
    priorities: Priorities
    network: Network
    users: UserDirectory
    settings: ShellSettings
    rules: GateRules
    key: bytes | None
    #: Named in `GetConfig`.
    facts: dict[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    #: Of the present term of leadership; None while another controller leads, or none.
    office: "Office | None" = None
    stopping: bool = False
    #: What is counted here.
    tally: Tally = field(init=False)

    def __post_init__(self) -> None:
        self.tally = Tally(self.clock)

    @property
    def _open(self) -> "Office":
        if self.office is None:
            raise NotLeader
        return self.office

    @property
    def agents(self) -> AgentPool:
        """The agents, called in the name of the present term."""
        return self._open.agents

    @property
    def memory(self) -> NodeMemory:
        """What this leader heard of nodes."""
        return self._open.memory

    @property
    def loads(self) -> Mapping[str, Load]:
        """Loads that nodes told; a follower has heard none."""
        return self.office.memory.loads if self.office is not None else {}

    @property
    def clients(self) -> ClientMemory:
        """What this leader heard of clients."""
        return self._open.clients

    @property
    def lines(self) -> StepLines:
        """Who waits for a step."""
        return self._open.lines

    @property
    def builder(self) -> "SnapshotBuilder":
        """Makes the scheduler's views."""
        return self._open.builder

    @property
    def outlook(self) -> "Outlook":
        """What the last scheduling passes found."""
        return self._open.outlook

    @property
    def steps(self) -> "StepRunner":
        """Launches and ends steps."""
        return self._open.steps

    @property
    def recovery(self) -> "Recovery":
        """Brings runs and reality together."""
        return self._open.recovery

    def term(self) -> int:
        """The term in which this controller leads."""
        return self._open.term

    def check_here(self) -> None:
        """For calls that wait: whether their answer may still come from here.

        Raises:
            Stopping: it may not; the client asks again, elsewhere.
        """
        if self.stopping:
            raise Stopping("the controller is stopping; ask again")
        if self.office is None:
            raise Stopping("the controller leads no longer; ask again")

    def key_of(self, who: "Who", part: object = 0) -> str:
        """The key of one operation of the present request; empty when the request has no id.

        Another user's request id must neither collide nor reveal an answer.
        """
        request = REQUEST.get()
        return f"{request}:{who.user if who.uid is None else who.uid}/{part}" if request else ""

    async def once(self, op: AnyOp, who: "Who", part: object = 0) -> OpResult:
        """Commit an operation of the present request; a repeat of the request gets the first one's result.

        Args:
            part: tells the operations of one request apart, alike in every repeat.
        """
        key = self.key_of(who, part)
        return await self.ledger.commit(msgspec.structs.replace(op, key=key) if key else op)

    @staticmethod
    def request_id(own: str) -> str:
        """The id of a request that has a field for it: the field, else what came beside the request."""
        return own or REQUEST.get().partition(":")[2]

    async def caller(self) -> tuple[UserRecord, bool]:
        """(account, whether an administrator) of the user behind the present call.

        Raises:
            MissingCredential: no user is behind it.
            UnknownUser: the controller's host does not know the user.
            AccessDenied: the credential names another uid than the user has here.
        """
        identity = CALLER.get()
        record = await self.users.by_name(require_user(identity))
        if identity.uid is not None and identity.uid != record.uid:
            # Made where that name is somebody else, or before the name was given to somebody else.
            raise AccessDenied(
                f"the credential is of {record.name} with uid {identity.uid}; here {record.name} has"
                f" uid {record.uid}"
            )
        return record, caller_is_admin(identity, record.uid, self.rules)

    async def who(self) -> Who:
        """The same as it goes into an operation."""
        record, admin = await self.caller()
        return Who(uid=record.uid, user=record.name, admin=admin)

    def may_see(self, job: Job) -> bool:
        """Whether the present caller sees all of `job`."""
        return self.may_see_user(job.request.user, job.request.uid)

    def may_see_user(self, user: str, uid: int | None = None) -> bool:
        """Whether the present caller sees all of that user's jobs."""
        return self.settings.visibility == "full" or self.acts_for(user, uid)

    def acts_for(self, user: str, uid: int | None = None) -> bool:
        """Whether the present caller is that user or an administrator."""
        identity: Identity = CALLER.get()
        if not identity.verified and self.rules.open_cluster:
            # Nobody can prove anything here, so hiding would hide nothing.
            return True
        if is_owner(identity, uid, user):
            return True
        proven = -1 if identity.uid is None else identity.uid
        return identity.verified and caller_is_admin(identity, proven, self.rules)
