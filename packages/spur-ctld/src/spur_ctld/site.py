"""Everything a handler, effect or timer of this controller works with, made once at start."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spur_auth.kinds import Identity
from spur_auth.ownership import is_owner
from spur_core.errors import AccessDenied
from spur_ctld.api.caller import CALLER, GateRules, caller_is_admin, require_user
from spur_ctld.client_memory import ClientMemory
from spur_ctld.dispatch.agents import AgentPool
from spur_ctld.ledger import Ledger
from spur_ctld.node_memory import NodeMemory
from spur_ctld.scheduling.catalog import Catalog
from spur_ctld.settings import ShellSettings
from spur_ctld.state.ops import Who
from spur_ctld.state.records import Job
from spur_ctld.users import UserDirectory, UserRecord

if TYPE_CHECKING:
    from spur_ctld.dispatch.steps import StepRunner
    from spur_ctld.scheduling.snapshot import SnapshotBuilder


@dataclass
class Site:
    """The parts; `clock` gives seconds since the epoch, `monotonic` seconds for measuring silence."""

    ledger: Ledger
    catalog: Catalog
    agents: AgentPool
    memory: NodeMemory
    users: UserDirectory
    settings: ShellSettings
    rules: GateRules
    key: bytes | None
    term: Callable[[], int]
    #: Named in `GetConfig`.
    facts: dict[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    #: Set once the site exists, for it reads the site.
    builder: "SnapshotBuilder" = field(init=False)
    #: Likewise.
    steps: "StepRunner" = field(init=False)
    clients: ClientMemory = field(default_factory=ClientMemory)

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
        if self.settings.visibility == "full":
            return True
        identity: Identity = CALLER.get()
        if not identity.verified and self.rules.open_cluster:
            # Nobody can prove anything here, so hiding would hide nothing.
            return True
        if is_owner(identity, uid, user):
            return True
        proven = -1 if identity.uid is None else identity.uid
        return identity.verified and caller_is_admin(identity, proven, self.rules)
