"""Slurm's exact reasons of limits.  Their spelling follows no rule, so they are listed."""

from typing import Final

#: Kind of TRES in the tables below.
_KINDS: Final = ("cpu", "node", "mem", "gres", "license", "billing", "bb", "energy")
_UNKNOWN: Final = "unknown"


def kind(tres: str) -> str:
    """ "gres" of "gres/gpu:h100"."""
    found = tres.partition("/")[0]
    return found if found in _KINDS else _UNKNOWN


def order(tres: str) -> tuple[int, str]:
    """The order in which TRES are looked at: cpu, node, mem, gres, then the others."""
    found = kind(tres)
    return (_KINDS.index(found) if found in _KINDS else len(_KINDS), tres)


def _row(pattern: str, cpu: str, node: str, memory: str) -> dict[str, str]:
    """The regular ones of a row, and the three that are not."""
    words = {"gres": "GRES", "license": "License", "billing": "Billing", "bb": "BB", "energy": "Energy"}
    found = {name: pattern.format(word) for name, word in words.items()}
    return found | {"cpu": cpu, "node": node, "mem": memory, _UNKNOWN: pattern.format("Unknown")}


#: "assoc" or "qos" -> which limit -> kind of TRES -> reason.
TRES: Final[dict[str, dict[str, dict[str, str]]]] = {
    "assoc": {
        "job": _row(
            "AssocMax{}PerJob", "AssocMaxCpuPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxMemPerJob"
        ),
        "per_node": _row(
            "AssocMax{}PerNode", "AssocMaxCpuPerNode", "AssocMaxUnknownPerNode", "AssocMaxMemPerNode"
        ),
        "job_mins": _row(
            "AssocMax{}MinutesPerJob",
            "AssocMaxCpuMinutesPerJobLimit",
            "AssocMaxNodeMinutesPerJob",
            "AssocMaxMemMinutesPerJob",
        ),
        "group": _row("AssocGrp{}", "AssocGrpCpuLimit", "AssocGrpNodeLimit", "AssocGrpMemLimit"),
        "group_mins": _row(
            "AssocGrp{}Minutes", "AssocGrpCPUMinutesLimit", "AssocGrpNodeMinutes", "AssocGrpMemMinutes"
        ),
        "group_run_mins": _row(
            "AssocGrp{}RunMinutes",
            "AssocGrpCPURunMinutesLimit",
            "AssocGrpNodeRunMinutes",
            "AssocGrpMemRunMinutes",
        ),
    },
    "qos": {
        "min": _row("QOSMin{}", "QOSMinCpuNotSatisfied", "QOSMinNode", "QOSMinMemory"),
        "job": _row("QOSMax{}PerJob", "QOSMaxCpuPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMaxMemoryPerJob"),
        "per_node": _row(
            "QOSMax{}PerNode", "QOSMaxCpuPerNode", "QOSMaxUnknownPerNode", "QOSMaxMemoryPerNode"
        ),
        "job_mins": _row(
            "QOSMax{}MinutesPerJob",
            "QOSMaxCpuMinutesPerJobLimit",
            "QOSMaxNodeMinutesPerJob",
            "QOSMaxMemoryMinutesPerJob",
        ),
        "user": _row(
            "QOSMax{}PerUser", "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxMemoryPerUser"
        ),
        "account": _row("Max{}PerAccount", "MaxCpuPerAccount", "MaxNodePerAccount", "MaxMemoryPerAccount"),
        "group": _row("QOSGrp{}", "QOSGrpCpuLimit", "QOSGrpNodeLimit", "QOSGrpMemLimit"),
        "group_mins": _row(
            "QOSGrp{}Minutes", "QOSGrpCPUMinutesLimit", "QOSGrpNodeMinutes", "QOSGrpMemoryMinutes"
        ),
        "group_run_mins": _row(
            "QOSGrp{}RunMinutes",
            "QOSGrpCPURunMinutesLimit",
            "QOSGrpNodeRunMinutes",
            "QOSGrpMemoryRunMinutes",
        ),
    },
}

ASSOC_MAX_JOBS: Final = "AssocMaxJobsLimit"
ASSOC_MAX_SUBMIT: Final = "AssocMaxSubmitJobLimit"
ASSOC_MAX_WALL: Final = "AssocMaxWallDurationPerJobLimit"
ASSOC_GRP_JOBS: Final = "AssocGrpJobsLimit"
ASSOC_GRP_SUBMIT: Final = "AssocGrpSubmitJobsLimit"
ASSOC_GRP_WALL: Final = "AssocGrpWallLimit"
QOS_MAX_JOBS_USER: Final = "QOSMaxJobsPerUserLimit"
QOS_MAX_JOBS_ACCOUNT: Final = "MaxJobsPerAccount"
QOS_MAX_SUBMIT_USER: Final = "QOSMaxSubmitJobPerUserLimit"
QOS_MAX_SUBMIT_ACCOUNT: Final = "MaxSubmitJobsPerAccount"
QOS_MAX_WALL: Final = "QOSMaxWallDurationPerJobLimit"
QOS_GRP_JOBS: Final = "QOSGrpJobsLimit"
QOS_GRP_SUBMIT: Final = "QOSGrpSubmitJobsLimit"
QOS_GRP_WALL: Final = "QOSGrpWallLimit"


def tres(source: str, limit: str, name: str) -> str:
    """The reason for one TRES.

    Args:
        source: "assoc" or "qos".
        limit: a key of `TRES[source]`.
        name: of the TRES, e.g. "gres/gpu".
    """
    return TRES[source][limit][kind(name)]
