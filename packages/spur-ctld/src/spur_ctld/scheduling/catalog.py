"""Partitions with their members worked out, remembered until nodes or the configuration change."""

from collections.abc import Sequence

import msgspec

from spur_ctld.ledger import Ledger
from spur_ctld.state.apply_nodes import members
from spur_ctld.state.events import ConfigChanged, Event, NodeChanged, StateReplaced
from spur_ctld.state.records import Partition


class Catalog:
    """Partitions whose `nodes` are all their members, those found by label or ALL included."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._partitions: dict[str, Partition] | None = None
        ledger.subscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        if any(isinstance(event, (ConfigChanged, NodeChanged, StateReplaced)) for event in events):
            self._partitions = None

    def partitions(self) -> dict[str, Partition]:
        """By name, in configuration order."""
        found = self._partitions
        if found is None:
            state = self._ledger.state
            found = self._partitions = {
                name: msgspec.structs.replace(partition, nodes=tuple(members(state, partition)))
                for name, partition in state.partitions.items()
            }
        return found
