"""The whole configuration as one value."""

# ruff: noqa: RUF009 -- key, table and tables make dataclass fields.

from dataclasses import dataclass

from spur_core.config import kinds, sections
from spur_core.config import sections_later as later
from spur_core.config.address import split_address, with_port
from spur_core.config.schema import key, table, tables

#: A finished job is kept at least this long, so that commands can still ask for it.
MIN_RETENTION_SECS = 120


@dataclass(frozen=True)
class Config:
    """What `spur.conf` says, defaults filled in.  Sections are named as in the file."""

    cluster_name: str = key(
        "spur", kinds.name, "the cluster's name", live=True, required=True, example="spur"
    )
    licenses: dict[str, int] = key(
        {}, kinds.amounts, "licences of the cluster", live=True, example={"matlab": 10}
    )
    controller: sections.ControllerSection = table(sections.ControllerSection, "the controllers")
    accounting: sections.AccountingSection = table(sections.AccountingSection, "history of jobs")
    scheduler: sections.SchedulerSection = table(sections.SchedulerSection, "which job starts when")
    auth: sections.AuthSection = table(sections.AuthSection, "who callers are")
    agent: sections.AgentSection = table(sections.AgentSection, "the node daemon")
    client: sections.ClientSection = table(sections.ClientSection, "the commands")
    partitions: tuple[sections.PartitionEntry, ...] = tables(sections.PartitionEntry, "queues")
    nodes: tuple[sections.NodeEntry, ...] = tables(sections.NodeEntry, "what the cluster says about nodes")
    logging: sections.LoggingSection = table(sections.LoggingSection, "the daemons' logs")
    devices: later.DevicesSection = table(later.DevicesSection, "generic resources")
    network: later.NetworkSection = table(later.NetworkSection, "mesh")
    rlimits: later.RlimitsSection = table(later.RlimitsSection, "limits")
    mpi: later.MpiSection = table(later.MpiSection, "MPI")
    update: later.UpdateSection = table(later.UpdateSection, "updates")
    admission: later.AdmissionSection = table(later.AdmissionSection, "new nodes")
    isolation: later.IsolationSection = table(later.IsolationSection, "isolation")
    metrics: later.MetricsSection = table(later.MetricsSection, "metrics")
    rest_api: later.RestSection = table(later.RestSection, "REST")
    hooks: later.HooksSection = table(later.HooksSection, "hooks")
    notifications: later.NotificationsSection = table(later.NotificationsSection, "mail")
    power: later.PowerSection = table(later.PowerSection, "power saving")
    kubernetes: later.KubernetesSection = table(later.KubernetesSection, "operator")
    cluster: later.ClusterSection = table(later.ClusterSection, "Kubernetes")
    federation: later.FederationSection = table(later.FederationSection, "peers")
    topology: later.TopologySection = table(later.TopologySection, "network shape")
    burst_buffer: later.BurstBufferSection = table(later.BurstBufferSection, "burst buffer")

    @property
    def job_retention_secs(self) -> int:
        """How long a finished job stays in memory."""
        chosen = self.scheduler.min_job_age_secs
        if chosen is None:
            chosen = self.controller.terminal_job_retention_secs
        return max(chosen, MIN_RETENTION_SECS)

    @property
    def agent_listen_addr(self) -> str:
        """Where spurd answers: agent.listen_addr, or network.agent_port on every address."""
        default = sections.AgentSection().listen_addr
        if self.agent.listen_addr != default:
            return self.agent.listen_addr
        return f"[::]:{self.network.agent_port}"

    @property
    def agent_state_dir(self) -> str:
        """Where running steps live: agent.state_dir, or the controller's directory."""
        return self.agent.state_dir or self.controller.state_dir

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """HOST:PORT of every controller, in order: client_addrs, else hosts with the port of listen_addr."""
        if self.controller.client_addrs:
            return self.controller.client_addrs
        port = split_address(self.controller.listen_addr)[1]
        return tuple(with_port(host, port) for host in self.controller.hosts)

    def partition(self, name: str) -> sections.PartitionEntry | None:
        """The partition of that name."""
        return next((one for one in self.partitions if one.name == name), None)

    def node_entry(self, name: str, labels: dict[str, str]) -> sections.NodeEntry | None:
        """The first `[[nodes]]` entry that speaks of this node."""
        return next((one for one in self.nodes if one.fits(name, labels)), None)
