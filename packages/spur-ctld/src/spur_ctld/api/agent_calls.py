"""What agents say: who they are, that they live, what they hold, how steps ended."""

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from spur_auth import mint
from spur_auth.ownership import require_node
from spur_core.errors import NotFound, RequestError, SpurError
from spur_core.reasons import SYSTEM_FAILURE
from spur_core.states import JobState, NodeAvail
from spur_ctld import bounds
from spur_ctld.api import parse
from spur_ctld.api.caller import CALLER
from spur_ctld.api.node_view import Load
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.node_memory import Held, belongs
from spur_ctld.settings import overlay
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.records import Exit, Gres, Node, Usage
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_VERDICTS: Final = {
    "accepted": pb.REPORT_VERDICT_ACCEPTED,
    "final": pb.REPORT_VERDICT_FINAL,
    "unknown": pb.REPORT_VERDICT_UNKNOWN,
    "retry": pb.REPORT_VERDICT_RETRY,
    "wrong_node": pb.REPORT_VERDICT_WRONG_NODE,
}
#: Instants of a report may lie this far in the controller's future before they are pulled back.
_CLOCK_SKEW_SECS: Final = 1.0
#: What no node has; a larger number would overflow sums over the cluster.
_MOST_CPUS: Final = 1 << 20
_MOST_GRES: Final = 1 << 40


