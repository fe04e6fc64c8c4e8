"""A partition in the keys of Slurm's data parser."""

from typing import TYPE_CHECKING, Any

from spur_cli.data.values import nv

if TYPE_CHECKING:
    from spur_proto import common_pb2


def partition_tree(part: "common_pb2.PartitionInfo", cluster: str = "") -> dict[str, Any]:
    """Times in minutes but the grace, which is in seconds; memory in MB."""

    def told(name: str) -> int | None:
        return int(getattr(part, name)) if part.HasField(name) else None

    def minutes(name: str) -> int | None:
        found = told(name)
        return None if found is None else -(-found // 60)

    def or_infinite(value: int | None) -> dict[str, Any]:
        return nv(value, infinite=value is None)

    sharing, _, jobs = part.oversubscribe.partition(":")
    shares = int(jobs) if jobs.isdigit() else 0 if sharing == "EXCLUSIVE" else 1
    return {
        "nodes": {"allowed_allocation": "", "configured": part.nodes, "total": part.total_nodes},
        "accounts": {"allowed": ",".join(part.allow_accounts), "deny": ",".join(part.deny_accounts)},
        "groups": {"allowed": ",".join(part.allow_groups)},
        "qos": {"allowed": ",".join(part.allow_qos), "deny": ",".join(part.deny_qos), "assigned": ""},
        "alternate": part.alternate,
        "tres": {"billing_weights": "", "configured": part.tres},
        "cluster": cluster,
        "select_type": [],
        "cpus": {"task_binding": 0, "total": part.total_cpus},
        "defaults": {
            "memory_per_cpu": told("def_memory_per_cpu_mb") or told("def_memory_per_node_mb") or 0,
            "partition_memory_per_cpu": nv(told("def_memory_per_cpu_mb")),
            "partition_memory_per_node": nv(told("def_memory_per_node_mb")),
            "time": nv(minutes("default_time_secs")),
            "job": "",
        },
        "grace_time": part.grace_time_secs,
        "maximums": {
            "cpus_per_node": or_infinite(told("max_cpus_per_node")),
            "cpus_per_socket": or_infinite(None),
            "memory_per_cpu": told("max_memory_per_node_mb") or 0,
            "partition_memory_per_cpu": nv(None),
            "partition_memory_per_node": nv(told("max_memory_per_node_mb")),
            "nodes": or_infinite(told("max_nodes")),
            "shares": shares,
            "oversubscribe": {"jobs": shares, "flags": ["force"] if sharing == "FORCE" else []},
            "time": or_infinite(minutes("max_time_secs")),
            "over_time_limit": nv(minutes("over_time_limit_secs")),
        },
        "minimums": {"nodes": part.min_nodes},
        "name": part.name,
        "node_sets": "",
        "priority": {"job_factor": part.priority_job_factor, "tier": part.priority_tier},
        "timeouts": {"resume": nv(None), "suspend": nv(None)},
        "partition": {"state": [part.state]},
        "suspend_time": nv(None),
        "topology": "",
    }
