"""sinfo: layouts, grouping, filters, states."""

import pytest

from spur_cli.nodes import fields, states
from spur_core.states import NodeFlag
from spur_proto import common_pb2 as c
from spur_proto import controller_pb2 as pb

NOW = 1796032800.0


def node(name, base=c.NODE_BASE_IDLE, flags=0, **more):
    start = {"cpus": 4, "memory_mb": 16000, "sockets": 1, "cores_per_socket": 4, "threads_per_core": 1}
    return c.NodeInfo(name=name, base=base, flags=int(flags), weight=1, **(start | more))


def part(name, names, **more):
    return c.PartitionInfo(name=name, state="UP", node_names=names, min_nodes=1, **more)


NODES = [
    node("n1", c.NODE_BASE_MIXED, alloc_cpus=1, alloc_memory_mb=400),
    node("n2"),
    node("n3"),
    node(
        "n4",
        flags=NodeFlag.DRAIN,
        reason="bad disk",
        reason_user="root",
        reason_uid=0,
        reason_at=NOW,
        cpus=8,
    ),
    node(
        "c01", c.NODE_BASE_DOWN, NodeFlag.NOT_RESPONDING, gres=[c.GresCount(name="gpu", type="h100", count=2)]
    ),
]
PARTITIONS = [
    part("debug", ["n1", "n2", "n3", "n4"], is_default=True),
    part("cpu", ["c01", "n1"], max_time_secs=86400, default_time_secs=3600, max_nodes=2),
    part("empty", []),
]


@pytest.fixture
def cluster(peer):
    peer.answers["GetNodes"] = pb.GetNodesResponse(nodes=NODES)
    peer.answers["GetPartitions"] = pb.GetPartitionsResponse(partitions=PARTITIONS)
    peer.answers["Ping"] = pb.PingResponse(cluster_name="alpha")
    return peer


def test_default_layout(cli, cluster):
    assert cli("sinfo").out == (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "debug*       up   infinite      1  drain n4\n"
        "debug*       up   infinite      1    mix n1\n"
        "debug*       up   infinite      2   idle n[2-3]\n"
        "cpu          up 1-00:00:00      1  down* c01\n"
        "cpu          up 1-00:00:00      1    mix n1\n"
        "empty        up   infinite      0    n/a \n"
    )


def test_node_layout(cli, cluster):
    assert cli("sinfo", "-N", "-p", "debug").out == (
        "NODELIST   NODES PARTITION STATE \n"
        "n1             1    debug* mix   \n"
        "n2             1    debug* idle  \n"
        "n3             1    debug* idle  \n"
        "n4             1    debug* drain \n"
    )


def test_a_node_has_a_row_for_each_of_its_partitions(cli, cluster):
    assert cli("sinfo", "-h", "-N", "-o", "%N %t").out == (
        "c01 down*\nn1 mix\nn1 mix\nn2 idle\nn3 idle\nn4 drain\n"
    )


def test_summary_layout(cli, cluster):
    assert cli("sinfo", "-s").out == (
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\n"
        "debug*       up   infinite          1/2/1/4 n[1-4]\n"
        "cpu          up 1-00:00:00          1/0/1/2 c01,n1\n"
        "empty        up   infinite          0/0/0/0 \n"
    )


def test_long_layouts(cli, cluster):
    assert cli("sinfo", "-l", "-p", "cpu").out == (
        "Mon Nov 30 10:00:00 2026\n"
        "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION "
        "NODELIST\n"
        "cpu          up 1-00:00:00        1-2   no       NO        all      1       down*             c01\n"
        "cpu          up 1-00:00:00        1-2   no       NO        all      1       mixed             n1\n"
    )
    lines = cli("sinfo", "-N", "-l", "-n", "n1,n4", "-p", "debug").out.splitlines()
    assert lines[1] == (
        "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE "
        "REASON              "
    )
    assert lines[2] == (
        "n1             1    debug*       mixed 4       1:4:1  16000        0      1   (null) "
        "none                "
    )
    assert lines[3] == (
        "n4             1    debug*     drained 8       1:4:1  16000        0      1   (null) "
        "bad disk            "
    )


def test_reasons(cli, cluster):
    assert cli("sinfo", "-R").out == (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "bad disk             root      2026-11-30T10:00:00 n4\n"
    )


