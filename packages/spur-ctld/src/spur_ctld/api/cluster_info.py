"""The configuration as `scontrol show config` prints it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from spur_core.grammar.duration import long_form
from spur_ctld.priority_rules import as_slurm_shows
from spur_ctld.settings import ShellSettings
from spur_ctld.site import Site
from spur_ctld.state.cluster import ClusterState
from spur_proto import controller_pb2 as pb

#: What Slurm lists and this release has no setting for, with the value that describes what happens.
_CONSTANT: Final = {
    "AccountingStorageEnforce": "none",
    "AccountingStorageHost": "localhost",
    "AccountingStoragePort": "0",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages",
    "DefMemPerNode": "UNLIMITED",
    "Epilog": "(null)",
    "JobAcctGatherType": "jobacct_gather/cgroup",
    "JobRequeue": "1",
    "KillOnBadExit": "0",
    "MessageTimeout": "10 sec",
    "MpiDefault": "none",
    "PluginDir": "(null)",
    "PrivateData": "none",
    "ProctrackType": "proctrack/cgroup",
    "Prolog": "(null)",
    "ReturnToService": "2",
    "SchedulerParameters": "(null)",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU_MEMORY",
    "TaskPlugin": "task/cgroup",
    "TmpFS": "/tmp",  # noqa: S108  Slurm's default, shown and not used
    "TrackWCKey": "No",
    "TreeWidth": "0",
    "WaitTime": "0 sec",
}


def entries(
    state: ClusterState,
    facts: Mapping[str, str],
    visibility: str,
    timeout_secs: int,
    words: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Key -> value in alphabetical order, whatever the case.

    Args:
        facts: what only the process knows (`SLURM_CONF`, `BOOT_TIME`, ...).
        words: settings of the scheduler under Slurm's names.
    """
    settings = state.settings
    gres = sorted({item.name for node in state.nodes.values() for item in node.gres})
    own = {
        "ClusterName": settings.cluster_name,
        "EnforcePartLimits": settings.enforce_part_limits,
        "FirstJobId": str(settings.first_job_id),
        "GresTypes": ",".join(gres) or "(null)",
        "InactiveLimit": "0 sec",
        "Licenses": ",".join(f"{name}:{count}" for name, count in settings.licenses) or "(null)",
        "KillWait": f"{settings.kill_wait} sec",
        "MaxArraySize": str(settings.max_array_size),
        "MaxJobCount": str(settings.max_job_count),
        "MinJobAge": f"{settings.retention} sec",
        "NEXT_JOB_ID": str(max(state.next_job_id, settings.first_job_id)),
        "PrivateData": "none" if visibility == "full" else "jobs",
        "SlurmdTimeout": f"{timeout_secs} sec",
        "SlurmctldTimeout": "120 sec",
    }
    merged = {**_CONSTANT, **own, **words, **facts}
    return dict(sorted(merged.items(), key=lambda pair: pair[0].lower()))


def scheduler_words(settings: ShellSettings, state: ClusterState) -> dict[str, str]:
    """How preemption and the network are set, as Slurm writes it."""
    policy = settings.policy
    exempt = long_form(settings.preempt_exempt_secs)
    modes = {partition.preempt_mode.upper() for partition in state.partitions.values()}
    strongest = next((mode for mode in ("CANCEL", "REQUEUE", "SUSPEND") if mode in modes), "OFF")
    parameters = [
        *(["youngest_first"] if policy.preempt_youngest_first else []),
        *(["strict_order"] if policy.preempt_strict_order else []),
        *([f"reorder_count={policy.preempt_reorder_count}"] if policy.preempt_reorder_count != 1 else []),
        *(
            [f"min_exempt_priority={policy.preempt_min_exempt_priority}"]
            if policy.preempt_min_exempt_priority is not None
            else []
        ),
    ]
    plugin = settings.topology.plugin
    return {
        "PreemptExemptTime": exempt,
        "PreemptMode": "OFF" if policy.preempt_type == "none" else strongest,
        "PreemptParameters": ",".join(parameters) or "(null)",
        "PreemptType": f"preempt/{policy.preempt_type}",
        "TopologyPlugin": f"topology/{'flat' if plugin == 'none' else plugin}",
    }


class ClusterInfo:
    """GetConfig."""

    site: Site

    async def GetConfig(self, request: pb.GetConfigRequest, context: Any) -> pb.GetConfigResponse:
        site = self.site
        found = entries(
            site.ledger.state,
            site.facts,
            site.settings.visibility,
            site.settings.heartbeat_timeout_secs,
            scheduler_words(site.settings, site.ledger.state) | as_slurm_shows(site.settings.priorities),
        )
        return pb.GetConfigResponse(
            entries=[pb.ConfigEntry(key=key, value=value) for key, value in found.items()],
            server_time=site.clock(),
        )
