"""Keys of the file format that this release does nothing with.

A key that is read and ignored misleads, so setting one of these to anything but its default is an error.
A row names a key or a whole section; when a release gives a key its effect, it removes the row.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spur_core.config.schema import Seen


class Row(NamedTuple):
    """`path` is a dotted key or section, `why` names the feature that is missing.

    `harmless`: values that may be set besides the default.  `partial`: some values do have an effect.
    """

    path: str
    why: str = ""
    harmless: tuple[object, ...] = ()
    partial: bool = False


TABLE: tuple[Row, ...] = (
    # Controller.
    Row("controller.rest_addr", "REST"),
    Row("controller.max_job_id", "wrapping of job ids"),
    # Fair share, QOS, associations and their audit.
    Row("accounting.fairshare_refresh_secs", "fair share"),
    Row("accounting.grp_wall_window_days", "QOS"),
    Row("accounting.default_qos", "QOS"),
    Row("accounting.require_qos", "QOS"),
    Row("accounting.require_association", "associations"),
    Row("accounting.txn_retention_days", "the audit table"),
    Row("scheduler.fairshare_halflife_days", "fair share", (14,)),
    Row("scheduler.max_jobs_per_cycle", "a bound on one pass"),
    Row("scheduler.priority_weight_assoc", "associations"),
    Row("scheduler.priority_weight_fairshare", "fair share"),
    Row("scheduler.priority_weight_qos", "QOS"),
    Row("scheduler.preempt_type", "QOS", ("partition_prio",), partial=True),
    # Trust.
    Row("auth.plugin", "spurauthd", ("none", "jwt"), partial=True),
    Row("admission", "admission by join token"),
    # Node.
    Row("agent.supervisor", "running steps without a supervisor"),
    Row("rlimits", "limits other than those of the agent", ("", "0", "unlimited")),
    Row("mpi", "MPI plugins"),
    Row("devices.auto_detect", "finding devices; list them in [[devices.gres]]"),
    Row("devices.cdi_spec_dirs", "CDI; list devices in [[devices.gres]]"),
    Row("devices.gres.multiple_files", "several files per device"),
    Row("isolation", "isolation layers"),
    Row("network.wg_enabled", "the mesh"),
    Row("network.wg_cidr", "the mesh"),
    Row("network.wg_interface", "the mesh"),
    Row("network.wg_port", "the mesh"),
    Row("network.reject_loopback_comm_addr", "judging node addresses"),
    # Services around the cluster.
    Row("metrics", "metrics"),
    Row("rest_api", "REST"),
    Row("hooks.prolog_slurmctld", "hooks of the controller"),
    Row("hooks.epilog_slurmctld", "hooks of the controller"),
    Row("hooks.srun_prolog", "hooks of srun in the file; use srun --prolog"),
    Row("hooks.srun_epilog", "hooks of srun in the file; use srun --epilog"),
    Row("hooks.job_submit", "hooks of the controller"),
    Row("hooks.job_submit_lua", "hooks of the controller"),
    Row("notifications", "notifications"),
    Row("power", "power saving"),
    Row("update", "looking for updates"),
    Row("kubernetes", "Kubernetes"),
    Row("cluster", "Kubernetes"),
    Row("federation", "federation"),
    Row("burst_buffer", "burst buffers"),
)
_BY_PATH = {row.path: row for row in TABLE}


def row_for(path: str) -> Row | None:
    """The row that covers a dotted key: its own, or that of a section around it."""
    while path:
        found = _BY_PATH.get(path)
        if found is not None:
            return found
        path = path.rpartition(".")[0]
    return None


def refused(seen: Iterable[Seen]) -> Iterator[str]:
    """One sentence for each key of a file that would have no effect."""
    for one in seen:
        row = row_for(one.path)
        if row is None or one.value == one.default or one.value in row.harmless:
            continue
        yield f"{one.where} is not supported by this release ({row.why})"