def test_long_partition_names_widen_the_column(cli, cluster):
    cluster.answers["GetPartitions"] = pb.GetPartitionsResponse(partitions=[part("a_long_name_x", ["n2"])])
    assert cli("sinfo").out == (
        "PARTITION     AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "a_long_name_x    up   infinite      1   idle n2\n"
    )


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-h", "-o", "%R"], ["debug", "cpu", "empty"]),
        (["-h", "-o", "%P"], ["debug*", "cpu", "empty"]),
        (["-h", "-p", "debug", "-o", "%D,%T"], ["1,drained", "1,mixed", "2,idle"]),
        (["-h", "-o", "%R,%C"], ["debug,1/11/8/20", "cpu,1/3/4/8", "empty,0/0/0/0"]),
        (["-aho", "%F/%C"], ["1/2/2/5/1/11/12/24"]),
        (["-h", "-p", "debug", "-o", "%c %m"], ["4+ 16000"]),
        (["-he", "-p", "debug", "-o", "%c"], ["8", "4"]),
        (["-h", "-n", "n2", "-o", "%t"], ["idle"]),
        (["-h", "-p", "nope"], []),
        (
            ["-h", "-p", "cpu", "-o", "%L %l %s %G"],
            ["1:00:00 1-00:00:00 1-2 gpu:h100:2", "1:00:00 1-00:00:00 1-2 (null)"],
        ),
        (["-h", "-t", "idle", "-o", "%N"], ["n[2-3]"]),
        (["-h", "-t", "down,drain", "-o", "%N"], ["c01,n4"]),
        (["-h", "-t", "idle&resp", "-o", "%N"], ["n[2-3]"]),
        (["-h", "-t", "~idle", "-o", "%N"], ["c01,n[1,4]"]),
        (["-h", "-d", "-o", "%N"], ["c01"]),
        (["-h", "-r", "-o", "%N"], ["n[1-4]"]),
        (["-h", "-p", "debug", "-S", "-D", "-o", "%D %t"], ["2 idle", "1 drain", "1 mix"]),
        (
            ["-h", "-N", "-p", "cpu", "-O", "NodeList:5,AllocMem:5,StateLong:|"],
            ["c01  0    down*|", "n1   400  mixed|"],
        ),
        (
            ["-hp", "cpu", "-O", "nodehost:4,gresused:12,cpusload:."],
            ["c01 gpu:h100:0  N/A", "n1  (null)      N/A"],
        ),
    ],
)
def test_formats_and_filters(cli, cluster, words, lines):
    result = cli("sinfo", *words)
    assert result == (0, "".join(f"{line}\n" for line in lines), "")


FULL_NODE = node(
    "n7",
    c.NODE_BASE_MIXED,
    NodeFlag.DRAIN,
    alloc_cpus=1,
    alloc_memory_mb=400,
    free_memory_mb=9000,
    cpu_load=150,
    tmp_disk_mb=77,
    features=["big", "fast"],
    gres=[c.GresCount(name="gpu", type="h100", count=2)],
    gres_used=[c.GresCount(name="gpu", type="h100", count=1, indices="0")],
    reason="bad disk",
    reason_user="ops",
    reason_uid=7,
    reason_at=NOW,
    hostname="host7",
    address="10.0.0.7",
    port=6818,
    version="0.2.0",
    reservation="r1",
)
FULL_PARTITION = part(
    "debug",
    ["n7"],
    is_default=True,
    max_time_secs=90060,
    default_time_secs=1800,
    max_nodes=4,
    max_cpus_per_node=3,
    allow_groups=["g1", "g2"],
    oversubscribe="FORCE:4",
    preempt_mode="requeue",
    priority_tier=5,
    priority_job_factor=9,
    root_only=True,
)


@pytest.fixture
def full(peer):
    peer.answers["GetNodes"] = pb.GetNodesResponse(nodes=[FULL_NODE])
    peer.answers["GetPartitions"] = pb.GetPartitionsResponse(partitions=[FULL_PARTITION])
    return peer