class AgentCalls:
    """RegisterAgent, Heartbeat, DeregisterAgent, ReportJobStatus."""

    site: Site
    _in_background: Callable[[Coroutine[Any, Any, None]], None]

    def _require(self, node: str) -> None:
        """The caller is the agent of exactly that node."""
        if not node:
            raise RequestError("node: missing")
        require_node(CALLER.get(), node, open_cluster=self.site.rules.open_cluster)

    async def RegisterAgent(self, request: pb.RegisterAgentRequest, context: Any) -> pb.RegisterAgentResponse:
        self._require(request.node)
        site = self.site
        now = site.clock()
        said = node_record(request, peer_host(context.peer()))
        before = site.ledger.state.nodes.get(request.node)
        await site.ledger.commit(ops.NodeRegister(at=now, node=overlay(said, site.settings.nodes)))
        if before is not None and node_address(before) not in ("", node_address(said)):
            await site.agents.forget(node_address(before))
        site.memory.heard(request.node, site.monotonic())
        await self._reconcile(request.node, held_steps(request.held))
        log.info(
            "node_registered node=%s address=%s cpus=%d memory_mb=%d held=%d",
            request.node,
            node_address(said),
            request.cpus,
            request.memory_mb,
            len(request.held),
        )
        token = ""
        cluster = site.ledger.state.settings.cluster_name
        if site.key is not None and site.rules.keys:
            token = mint.mint_node(site.key, request.node, now, cluster=cluster)
        return pb.RegisterAgentResponse(
            node_token=token,
            cluster_name=cluster,
            heartbeat_secs=site.settings.heartbeat_secs,
            term=site.term(),
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        self._require(request.node)
        site = self.site
        node = site.ledger.state.nodes.get(request.node)
        if node is None or node.avail is NodeAvail.UNKNOWN or node.boot_id != request.boot_id:
            return pb.HeartbeatResponse(register_again=True)
        site.memory.heard(request.node, site.monotonic())
        site.memory.loads[request.node] = Load(request.cpu_load, request.free_memory_mb)
        if node.avail is not NodeAvail.UP and not node.locked_down:
            await site.ledger.commit(ops.NodeBack(at=site.clock(), name=request.node))
            log.info("node_back node=%s", request.node)
        if request.has_snapshot:
            await self._reconcile(request.node, held_steps(request.held))
        return pb.HeartbeatResponse()

    async def _reconcile(self, node: str, held: list[Held]) -> None:
        """Compare a consistent list with the state, and undo what differs, by exact identity."""
        site = self.site
        findings = site.memory.compare(site.ledger.state, node, held, site.monotonic())
        for job_id, attempt in findings.lost:
            log.warning("attempt_lost job=%d attempt=%d node=%s", job_id, attempt, node)
            try:
                await site.ledger.commit(
                    ops.FenceBegin(
                        at=site.clock(),
                        job_id=job_id,
                        attempt=attempt,
                        outcome=JobState.PENDING,
                        reason=SYSTEM_FAILURE,
                        desc=f"the supervisor on {node} was lost",
                        recovery=True,
                    )
                )
            except SpurError as error:
                log.info("fence_refused job=%d attempt=%d error=%r", job_id, attempt, error.text)
        for job_id, attempt in findings.obsolete:
            log.warning("attempt_obsolete job=%d attempt=%d node=%s", job_id, attempt, node)
            self._in_background(self._end_obsolete(node, job_id, attempt))

    async def _end_obsolete(self, node: str, job_id: int, attempt: int) -> None:
        known = self.site.ledger.state.nodes.get(node)
        job = self.site.ledger.state.jobs.get(job_id)
        if known is None or belongs(job, attempt, node, self.site.ledger.state.next_job_id, job_id):
            return
        try:
            await self.site.agents.end(node_address(known), job_id, attempt, 0, "superseded")
        except SpurError as error:
            log.info("obsolete_waits job=%d attempt=%d node=%s error=%r", job_id, attempt, node, error.text)

    async def DeregisterAgent(
        self, request: pb.DeregisterAgentRequest, context: Any
    ) -> pb.DeregisterAgentResponse:
        self._require(request.node)
        site = self.site
        if request.node not in site.ledger.state.nodes:
            raise NotFound(f"Node {request.node} not found")
        await site.ledger.commit(
            ops.NodeSilent(at=site.clock(), name=request.node, reason=request.reason or "agent restarting")
        )
        site.memory.heard(request.node, site.monotonic())
        log.info("node_restarting node=%s", request.node)
        return pb.DeregisterAgentResponse()

    async def ReportJobStatus(
        self, request: pb.ReportJobStatusRequest, context: Any
    ) -> pb.ReportJobStatusResponse:
        self._require(request.node)
        bounds.check_texts(request)
        rid = parse.runtime_id(request.rid)
        site = self.site
        now = site.clock()
        ended = request.ended_at if 0 < request.ended_at <= now + _CLOCK_SKEW_SECS else now
        started = request.started_at if 0 < request.started_at <= ended else ended
        result = await site.ledger.commit(
            ops.NodeComplete(
                at=now,
                job_id=rid.job_id,
                attempt=rid.run_attempt,
                step_id=rid.step_id,
                node=request.node,
                exit=exit_record(request.exit),
                started_at=started,
                ended_at=ended,
                usage=Usage(
                    user_secs=request.usage.user_secs,
                    system_secs=request.usage.system_secs,
                    max_rss_kb=request.usage.max_rss_kb,
                ),
                stdout_real=request.stdout_path,
                stderr_real=request.stderr_path,
            )
        )
        assert isinstance(result, ops.CompleteResult)
        log.info(
            "step_ended step=%s node=%s code=%d signal=%d verdict=%s",
            rid,
            request.node,
            request.exit.code,
            request.exit.signal,
            result.verdict,
        )
        return pb.ReportJobStatusResponse(verdict=_VERDICTS[result.verdict])


def held_steps(messages: Iterable[pb.HeldStep]) -> list[Held]:
    """Exact identities of an agent's list."""
    return [(*parse.runtime_id(message.rid, "held"), message.state) for message in messages]


def exit_record(message: common_pb2.ExitStatus) -> Exit:
    return Exit(code=message.code, signal=message.signal, oom=message.oom, core=message.core_dumped)


def peer_host(peer: str) -> str:
    """The other side's address out of gRPC's name for it; "" for a socket file."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    host = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0]
    return host.strip("[]").removeprefix("::ffff:")


def node_record(request: pb.RegisterAgentRequest, seen_host: str) -> Node:
    """What an agent said of its node.

    Raises:
        RequestError: sizes that cannot be, by name.
    """
    if not request.cpus:
        raise RequestError("cpus: a node has at least one")
    if request.cpus > _MOST_CPUS or any(g.count > _MOST_GRES for g in request.gres):
        raise RequestError(f"cpus, gres: more than {_MOST_CPUS} CPUs or {_MOST_GRES} of a resource")
    bounds.memory_mb(max(request.memory_mb, request.tmp_disk_mb), "memory_mb, tmp_disk_mb")
    bounds.instant(request.boot_at)
    bounds.instant(request.agent_start_at)
    if not 0 < request.port <= 65535:
        raise RequestError(f"port: {request.port} is not a port")
    return Node(
        name=request.node,
        avail=NodeAvail.UP,
        cpus=request.cpus,
        memory_mb=request.memory_mb,
        gres=tuple(Gres(name=g.name, type=g.type, count=g.count) for g in request.gres if g.count),
        sockets=request.sockets or 1,
        cores_per_socket=request.cores_per_socket or 1,
        threads_per_core=request.threads_per_core or 1,
        tmp_disk_mb=request.tmp_disk_mb,
        labels=dict(request.labels),
        address=request.address or seen_host,
        port=request.port,
        hostname=request.hostname,
        version=request.version,
        arch=request.arch,
        os=request.os,
        boot_id=request.boot_id,
        boot_at=request.boot_at or None,
        agent_start_at=request.agent_start_at or None,
    )
