"""What agents say: who they are, that they live, what they hold, how steps ended."""

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from spur_auth.kinds import NODE, Identity
from spur_auth.verify import verify
from spur_core import faults
from spur_core.errors import NotFound, RequestError, WrongState
from spur_core.states import NodeAvail
from spur_ctld import bounds
from spur_ctld.api import node_identity, parse
from spur_ctld.api.caller import CALLER, PEER, GateRules
from spur_ctld.api.controllers import Group
from spur_ctld.api.node_view import Load
from spur_ctld.dispatch.launch_spec import rid_message
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.node_memory import Held
from spur_ctld.recovery.cohorts import Verdict
from spur_ctld.recovery.policy import Life
from spur_ctld.recovery.service import Entry
from spur_ctld.settings import overlay
from spur_ctld.site import Site
from spur_ctld.state import naming, ops
from spur_ctld.state.inventory import DeviceSet, Inventory
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
_LIVES: Final = {
    pb.RECOVERY_STATE_LIVE: Life.LIVE,
    pb.RECOVERY_STATE_STALE: Life.GONE,
    pb.RECOVERY_STATE_FINISHED: Life.FINISHED,
    pb.RECOVERY_STATE_CORRUPT: Life.GONE,
}
_RECOVERY_VERDICTS: Final = {
    Verdict.KEEP: pb.RECOVERY_VERDICT_KEEP,
    Verdict.WAIT: pb.RECOVERY_VERDICT_WAIT,
    Verdict.FENCE: pb.RECOVERY_VERDICT_FENCE,
    Verdict.FORGET: pb.RECOVERY_VERDICT_FORGET,
    Verdict.RESTORE: pb.RECOVERY_VERDICT_RESTORE,
}
#: Why a node is drained whose epilog went wrong.
EPILOG_FAILED: Final = "epilog script failed"
#: Instants of a report may lie this far in the controller's future before they are pulled back.
_CLOCK_SKEW_SECS: Final = 1.0
#: What no node has; a larger number would overflow sums over the cluster.
_MOST_CPUS: Final = 1 << 20
_MOST_GRES: Final = 1 << 40