#: Letter, name of -O, header, text.
LETTERS = [
    ("a", "Available", "AVAIL", "up"),
    ("A", "NodeAI", "NODES(A/I) ", "0/0"),
    ("b", "features_act", "ACTIVE_FEATURES", "big,fast"),
    ("B", "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", "3"),
    ("c", "CPUs", "CPUS", "4"),
    ("C", "CPUsState", "CPUS(A/I/O/T)", "1/0/3/4"),
    ("d", "Disk", "TMP_DISK", "77"),
    ("D", "Nodes", "NODES", "1"),
    ("e", "FreeMem", "FREE_MEM", "9000"),
    ("E", "Reason", "REASON", "bad disk"),
    ("f", "Features", "AVAIL_FEATURES", "big,fast"),
    ("F", "NodeAIOT", "NODES(A/I/O/T)", "0/0/1/1"),
    ("g", "Groups", "GROUPS", "g1,g2"),
    ("G", "Gres", "GRES", "gpu:h100:2"),
    ("h", "OverSubscribe", "OVERSUBSCRIBE", "FORCE:4"),
    ("H", "TimeStamp", "TIMESTAMP", "2026-11-30T10:00:00"),
    ("i", "Reservation", "RESERVATION", "r1"),
    ("I", "PriorityJobFactor", "PRIO_JOB_FACTOR", "9"),
    ("l", "Time", "TIMELIMIT", "1-01:01:00"),
    ("L", "DefaultTime", "DEFAULTTIME", "30:00"),
    ("m", "Memory", "MEMORY", "16000"),
    ("M", "PreemptMode", "PREEMPT_MODE", "REQUEUE"),
    ("n", "NodeHost", "HOSTNAMES", "host7"),
    ("N", "NodeList", "NODELIST", "n7"),
    ("o", "NodeAddr", "NODE_ADDR", "10.0.0.7"),
    ("O", "CPUsLoad", "CPU_LOAD", "1.50"),
    ("p", "PriorityTier", "PRIO_TIER", "5"),
    ("P", "Partition", "PARTITION", "debug*"),
    ("r", "Root", "ROOT", "yes"),
    ("R", "PartitionName", "PARTITION", "debug"),
    ("s", "Size", "JOB_SIZE", "1-4"),
    ("S", "AllocNodes", "ALLOCNODES", "all"),
    ("t", "StateCompact", "STATE", "drng"),
    ("T", "StateLong", "STATE", "draining"),
    ("u", "User", "USER", "ops"),
    ("U", "UserLong", "USER", "ops(7)"),
    ("v", "Version", "VERSION", "0.2.0"),
    ("V", "Cluster", "CLUSTER", "N/A"),
    ("w", "Weight", "WEIGHT", "1"),
    ("X", "Sockets", "SOCKETS", "1"),
    ("Y", "Cores", "CORES", "4"),
    ("z", "SocketCoreThread", "S:C:T", "1:4:1"),
    ("Z", "Threads", "THREADS", "1"),
    ("", "AllocMem", "ALLOCMEM", "400"),
    ("", "Comment", "COMMENT", "(null)"),
    ("", "Extra", "EXTRA", "(null)"),
    ("", "GresUsed", "GRES_USED", "gpu:h100:1(IDX:0)"),
    ("", "Port", "PORT", "6818"),
    ("", "StateComplete", "STATECOMPLETE", "mixed+drain"),
]


def test_every_letter_and_name_by_itself(cli, full):
    letters = [row for row in LETTERS if row[0]]
    assert {row[0] for row in letters} == set(fields.BY_LETTER)
    assert {row[1].lower() for row in LETTERS} == set(fields.BY_NAME)
    out = cli("sinfo", "-o", "|".join(f"%{row[0]}" for row in letters)).out
    assert out == "|".join(row[2] for row in letters) + "\n" + "|".join(row[3] for row in letters) + "\n"
    out = cli("sinfo", "-O", ",".join(f"{row[1]}:|" for row in LETTERS)).out
    assert (
        out == "".join(f"{row[2]}|" for row in LETTERS) + "\n" + "".join(f"{r[3]}|" for r in LETTERS) + "\n"
    )
    for words in (["--helpformat"], ["--helpFormat"]):
        assert cli("sinfo", *words).code == 0
    listed = cli("sinfo", "--helpFormat").out.split()
    assert cli("sinfo", "-O", ",".join(listed)).code == 0


def test_what_portals_and_monitors_ask(cli, full):
    out = cli("sinfo", "-ho", "\\x1E%c\\x1F%n\\x1F%f").out
    assert out == "\x1e4\x1fhost7\x1fbig,fast\n"
    assert cli("sinfo", "-ho", "\x1e%c\x1f%n").out == "\x1e4\x1fhost7\n"
    out = cli("sinfo", "-a", "-o", "%P %G %l %p %c %m").out
    assert out == "PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY\ndebug* gpu:h100:2 1-01:01:00 5 4 16000\n"
    out = cli("sinfo", "-ahNO", "nodehost:100,gres:512,gresused:512,statelong").out
    assert out == f"{'host7':<100}{'gpu:h100:2':<512}{'gpu:h100:1(IDX:0)':<512}{'draining':<20}\n"
    assert cli("sinfo", "-R", "-l").out == (
        "Mon Nov 30 10:00:00 2026\n"
        "REASON               USER         TIMESTAMP           STATE  NODELIST\n"
        "bad disk             ops(7)       2026-11-30T10:00:00 drng   n7\n"
    )


