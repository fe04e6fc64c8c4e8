"""From the configuration file to what the controller works with.  Pure.

What `apply` depends on goes into the log as one `Configure`; what only the shell needs is `ShellSettings`.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from spur_core.config.model import Config
from spur_core.config.sections import NodeEntry, PartitionEntry
from spur_core.config.sections_later import TopologySection
from spur_core.grammar.gres import parse_gres
from spur_ctld.priority_rules import PriorityRules, priority_rules
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.ops import Configure
from spur_ctld.state.records import Gres, Node, Partition
from spur_ctld.state.settings import Settings
from spur_ctld.submit import SubmitRules
from spur_sched.api import Policy

#: The file's word -> the scheduler's.
_PREEMPT_TYPES: Final = {"none": "none", "partition_prio": "partition_prio", "qos_priority": "qos"}


class ShellSettings(NamedTuple):
    """Settings that only the leader's effects and checks use; seconds."""

    submit: SubmitRules
    visibility: str
    heartbeat_secs: int
    heartbeat_timeout_secs: int
    agent_restart_grace_secs: int
    recovery_grace_secs: int
    cooldown_secs: int
    over_time_limit_secs: int
    complete_wait_secs: int
    inactive_limit_secs: int
    accept_unproven_fence: bool
    #: What still runs so long after the end of its reservation is ended.
    resv_overrun_secs: int
    nodes: tuple[NodeEntry, ...]
    policy: Policy
    preempt_exempt_secs: int
    topology: TopologySection
    priorities: PriorityRules


def shell_settings(config: Config) -> ShellSettings:
    """The shell's part."""
    controller, scheduler = config.controller, config.scheduler
    return ShellSettings(
        submit=SubmitRules(
            max_array_size=controller.max_array_size,
            default_priority=Settings().default_priority,
            max_user_priority=scheduler.max_user_priority,
            default_time_limit=scheduler.default_time_limit_minutes * 60,
            enforce_part_limits=scheduler.enforce_part_limits,
            max_switch_wait=scheduler.max_switch_wait_secs,
            refuse_root=not config.auth.allow_root_jobs,
            licenses=dict(config.licenses),
            users_set_priorities=scheduler.priority_type != "multifactor",
        ),
        visibility=controller.job_info_visibility,
        heartbeat_secs=config.agent.heartbeat_interval_secs,
        heartbeat_timeout_secs=controller.heartbeat_timeout_secs,
        agent_restart_grace_secs=controller.agent_restart_grace_secs,
        recovery_grace_secs=controller.stepd_recovery_grace_secs,
        cooldown_secs=controller.dispatch_reject_cooldown_secs,
        over_time_limit_secs=scheduler.over_time_limit,
        complete_wait_secs=scheduler.complete_wait_secs,
        inactive_limit_secs=scheduler.inactive_limit_secs,
        accept_unproven_fence=controller.fence_unreachable == "requeue",
        resv_overrun_secs=scheduler.resv_overrun_minutes * 60,
        nodes=tuple(config.nodes),
        policy=scheduling_policy(config),
        preempt_exempt_secs=scheduler.preempt_exempt_time,
        topology=config.topology,
        priorities=priority_rules(config),
    )


def scheduling_policy(config: Config) -> Policy:
    """How a pass decides."""
    scheduler = config.scheduler
    return Policy(
        backfill=scheduler.backfill,
        bf_window=scheduler.bf_window,
        bf_resolution=scheduler.bf_resolution,
        bf_max_job_test=scheduler.bf_max_job_test,
        bf_max_job_user=scheduler.bf_max_job_user,
        bf_max_job_part=scheduler.bf_max_job_part,
        bf_min_prio_reserve=scheduler.bf_min_prio_reserve,
        default_queue_depth=scheduler.default_queue_depth,
        preempt_type=_PREEMPT_TYPES[scheduler.preempt_type],
        preempt_youngest_first=scheduler.preempt_youngest_first,
        preempt_by_size=scheduler.preempt_by_size,
        preempt_strict_order=scheduler.preempt_strict_order,
        preempt_reorder_count=scheduler.preempt_reorder_count,
        preempt_min_exempt_priority=scheduler.preempt_min_exempt_priority,
    )


def replicated(config: Config) -> Settings:
    """The part that `apply` depends on."""
    controller, scheduler = config.controller, config.scheduler
    return Settings(
        cluster_name=config.cluster_name,
        first_job_id=controller.first_job_id,
        max_array_size=controller.max_array_size,
        max_job_count=controller.max_job_count,
        max_batch_requeue=controller.max_batch_requeue,
        max_launch_backoff=controller.max_launch_backoff_secs,
        scheduler_interval=scheduler.interval_secs,
        retention=config.job_retention_secs,
        kill_wait=scheduler.kill_wait_secs,
        enforce_part_limits=scheduler.enforce_part_limits,
        hold_on_prolog_fail=controller.hold_on_prolog_fail,
        licenses=tuple(sorted(config.licenses.items())),
    )


