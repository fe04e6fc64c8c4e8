"""The sections of features that this release does not have: read, checked, and refused when used.

They are here so that a file says what it means in every release, and so that a mistyped key is still told
from a feature that is missing.  `unsupported` decides what is refused.
"""

from dataclasses import dataclass

from spur_core.config import kinds
from spur_core.config.schema import key, tables
from spur_core.config.sections import GresEntry


@dataclass(frozen=True)
class NetworkSection:
    """`[network]`: the mesh between nodes.  `agent_port` is honoured."""

    wg_enabled: bool = key(False, kinds.boolean, "encrypted mesh")
    wg_cidr: str = key("10.44.0.0/16", kinds.text, "addresses of the mesh")
    wg_interface: str = key("spur0", kinds.text, "its interface")
    wg_port: int = key(51820, kinds.whole(1, 65535), "its port")
    agent_port: int = key(6818, kinds.whole(0, 65535), "port of spurd when agent.listen_addr is not set")
    reject_loopback_comm_addr: bool = key(
        False, kinds.boolean, "refuse nodes that register a loopback or link-local address", live=True
    )


@dataclass(frozen=True)
class RlimitsSection:
    """`[rlimits]`."""

    memlock: str = key("unlimited", kinds.text, "locked memory of jobs", live=False)


@dataclass(frozen=True)
class MpiSection:
    """`[mpi]`."""

    plugin_dir: str = key("/usr/lib/spur", kinds.path, "where plugins are")
    pmix_plugin: str = key("", kinds.path, "the PMIx plugin")
    pmix_min_version: str = key("4.1.0", kinds.text, "oldest PMIx library")
    pmix_tmpdir: str = key("/tmp/spur-pmix", kinds.path, "scratch", live=True)  # noqa: S108 documented default
    modex_connect_timeout_secs: int = key(5, kinds.whole(1), "connect time-out", live=True)
    modex_fence_timeout_secs: int = key(120, kinds.whole(1), "fence time-out", live=True)
    modex_verify_timeout_secs: int = key(30, kinds.whole(1), "verify time-out", live=True)


@dataclass(frozen=True)
class UpdateSection:
    """`[update]`: a scheduler host looks for updates only when told to."""

    check_on_startup: bool = key(False, kinds.boolean, "look for updates at start")
    auto_update: bool = key(False, kinds.boolean, "download them")
    channel: str = key("stable", kinds.word("stable", "nightly"), "which ones")
    cache_dir: str = key("/var/cache/spur", kinds.path, "where to")


@dataclass(frozen=True)
class AdmissionSection:
    """`[admission]`."""

    mode: str = key("open", kinds.word("open", "token"), "whether a new node needs a join token", live=True)


@dataclass(frozen=True)
class DevicesSection:
    """`[devices]`; the `[[devices.gres]]` entries are honoured."""

    auto_detect: bool = key(False, kinds.boolean, "find GPUs")
    cdi_spec_dirs: tuple[str, ...] = key((), kinds.texts, "where CDI specifications are")
    gres: tuple[GresEntry, ...] = tables(GresEntry, "generic resources of the node that reads this file")


@dataclass(frozen=True)
class IsolationSection:
    """`[isolation]`: an agent that runs as root always changes to the job's user."""

    setuid: bool = key(True, kinds.boolean, "run as the job's user")
    namespaces: bool = key(False, kinds.boolean, "private namespaces")
    seccomp: bool = key(False, kinds.boolean, "system call filter")
    landlock: bool = key(False, kinds.boolean, "file system rules")


@dataclass(frozen=True)
class MetricsSection:
    """`[metrics]`."""

    enabled: bool = key(False, kinds.boolean, "serve metrics")
    listen_addr: str = key("[::]:6822", kinds.address, "where")
    bind: str = key("loopback", kinds.word("loopback", "all"), "to whom")
    high_cardinality: bool = key(False, kinds.boolean, "series per user and account", live=True)


@dataclass(frozen=True)
class RestSection:
    """`[rest_api]`."""

    enabled: bool = key(False, kinds.boolean, "serve REST")