class AgentCalls:
    """RegisterAgent, Heartbeat, DeregisterAgent, ReportJobStatus, ReportStepdRecovery."""

    site: Site
    group: Group

    async def RegisterAgent(self, request: pb.RegisterAgentRequest, context: Any) -> pb.RegisterAgentResponse:
        site = self.site
        claim = await node_identity.claim(site, request.node)
        now = site.clock()
        said = msgspec.structs.replace(node_record(request, peer_host(PEER.get())), holder=claim.holder)
        before = site.ledger.state.nodes.get(request.node)
        await site.ledger.commit(
            ops.NodeRegister(at=now, node=overlay(said, site.settings.nodes), held_by=claim.held_by)
        )
        if before is not None and node_address(before) not in ("", node_address(said)):
            await site.agents.forget(node_address(before))
        site.memory.heard(request.node, site.monotonic())
        await self.site.recovery.reconcile(request.node, held_steps(request.held))
        log.info(
            "node_registered node=%s address=%s cpus=%d memory_mb=%d held=%d",
            request.node,
            node_address(said),
            request.cpus,
            request.memory_mb,
            len(request.held),
        )
        term = site.term()
        return pb.RegisterAgentResponse(
            node_token=node_identity.token_for(site, request.node, claim.secret, now),
            cluster_name=site.ledger.state.settings.cluster_name,
            heartbeat_secs=site.settings.heartbeat_secs,
            term=term,
            controllers=self.group.clients,
            term_proof=node_identity.term_proof(site, term),
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        site = self.site
        node_identity.require_speaker(site, request.node)
        node = site.ledger.state.nodes.get(request.node)
        if node is None or node.avail is NodeAvail.UNKNOWN or node.boot_id != request.boot_id:
            return pb.HeartbeatResponse(register_again=True)
        if (node.registered_at or 0.0) < site.ledger.state.raised_at:
            # What it said then was not kept in full.
            return pb.HeartbeatResponse(register_again=True)
        site.memory.heard(request.node, site.monotonic())
        site.memory.loads[request.node] = Load(request.cpu_load, request.free_memory_mb)
        if node.avail is not NodeAvail.UP and not node.locked_down:
            await site.ledger.commit(ops.NodeBack(at=site.clock(), name=request.node))
            log.info("node_back node=%s", request.node)
        if request.has_snapshot:
            await self.site.recovery.reconcile(request.node, held_steps(request.held))
        term = site.term()
        return pb.HeartbeatResponse(term=term, term_proof=node_identity.term_proof(site, term))

    async def DeregisterAgent(
        self, request: pb.DeregisterAgentRequest, context: Any
    ) -> pb.DeregisterAgentResponse:
        site = self.site
        node_identity.require_speaker(site, request.node)
        if request.node not in site.ledger.state.nodes:
            raise NotFound(f"Node {request.node} not found")
        await site.ledger.commit(
            ops.NodeSilent(at=site.clock(), name=request.node, reason=request.reason or "agent restarting")
        )
        site.memory.heard(request.node, site.monotonic())
        log.info("node_restarting node=%s held=%d", request.node, len(request.held))
        return pb.DeregisterAgentResponse()

    async def ReportStepdRecovery(
        self, request: pb.ReportStepdRecoveryRequest, context: Any
    ) -> pb.ReportStepdRecoveryResponse:
        """Checks in order: signature, expiry, host name, node known; then run by run.  What is refused has
        no effect."""
        site, node = self.site, request.hostname
        identity = recovery_identity(site.rules, request.node_token, CALLER.get(), site.clock())
        node_identity.require_speaker(site, node, identity)
        known = site.ledger.state.nodes.get(node)
        if known is None or known.avail is NodeAvail.UNKNOWN:
            raise NotFound(f"Node {node} not found")
        if known.boot_id != request.boot_id:
            raise WrongState(f"node {node} registered with another boot; register again")
        # A verdict may end a run, and carries no term that the agent could compare.
        await site.ledger.confirm()
        answers = await self.site.recovery.report(
            node, [recovery_entry(message) for message in request.entries]
        )
        return pb.ReportStepdRecoveryResponse(
            answers=[
                pb.RecoveryAnswer(
                    rid=rid_message(answer.rid),
                    verdict=_RECOVERY_VERDICTS[answer.verdict],
                    verdict_id=answer.verdict_id,
                )
                for answer in answers
            ]
        )

    async def ReportJobStatus(
        self, request: pb.ReportJobStatusRequest, context: Any
    ) -> pb.ReportJobStatusResponse:
        site = self.site
        node_identity.require_speaker(site, request.node)
        if request.epilog_error:
            # First, and whatever becomes of the report: the node is not fit for another job.
            await self._drain_after_epilog(request)
        bounds.check_texts(request)
        rid = parse.runtime_id(request.rid)
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
        if faults.armed("exit_told"):
            context.add_done_callback(lambda _: faults.after("exit_told"))
        return pb.ReportJobStatusResponse(verdict=_VERDICTS[result.verdict])

    async def _drain_after_epilog(self, request: pb.ReportJobStatusRequest) -> None:
        site = self.site
        node = site.ledger.state.nodes.get(request.node)
        rid = request.rid
        log.error(
            "epilog_failed node=%s job=%d attempt=%d error=%r",
            request.node,
            rid.job_id,
            rid.run_attempt,
            request.epilog_error[:1000],
        )
        if node is not None and not node.drain:
            who = ops.Who(user=request.node)
            await site.ledger.commit(
                ops.NodeUpdate(
                    at=site.clock(), names=(request.node,), who=who, state="drain", reason=EPILOG_FAILED
                )
            )


def held_steps(messages: Iterable[pb.HeldStep]) -> list[Held]:
    """Exact identities of an agent's list."""
    return [Held(parse.runtime_id(message.rid, "held"), message.state) for message in messages]


def recovery_identity(rules: GateRules, token: str, caller: Identity, now: float) -> Identity:
    """Who reports: the token inside the request, or the call's own credential when there is none.

    Raises:
        CredentialError: the token is forged, expired, of another kind, or there is none at all.
    """
    if rules.open_cluster:
        return caller
    if not token and caller.verified:
        return caller
    return verify(rules.keys, token, NODE, now)


def recovery_entry(message: pb.RecoveryEntry) -> Entry:
    """One line of a report.

    Raises:
        RequestError: the identity is not complete, or the state is none.
    """
    life = _LIVES.get(message.state)
    if life is None:
        raise RequestError("entries: a state is missing")
    return Entry(parse.runtime_id(message.rid, "entries"), life, message.detail)


def exit_record(message: common_pb2.ExitStatus) -> Exit:
    """The exit as Slurm counts it: a death by signal has no code, not even the shell's 128 + signal."""
    code = 0 if message.signal and message.code == 128 + message.signal else message.code
    return Exit(code=code, signal=message.signal, oom=message.oom, core=message.core_dumped)


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
    gres = tuple(Gres(name=g.name, type=g.type, count=g.count) for g in request.gres if g.count)
    inventory = _inventory(request.inventory) if request.HasField("inventory") else None
    if inventory is not None and (wrong := naming.problem(inventory, request.cpus, gres)):
        raise RequestError(f"inventory: {wrong}")
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
        gres=gres,
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
        inventory=inventory,
    )


def _inventory(said: pb.NodeInventory) -> Inventory:
    return Inventory(
        sockets=tuple(tuple(socket.threads) for socket in said.sockets),
        devices=tuple(
            DeviceSet(name=one.name, type=one.type, indices=one.indices, link=one.link, near=one.near)
            for one in said.devices
        ),
    )
