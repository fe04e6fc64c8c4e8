"""Partitions that administrators make, change and remove while the controllers run."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

from spur_core.errors import AccessDenied, NotFound, RequestError
from spur_ctld import bounds, partition_changes
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.records import Partition
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_MOST_WORDS: Final = 64
_LONGEST: Final = 65536


class Partitions:
    """CreatePartition, UpdatePartition, DeletePartition."""

    site: Site

    @cached_property
    def _one_change(self) -> asyncio.Lock:
        """Each change begins with what the one before it left."""
        return asyncio.Lock()

    async def CreatePartition(
        self, request: pb.CreatePartitionRequest, context: Any
    ) -> pb.CreatePartitionResponse:
        await self._change(
            request.name,
            lambda: partition_changes.created(
                request.name, _words(request.changes), self.site.ledger.state, multifactor=self._multifactor
            ),
            there=False,
        )
        return pb.CreatePartitionResponse()

    async def UpdatePartition(
        self, request: pb.UpdatePartitionRequest, context: Any
    ) -> pb.UpdatePartitionResponse:
        await self._change(
            request.name,
            lambda: partition_changes.updated(
                request.name, _words(request.changes), self.site.ledger.state, multifactor=self._multifactor
            ),
        )
        return pb.UpdatePartitionResponse()

    async def DeletePartition(
        self, request: pb.DeletePartitionRequest, context: Any
    ) -> pb.DeletePartitionResponse:
        await self._change(
            request.name, lambda: partition_changes.without(request.name, self.site.ledger.state)
        )
        return pb.DeletePartitionResponse()

    @property
    def _multifactor(self) -> bool:
        return self.site.priorities.rules.multifactor

    async def _change(
        self, name: str, make: Callable[[], tuple[Partition, ...]], *, there: bool = True
    ) -> None:
        who = await self.site.who()
        bounds.bounded(name, "name", 256)
        if not who.admin:
            raise AccessDenied
        async with self._one_change:
            if self.site.ledger.answered(self.site.key_of(who, 0)) is not None:
                return
            state = self.site.ledger.state
            if there and name not in state.partitions:
                raise NotFound("Invalid partition name specified")
            op = ops.Configure(at=self.site.clock(), settings=state.settings, partitions=make())
            await self.site.once(op, who)
        log.info("partition_changed name=%s by=%s", name, who.user)


def _words(changes: Sequence[pb.PartitionChange]) -> list[tuple[str, str]]:
    if len(changes) > _MOST_WORDS:
        raise RequestError(f"changes: more than {_MOST_WORDS} entries")
    return [(change.key, bounds.bounded(change.value, "value", _LONGEST)) for change in changes]