@dataclass(frozen=True)
class HooksSection:
    """`[hooks]`."""

    prolog: str = key(
        "", kinds.path, "node, as root, before an attempt's first step: a script, a directory or a pattern"
    )
    epilog: str = key("", kinds.path, "node, as root, after an attempt's last step; likewise")
    task_prolog: str = key("", kinds.path, "node, as the user, before each task; likewise")
    task_epilog: str = key("", kinds.path, "node, as the user, after each task; likewise")
    timeout_secs: int = key(600, kinds.whole(1, 86400), "time that one of these but the epilog may take")
    prolog_slurmctld: str = key("", kinds.path, "controller, before a job", live=True)
    epilog_slurmctld: str = key("", kinds.path, "controller, after a job", live=True)
    srun_prolog: str = key("", kinds.path, "srun's host, before")
    srun_epilog: str = key("", kinds.path, "srun's host, after")
    job_submit: str = key("", kinds.path, "controller, at submission", live=True)
    job_submit_lua: str = key("", kinds.path, "controller, at submission", live=True)


@dataclass(frozen=True)
class NotificationsSection:
    """`[notifications]`."""

    webhook_url: str = key("", kinds.text, "where events go", live=True)
    smtp_command: str = key("", kinds.text, "what sends mail", live=True)
    from_address: str = key("", kinds.text, "sender of mail", live=True)


@dataclass(frozen=True)
class PowerSection:
    """`[power]`."""

    suspend_timeout_secs: int | None = key(None, kinds.whole(1), "idle time before a node is suspended")
    suspend_command: str = key("", kinds.text, "what suspends", live=True)
    resume_command: str = key("", kinds.text, "what resumes", live=True)


@dataclass(frozen=True)
class KubernetesSection:
    """`[kubernetes]`."""

    enabled: bool = key(False, kinds.boolean, "operator")
    kubeconfig: str = key("", kinds.path, "how to reach it")
    namespace: str = key("spur", kinds.text, "where it works")
    node_label_selector: str = key("spur.amd.com/managed=true", kinds.text, "its nodes")


@dataclass(frozen=True)
class ClusterSection:
    """`[cluster]`: a Kubernetes cluster of our own."""

    enabled: bool = key(False, kinds.boolean, "run one")
    distro: str = key("k0s", kinds.text, "which")
    pod_cidr: str = key("10.42.0.0/16", kinds.text, "addresses of pods")
    service_cidr: str = key("10.43.0.0/16", kinds.text, "addresses of services")
    cni: str = key("kuberouter", kinds.word("kuberouter", "calico"), "network plugin")
    cni_mtu: int = key(1450, kinds.whole(576, 65535), "its MTU")
    control_plane_node: str = key("", kinds.text, "first control plane")
    control_plane_replicas: int = key(1, kinds.whole(1), "how many")
    k8s_provisioning_timeout_secs: int = key(600, kinds.whole(0), "then it is degraded")
    allow_admin_kubeconfig: bool = key(False, kinds.boolean, "serve the administrator's file", live=True)
    k0s_version: str = key("v1.36.2+k0s.0", kinds.text, "release")
    k0s_binary: str = key("/usr/local/bin/k0s", kinds.path, "program")
    storage_provisioner: str = key("local-path", kinds.word("local-path", "none"), "storage")
    local_path_dir: str = key("/var/lib/local-path-provisioner", kinds.text, "where")


@dataclass(frozen=True)
class FederationPeer:
    """`[[federation.clusters]]`."""

    name: str = key("", kinds.name, "its name", live=True, required=True)
    address: str = key("", kinds.text, "http://HOST:6817", live=True, required=True)


@dataclass(frozen=True)
class FederationSection:
    """`[federation]`."""

    clusters: tuple[FederationPeer, ...] = tables(FederationPeer, "peer clusters")


@dataclass(frozen=True)
class SwitchEntry:
    """`[[topology.switches]]`."""

    name: str = key("", kinds.name, "its name", required=True, example="leaf1")
    nodes: str = key("", kinds.hostlist, "nodes of a leaf", example="n[01-16]")
    switches: str = key("", kinds.hostlist, "children of an inner switch", example="s0")
    link_speed: int = key(1, kinds.whole(1), "shown by scontrol show topology; any unit")


@dataclass(frozen=True)
class TopologySection:
    """`[topology]`."""

    plugin: str = key(
        "none",
        kinds.word("none", "tree", "block"),
        "shape of the network: none = all nodes alike, tree = [[topology.switches]], block = groups by name",
    )
    switches: tuple[SwitchEntry, ...] = tables(SwitchEntry, "switches")
    block_size: int | None = key(
        None, kinds.whole(1), "nodes per block, in the order of their names", example=18
    )


@dataclass(frozen=True)
class BurstBufferSection:
    """`[burst_buffer]`."""

    total_gb: int = key(0, kinds.whole(0), "GiB in the pool", live=True)