def partition_record(entry: PartitionEntry) -> Partition:
    """One `[[partitions]]` entry as it is replicated."""
    return Partition(
        name=entry.name,
        default=entry.default,
        state=entry.state,
        nodes=tuple(sorted(set(entry.node_names))),
        selector=dict(entry.selector),
        max_time=entry.max_time,
        default_time=entry.default_time,
        max_nodes=entry.max_nodes,
        min_nodes=entry.min_nodes,
        priority_tier=entry.priority_tier,
        priority_job_factor=entry.priority_job_factor,
        allow_accounts=entry.allow_accounts,
        deny_accounts=entry.deny_accounts,
        allow_qos=entry.allow_qos,
        deny_qos=entry.deny_qos,
        allow_groups=entry.allow_groups,
        oversubscribe=entry.oversubscribe,
        exclusive_user=entry.exclusive_user,
        max_cpus_per_node=entry.max_cpus_per_node,
        lln=entry.lln,
        req_resv=entry.req_resv,
        root_only=entry.root_only,
        disable_root_jobs=entry.disable_root_jobs,
        alternate=entry.alternate,
        preempt_mode=entry.preempt_mode.upper(),
        preempt_exempt_time=entry.preempt_exempt_time,
        grace_time=entry.grace_time,
        def_mem_per_cpu=entry.def_mem_per_cpu,
        def_mem_per_node=entry.def_mem_per_node,
        max_mem_per_node=entry.max_mem_per_node,
        over_time_limit=entry.over_time_limit,
        all_nodes=entry.all_nodes,
    )


def entry_of(entries: tuple[NodeEntry, ...], name: str, labels: dict[str, str]) -> NodeEntry | None:
    """The first `[[nodes]]` entry that means this node."""
    return next((entry for entry in entries if entry.fits(name, labels)), None)


def overlay(node: Node, entries: tuple[NodeEntry, ...]) -> Node:
    """What the configuration says about a node, over what is known of it; sizes are caps."""
    entry = entry_of(entries, node.name, node.labels)
    if entry is None:
        return msgspec.structs.replace(node, weight=1, features=())
    return msgspec.structs.replace(
        node,
        weight=entry.weight,
        features=entry.features,
        cpus=min(node.cpus, entry.cpus) if entry.cpus else node.cpus,
        memory_mb=min(node.memory_mb, entry.memory_mb) if entry.memory_mb else node.memory_mb,
        gres=_capped(node.gres, entry.gres) if entry.gres else node.gres,
        address=node.address or entry.address or "",
    )


def _capped(have: tuple[Gres, ...], allowed: tuple[str, ...]) -> tuple[Gres, ...]:
    caps = {(name, kind): count for name, kind, count in parse_gres(",".join(allowed))}
    kept = []
    for item in have:
        cap = caps.get((item.name, item.type), caps.get((item.name, "")))
        if cap is not None and min(cap, item.count):
            kept.append(msgspec.structs.replace(item, count=min(cap, item.count)))
    return tuple(kept)


def configure_op(config: Config, known: Mapping[str, Node], now: float) -> Configure:
    """The whole configuration as one operation.

    Args:
        known: nodes that are in the state already; entries that mean them by label or ALL reach them too.
    """
    entries = tuple(config.nodes)
    names = dict.fromkeys(name for entry in entries for name in sorted(entry.node_names))
    for partition in config.partitions:
        names.update(dict.fromkeys(partition.node_names))
    overlays = [overlay(known.get(name) or Node(name=name), entries) for name in names]
    overlays += [overlay(node, entries) for name, node in known.items() if name not in names]
    settings = replicated(config)
    partitions = tuple(partition_record(entry) for entry in config.partitions)
    told = msgspec.json.encode((settings, partitions, [repr(entry) for entry in entries]))
    source = hashlib.sha256(told).hexdigest()
    return Configure(
        at=now,
        settings=msgspec.structs.replace(settings, source=source),
        partitions=partitions,
        nodes=tuple(overlays),
    )


def differs(op: Configure, state: ClusterState) -> bool:
    """Whether the file says something that the state has not taken from it yet.

    What administrators changed by hand stands while the file is the same, whoever leads.
    """
    if op.settings != state.settings:
        return True
    if op.settings.source:
        return False
    present = [p for p in state.partitions.values() if p.state != "INACTIVE"]
    wanted = list(op.partitions)
    if [p for p in wanted if p.state != "INACTIVE"] != present:
        return True
    if any(state.partitions.get(p.name) != p for p in wanted):
        return True
    for node in op.nodes:
        held = state.nodes.get(node.name)
        if held is None or (held.weight, held.features) != (node.weight, node.features):
            return True
    return False
