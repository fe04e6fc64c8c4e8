"""Tells the rest of the controller what changed: own role, who leads, that the state was replaced."""

import asyncio
import logging

from spur_ctld.replication.api import LeaderChange, Restored, RoleChange
from spur_ctld.replication.roles import Role

_log = logging.getLogger(__name__)


class Announcer:
    """Callbacks, all on the event loop.

    Attributes:
        led: set once this member led, and when it failed.
    """

    def __init__(self) -> None:
        self._on_role: list[RoleChange] = []
        self._on_leader: list[LeaderChange] = []
        self._on_restore: list[Restored] = []
        self._role = (Role.FOLLOWER, 0)
        self._leader: int | None = None
        self.led = asyncio.Event()

    def add_role(self, callback: RoleChange) -> None:
        """At once, and at each change."""
        self._on_role.append(callback)
        callback(*self._role)

    def add_leader(self, callback: LeaderChange) -> None:
        """At once, and at each change."""
        self._on_leader.append(callback)
        callback(self._leader)

    def drop_leader(self, callback: LeaderChange) -> None:
        """No longer."""
        self._on_leader.remove(callback)

    def add_restore(self, callback: Restored) -> None:
        """Each time a running member's state was replaced."""
        self._on_restore.append(callback)

    def saw(self, role: Role, term: int, leader: int | None) -> None:
        """The present state of affairs; tells only what changed."""
        if leader != self._leader:
            self._leader = leader
            _log.info("leader_changed leader=%d term=%d", leader or 0, term)
            for callback in list(self._on_leader):
                callback(leader)
        now = (role, term)
        # Terms come and go for a follower; only those it leads concern anybody.
        if now == self._role or (role is not Role.LEADER and self._role[0] is Role.FOLLOWER):
            return
        if role is Role.LEADER and self._role[0] is Role.LEADER:
            # Led, lost and won again between two looks: what began under the old term must end.
            for change in list(self._on_role):
                change(Role.FOLLOWER, term)
        self._role = now
        _log.info("role_changed role=%s term=%d", role.value, term)
        if role is Role.LEADER:
            self.led.set()
        for change in list(self._on_role):
            change(*now)

    def restored(self) -> None:
        """The state was replaced."""
        for callback in list(self._on_restore):
            callback()
