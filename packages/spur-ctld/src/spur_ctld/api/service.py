"""The SlurmController service: its handlers side by side."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from spur_ctld.api.agent_calls import AgentCalls
from spur_ctld.api.cluster_info import ClusterInfo
from spur_ctld.api.controllers import Group
from spur_ctld.api.job_rows import JobRows
from spur_ctld.api.jobs_read import JobsRead
from spur_ctld.api.jobs_write import JobsWrite
from spur_ctld.api.nodes import Nodes
from spur_ctld.api.partitions import Partitions
from spur_ctld.api.priorities import PrioritiesRead
from spur_ctld.api.reservations import Reservations
from spur_ctld.api.statistics import Statistics
from spur_ctld.api.steps_read import StepsRead
from spur_ctld.api.steps_write import StepsWrite
from spur_ctld.api.topology import NetworkShape
from spur_ctld.site import Site
from spur_proto import controller_pb2_grpc


class ControllerService(
    JobsRead,
    JobsWrite,
    PrioritiesRead,
    StepsRead,
    StepsWrite,
    Nodes,
    Partitions,
    Reservations,
    ClusterInfo,
    NetworkShape,
    Statistics,
    AgentCalls,
    controller_pb2_grpc.SlurmControllerServicer,
):
    """Thin: parse the request, commit an operation or read the state, answer."""

    def __init__(self, site: Site, group: Group) -> None:
        self.site = site
        self.group = group
        self.rows = JobRows()
        self._background: set[asyncio.Task[Any]] = set()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Work that the answer does not wait for; what must happen is in the state and happens anyway."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def end_streams(self) -> None:
        """Tell open watchers to ask again elsewhere, or later."""
        self.site.stopping = True
        self.site.ledger.wake_all()

    async def close(self) -> None:
        """Drop what still runs behind answered calls."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
