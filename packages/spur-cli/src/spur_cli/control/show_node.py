"""`scontrol show node` and `scontrol show partition`."""

from typing import TYPE_CHECKING

from spur_cli.control.layout import Style, null, record
from spur_cli.nodes import fields, states
from spur_core.grammar import duration, tres

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Node = common_pb2.NodeInfo
    Partition = common_pb2.PartitionInfo

AGENT_PORT = 6818


def node_text(node: "Node", style: Style) -> str:
    """The record of one node."""
    load = f"{node.cpu_load / 100:.2f}" if node.HasField("cpu_load") else "N/A"
    free = str(node.free_memory_mb) if node.HasField("free_memory_mb") else "N/A"
    features = ",".join(node.features) or "(null)"
    port = f"Port={node.port} " if node.port and node.port != AGENT_PORT else ""
    lines = [
        f"NodeName={node.name} Arch={null(node.arch)} CoresPerSocket={node.cores_per_socket} ",
        f"CPUAlloc={node.alloc_cpus} CPUEfctv={node.cpus} CPUTot={node.cpus} CPULoad={load}",
        f"AvailableFeatures={features}",
        f"ActiveFeatures={features}",
        f"Gres={fields.gres_counts(node.gres)}",
    ]
    if style.detail:
        lines.append(f"GresUsed={fields.gres_used(node)}")
    lines.append(
        f"NodeAddr={node.address or node.name} NodeHostName={node.hostname or node.name}"
        f" {port}Version={null(node.version)}"
    )
    lines += [
        f"OS={null(node.os)} ",
        f"RealMemory={node.memory_mb} AllocMem={node.alloc_memory_mb} FreeMem={free}"
        f" Sockets={node.sockets} Boards=1",
        f"State={states.scontrol_state(node)} ThreadsPerCore={node.threads_per_core}"
        f" TmpDisk={node.tmp_disk_mb} Weight={node.weight} Owner={node.owner or 'N/A'} MCS_label=N/A",
    ]
    lines.append(f"Partitions={','.join(node.partitions)} ")
    if node.switch_name:
        lines.append(f"Switch={node.switch_name}")
    lines += _node_times(node, style)
    lines += _node_tres(node)
    lines.append("CurrentWatts=0 AveWatts=0")
    if node.reason:
        by = node.reason_user or (str(node.reason_uid) if node.HasField("reason_uid") else "unknown")
        at = style.moment(node.reason_at) if node.HasField("reason_at") else "Unknown"
        lines.append(f"Reason={node.reason} [{by}@{at}]")
    if node.reservation:
        lines.append(f"ReservationName={node.reservation}")
    if node.labels:
        lines.append("Labels=" + ",".join(f"{key}={value}" for key, value in sorted(node.labels.items())))
    return record(lines, style)


def _node_times(node: "Node", style: Style) -> list[str]:
    boot = style.moment(node.boot_at, "None") if node.HasField("boot_at") else "None"
    started = style.moment(node.agent_start_at, "None") if node.HasField("agent_start_at") else "None"
    busy = style.moment(node.last_busy_at) if node.HasField("last_busy_at") else "Unknown"
    return [f"BootTime={boot} SlurmdStartTime={started}", f"LastBusyTime={busy} ResumeAfterTime=None"]


def _node_tres(node: "Node") -> list[str]:
    has = {"cpu": node.cpus, "mem": node.memory_mb, "billing": node.cpus}
    used = {"cpu": node.alloc_cpus, "mem": node.alloc_memory_mb}
    for amounts, items in ((has, node.gres), (used, node.gres_used)):
        for item in items:
            name = f"gres/{item.name}"
            amounts[name] = amounts.get(name, 0) + item.count
    return [f"CfgTRES={tres.format_tres(has)}", f"AllocTRES={tres.format_tres(used)}"]


def _yes(flag: bool) -> str:
    return "YES" if flag else "NO"


def partition_text(part: "Partition", style: Style) -> str:
    """The record of one partition."""
    accounts = f"AllowAccounts={','.join(part.allow_accounts) or 'ALL'}"
    if part.deny_accounts:
        accounts = f"DenyAccounts={','.join(part.deny_accounts)}"
    qos = f"AllowQos={','.join(part.allow_qos) or 'ALL'}"
    if part.deny_qos:
        qos = f"DenyQos={','.join(part.deny_qos)}"
    default_time = (
        duration.limit_long(part.default_time_secs) if part.HasField("default_time_secs") else "NONE"
    )
    max_time = duration.limit_long(part.max_time_secs if part.HasField("max_time_secs") else None)
    max_nodes = str(part.max_nodes) if part.HasField("max_nodes") else "UNLIMITED"
    cpus = str(part.max_cpus_per_node) if part.HasField("max_cpus_per_node") else "UNLIMITED"
    over = str(-(-part.over_time_limit_secs // 60)) if part.HasField("over_time_limit_secs") else "NONE"
    memory = "DefMemPerNode=UNLIMITED"
    if part.HasField("def_memory_per_cpu_mb"):
        memory = f"DefMemPerCPU={part.def_memory_per_cpu_mb}"
    elif part.HasField("def_memory_per_node_mb"):
        memory = f"DefMemPerNode={part.def_memory_per_node_mb}"
    most = str(part.max_memory_per_node_mb) if part.HasField("max_memory_per_node_mb") else "UNLIMITED"
    total = part.tres or tres.format_tres(
        {
            "cpu": part.total_cpus,
            "mem": part.total_memory_mb,
            "node": part.total_nodes,
            "billing": part.total_cpus,
        }
    )
    return record(
        [
            f"PartitionName={part.name}",
            f"AllowGroups={','.join(part.allow_groups) or 'ALL'} {accounts} {qos}",
            f"AllocNodes=ALL Default={'YES' if part.is_default else 'NO'} QoS=N/A",
            f"DefaultTime={default_time} DisableRootJobs={_yes(part.disable_root_jobs)}"
            f" ExclusiveUser={_yes(part.exclusive_user)} GraceTime={part.grace_time_secs} Hidden=NO",
            f"MaxNodes={max_nodes} MaxTime={max_time} MinNodes={part.min_nodes} LLN={_yes(part.lln)}"
            f" MaxCPUsPerNode={cpus} MaxCPUsPerSocket=UNLIMITED",
            *([f"Alternate={part.alternate}"] if part.alternate else []),
            f"Nodes={null(part.nodes)}",
            f"PriorityJobFactor={part.priority_job_factor} PriorityTier={part.priority_tier}"
            f" RootOnly={_yes(part.root_only)} ReqResv={_yes(part.req_resv)}"
            f" OverSubscribe={part.oversubscribe or 'NO'}",
            f"OverTimeLimit={over} PreemptMode={part.preempt_mode.upper() or 'OFF'}",
            f"State={part.state} TotalCPUs={part.total_cpus} TotalNodes={part.total_nodes}"
            " SelectTypeParameters=NONE",
            "JobDefaults=(null)",
            f"{memory} MaxMemPerNode={most}",
            f"TRES={null(total)}",
        ],
        style,
    )
