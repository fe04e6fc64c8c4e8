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