@pytest.mark.parametrize(
    ("env", "words", "out"),
    [
        ({"SINFO_FORMAT": "%N"}, [], "NODELIST\nn7\n"),
        ({"SINFO_FORMAT": "%N"}, ["-h", "-o", "%t"], "drng\n"),
        ({"SINFO_PARTITION": "nope"}, ["-h"], ""),
        ({"SINFO_SORT": "-N", "SINFO_ALL": "1"}, ["-h", "-o", "%N"], "n7\n"),
        ({"SLURM_TIME_FORMAT": "%s"}, ["-h", "-o", "%H"], "1796032800\n"),
        ({"SLURM_TIME_FORMAT": "relative"}, ["-h", "-o", "%H"], "10:00:00\n"),
    ],
)
def test_variables(cli, full, env, words, out):
    assert cli("sinfo", *words, env={**env, "SPUR_CONTROLLER_ADDR": full.address}).out == out


def test_a_node_counts_once_in_a_row(cli, cluster):
    assert cli("sinfo", "-h", "-o", "%D").out == "5\n"


def test_bad_words(cli, cluster):
    result = cli("sinfo", "-t", "bogus")
    assert result.code == 1
    assert result.err.startswith('sinfo: error: Bad state string: "bogus"\nsinfo: error: valid states: ')
    assert cli("sinfo", "-h", "-p", "cpu", "-o", "%K") == (
        0,
        "%K\n",
        "Invalid node format specification: K\n",
    )
    assert cli("sinfo", "--bogus").code == 1
    assert cli("sinfo", "n1") == (
        1,
        "",
        'sinfo: error: Unrecognized option: n1\nTry "sinfo --help" for more information\n',
    )


def test_every_letter_has_a_text(cli, cluster):
    lines = cli("sinfo", "-o", "%all").out.splitlines()
    assert len(lines) == 8
    assert all(line.count("|") == len(fields.BY_LETTER) - 1 for line in lines)


def test_clusters_and_reservations(cli, cluster):
    assert cli("sinfo", "-M", "alpha", "-h", "-o", "%R").out.splitlines()[0] == "CLUSTER: alpha"
    cluster.answers["ListReservations"] = pb.ListReservationsResponse()
    assert cli("sinfo", "-T") == (0, "No reservations in the system\n", "")


def test_no_controller(cli, free_port):
    result = cli("sinfo", env={"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"})
    assert result == (
        1,
        "",
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n",
    )


@pytest.mark.parametrize(
    ("base", "flags", "alloc", "long", "compact", "control"),
    [
        (c.NODE_BASE_IDLE, 0, 0, "idle", "idle", "IDLE"),
        (c.NODE_BASE_ALLOCATED, 0, 4, "allocated", "alloc", "ALLOCATED"),
        (c.NODE_BASE_ALLOCATED, NodeFlag.COMPLETING, 4, "allocated+", "alloc+", "ALLOCATED+COMPLETING"),
        (c.NODE_BASE_MIXED, NodeFlag.PLANNED, 1, "mixed-", "mix-", "MIXED+PLANNED"),
        (c.NODE_BASE_IDLE, NodeFlag.DRAIN, 0, "drained", "drain", "IDLE+DRAIN"),
        (c.NODE_BASE_MIXED, NodeFlag.DRAIN, 1, "draining", "drng", "MIXED+DRAIN"),
        (c.NODE_BASE_DOWN, NodeFlag.DRAIN, 0, "drained", "drain", "DOWN+DRAIN"),
        (c.NODE_BASE_DOWN, NodeFlag.NOT_RESPONDING, 0, "down*", "down*", "DOWN*"),
        (c.NODE_BASE_IDLE, NodeFlag.NOT_RESPONDING, 0, "idle*", "idle*", "IDLE+NOT_RESPONDING"),
        (c.NODE_BASE_IDLE, NodeFlag.FAIL, 0, "fail", "fail", "IDLE+FAIL"),
        (c.NODE_BASE_MIXED, NodeFlag.FAIL, 1, "failing", "failg", "MIXED+FAIL"),
        (c.NODE_BASE_IDLE, NodeFlag.MAINT, 0, "maint", "maint", "IDLE+MAINT"),
        (c.NODE_BASE_IDLE, NodeFlag.COMPLETING, 0, "completing", "comp", "IDLE+COMPLETING"),
        (c.NODE_BASE_UNKNOWN, 0, 0, "unknown", "unk", "UNKNOWN"),
        (c.NODE_BASE_UNSPECIFIED, 0, 0, "unknown", "unk", "UNKNOWN"),
    ],
)
def test_state_words(base, flags, alloc, long, compact, control):
    one = node("n", base, flags, alloc_cpus=alloc)
    assert (states.long_state(one), states.compact_state(one), states.scontrol_state(one)) == (
        long,
        compact,
        control,
    )
