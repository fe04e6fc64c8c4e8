"""What a job may ask for, end to end: GPUs in each form, whole nodes, makes of nodes, rules of partitions."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spur_core.grammar import idlist

#: Added to the configuration of `spur up`: three nodes of four CPUs and four GPUs each.
MORE = """
[[partitions]]
name = "chem"
nodes = "ALL"
allow_accounts = ["chem"]

[[partitions]]
name = "notbio"
nodes = "ALL"
deny_accounts = ["bio"]
deny_qos = ["low"]

[[partitions]]
name = "whole"
nodes = "ALL"
oversubscribe = "EXCLUSIVE"

[[partitions]]
name = "half"
nodes = "node[1-2]"
max_cpus_per_node = 2

[[partitions]]
name = "reserved"
nodes = "ALL"
req_resv = true

[[partitions]]
name = "old"
state = "DRAIN"
nodes = "ALL"
alternate = "half"
"""


@pytest.fixture(scope="module")
def gpus(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(3, "--cpus", "4", "--gres", "gpu:4")
    config = Path(cluster.env["SPUR_CONF"])
    text = config.read_text()
    nodes = text[text.index("[[nodes]]") :]
    # What is said of node3 stands before what is said of all.
    first = nodes.replace("node[1-3]", "node3") + 'features = ["fast"]\n\n'
    config.write_text(text.replace(nodes, first + nodes) + MORE)
    cluster.restart("spurctld-1")
    cluster.until(cluster.idle, "the nodes are back")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _empty(gpus: Any) -> Iterator[None]:
    yield
    gpus.ok("scancel", "-u", gpus.ok("id", "-un").strip())
    gpus.until(gpus.idle, "all nodes idle")


def record(cluster: Any, job: str) -> dict[str, str]:
    """`scontrol show job` by key."""
    line = cluster.ok("scontrol", "-o", "show", "job", job)
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def output(cluster: Any, job: str) -> list[str]:
    """Lines that an ended job wrote, sorted."""
    cluster.wait(job, "COMPLETED")
    return sorted((cluster.work / f"slurm-{job}.out").read_text().splitlines())


def held(cluster: Any, job: str) -> dict[str, tuple[int, str]]:
    """CPUs and gres that a running job has, by node."""
    cluster.wait(job, "RUNNING")
    text = cluster.ok("scontrol", "-d", "show", "job", job)
    found = {}
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if line.strip().startswith("Nodes="):
            gres = re.sub(r"\(IDX:[^)]*\)", "", words["GRES"])
            found[words["Nodes"]] = (idlist.mask_of(words["CPU_IDs"]).bit_count(), gres)
    return found


def test_gpus_of_the_whole_job(gpus: Any) -> None:
    script = "echo gpus=$SLURM_GPUS here=$SLURM_GPUS_ON_NODE ids=$SLURM_JOB_GPUS per=$SLURM_GPUS_PER_NODE"
    job = gpus.sbatch("-G", "6", "--wrap", script)
    assert output(gpus, job) == ["gpus=6 here=4 ids=0,1,2,3 per="]
    shown = record(gpus, job)
    assert shown["TresPerJob"] == "gres/gpu:6"
    assert "gres/gpu=6" in shown["ReqTRES"]
    assert "gres/gpu=6" in shown["AllocTRES"]
    assert gpus.history(job, "NNodes,ReqTRES,AllocTRES", "-X") == [
        ["2", shown_by_name(shown["ReqTRES"]), shown_by_name(shown["AllocTRES"])]
    ]


def shown_by_name(tres: str) -> str:
    """sacct's order of a TRES text."""
    return ",".join(sorted(tres.split(",")))


def test_gpus_of_each_node(gpus: Any) -> None:
    job = gpus.sbatch("-N", "2", "--gpus-per-node=3", "--wrap", "sleep 60")
    assert held(gpus, job) == {"node1": (1, "gpu:3"), "node2": (1, "gpu:3")}
    assert gpus.ok("squeue", "-h", "-j", job, "-o", "%b").strip() == "gres/gpu:3"
    # What is left is one GPU on each of two nodes, and four on the third.
    other = gpus.sbatch("-N", "2", "--gpus-per-node=2", "--wrap", "true")
    gpus.until(lambda: record(gpus, other)["Reason"] == "Resources", "it waits for GPUs")
    script = "echo $SLURM_GPUS_PER_NODE"
    assert output(gpus, gpus.sbatch("--gpus-per-node=1", "--wrap", script)) == ["1"]


def test_gpus_of_each_task_go_to_the_tasks(gpus: Any) -> None:
    step = "srun sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'"
    job = gpus.sbatch(
        "-n", "3", "-N", "1", "--gpus-per-task=1", "--wrap", f"echo per=$SLURM_GPUS_PER_TASK; {step}"
    )
    lines = output(gpus, job)
    assert lines.pop() == "per=1"
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert len({line.split()[1] for line in lines}) == 3
    assert record(gpus, job)["TresPerTask"] == "gres/gpu:1"
    # The tasks may lie unevenly: five GPUs, four on one node.
    job = gpus.sbatch("-n", "5", "-N", "2", "--gpus-per-task=1", "--wrap", "sleep 60")
    assert sorted(gres for _, gres in held(gpus, job).values()) in (["gpu:1", "gpu:4"], ["gpu:2", "gpu:3"])


def test_steps_side_by_side_each_with_a_gpu(gpus: Any) -> None:
    step = "srun -n1 --exact sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 1' & "
    job = gpus.sbatch("-n", "2", "-N", "1", "--gpus-per-task=1", "--wrap", f"{step * 2} wait")
    assert output(gpus, job) == ["0", "1"]


def test_srun_of_its_own_binds_gpus_of_tasks(gpus: Any) -> None:
    out = gpus.ok("srun", "-n2", "-N1", "--gpus-per-task=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert sorted(out.split()) == ["0,1", "2,3"]


def test_cpus_and_memory_follow_gpus(gpus: Any) -> None:
    script = "echo $SLURM_CPUS_PER_GPU $SLURM_MEM_PER_GPU $SLURM_CPUS_ON_NODE; sleep 60"
    job = gpus.sbatch("-G", "2", "-N", "1", "--cpus-per-gpu=2", "--mem-per-gpu=20M", "--wrap", script)
    assert held(gpus, job) == {"node1": (4, "gpu:2")}
    shown = record(gpus, job)
    assert (shown["CpusPerTres"], shown["MemPerTres"]) == ("gres/gpu:2", "gres/gpu:20")
    assert shown["AllocTRES"].startswith("cpu=4,mem=40M,node=1")
    path = gpus.work / f"slurm-{job}.out"
    gpus.until(lambda: path.read_text() == "2 20 4\n", "the variables")


def test_tasks_that_share_gpus(gpus: Any) -> None:
    step = "srun sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    job = gpus.sbatch("-N1", "-G", "2", "--ntasks-per-gpu=2", "--wrap", f"echo n=$SLURM_NTASKS; {step}")
    assert output(gpus, job) == ["0", "0", "1", "1", "n=4"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-G", "13"), "Requested node configuration is not available"),
        (("--gpus-per-node=5",), "Requested node configuration is not available"),
        (("-G", "h100:1"), "Requested node configuration is not available"),
        (("-N", "3", "-G", "2"), "--gpus=2 is less than the 3 nodes of the job; each needs one at least"),
        (("--gres=tape:1",), "Invalid generic resource (gres) specification"),
        (("--mem-per-gpu=1G",), "--mem-per-gpu needs GPUs"),
        (("--sockets-per-node=64",), "Requested node configuration is not available"),
        (("--tmp=9999T",), "Requested node configuration is not available"),
        (("--mincpus=5",), "Requested node configuration is not available"),
        (("-p", "chem"), "Invalid account or account/partition combination specified"),
        (("-p", "node,chem"), "Invalid partition name specified"),
        (("-p", "notbio", "-A", "bio"), "Invalid account or account/partition combination specified"),
        (("-p", "notbio", "-A", "chem", "-q", "low"), "Invalid qos specification"),
        (("-p", "reserved"), "Access/permission denied"),
        (("-t", "10", "--deadline=now+5minutes"), "Requested time limit is invalid"),
        (("-t", "10", "--time-min=20"), "Requested time limit is invalid"),
    ],
)
def test_impossible_wishes(gpus: Any, options: tuple[str, ...], text: str) -> None:
    done = gpus.run("sbatch", *options, "--wrap", "true")
    assert (done.returncode, text in done.stderr) == (1, True), done.stderr


def test_whole_nodes_and_nodes_of_one_user(gpus: Any) -> None:
    job = gpus.sbatch("--exclusive", "--wrap", "sleep 60")
    assert held(gpus, job) == {"node1": (4, "gpu:4")}
    assert record(gpus, job)["OverSubscribe"] == "NO"
    own = gpus.sbatch("--exclusive=user", "--wrap", "sleep 60")
    same = gpus.sbatch("--wrap", "sleep 60")
    assert list(held(gpus, own)) == list(held(gpus, same)) == ["node2"]
    assert record(gpus, own)["OverSubscribe"] == "USER"
    user = gpus.ok("id", "-un").strip()
    assert f"Owner={user}(" in gpus.ok("scontrol", "show", "node", "node2")
    assert "Owner=N/A" in gpus.ok("scontrol", "show", "node", "node1")


def test_features(gpus: Any) -> None:
    assert list(held(gpus, gpus.sbatch("-C", "fast", "--wrap", "sleep 60"))) == ["node3"]
    done = gpus.run("sbatch", "-C", "slow", "--wrap", "true")
    assert (done.returncode, "Invalid feature specification" in done.stderr) == (1, True)


def test_more_cpus_than_tasks(gpus: Any) -> None:
    assert held(gpus, gpus.sbatch("--mincpus=3", "--wrap", "sleep 60"))["node1"][0] == 3


def test_choice_of_nodes(gpus: Any) -> None:
    spread = gpus.sbatch("-n", "3", "-N", "1-3", "--spread-job", "--wrap", "sleep 60")
    assert list(held(gpus, spread)) == ["node1", "node2", "node3"]
    fewest = gpus.sbatch("-N", "1-3", "--use-min-nodes", "--wrap", "sleep 60")
    assert list(held(gpus, fewest)) == ["node1"]
    row = gpus.sbatch("-N", "2", "--contiguous", "-c", "2", "--wrap", "sleep 60")
    assert list(held(gpus, row)) in (["node1", "node2"], ["node2", "node3"])
    assert record(gpus, row)["Contiguous"] == "1"


def test_partitions_with_rules(gpus: Any) -> None:
    job = gpus.sbatch("-p", "chem", "-A", "chem", "--wrap", "true")
    gpus.wait(job, "COMPLETED")
    whole = gpus.sbatch("-p", "whole", "-w", "node3", "--wrap", "sleep 60")
    assert held(gpus, whole) == {"node3": (4, "gpu:4")}
    half = [gpus.sbatch("-p", "half", "-c", "2", "--wrap", "sleep 60") for _ in range(3)]
    assert [list(held(gpus, one)) for one in half[:2]] == [["node1"], ["node2"]]
    gpus.until(lambda: record(gpus, half[2])["Reason"] == "Resources", "CPUs of the partition are used")
    # The other half of the node is there for other partitions.
    assert list(held(gpus, gpus.sbatch("-p", "notbio", "-A", "x", "-c", "2", "--wrap", "sleep 60"))) == [
        "node1"
    ]
    moved = gpus.sbatch("-p", "old", "-H", "--wrap", "true")
    assert record(gpus, moved)["Partition"] == "half"
    shown = gpus.ok("scontrol", "show", "partition", "whole")
    assert "OverSubscribe=EXCLUSIVE" in shown
    assert "AllowAccounts=chem" in gpus.ok("scontrol", "show", "partition", "chem")
    assert "MaxCPUsPerNode=2" in gpus.ok("scontrol", "show", "partition", "half")
    assert gpus.ok("sinfo", "-h", "-p", "whole", "-o", "%h %B").split()[:2] == ["EXCLUSIVE", "UNLIMITED"]
    assert gpus.ok("sinfo", "-h", "-p", "half", "-o", "%h %B %r").split()[:3] == ["NO", "2", "no"]


def test_a_job_that_waits_can_ask_for_something_else(gpus: Any) -> None:
    job = gpus.sbatch("-H", "-G", "2", "--wrap", "echo $SLURM_GPUS_ON_NODE")
    gpus.ok("scontrol", "update", f"JobId={job}", "TresPerJob=gres/gpu:3", "MinCPUsNode=2", "TimeMin=0")
    assert record(gpus, job)["TresPerJob"] == "gres/gpu:3"
    gpus.ok("scontrol", "release", job)
    assert output(gpus, job) == ["3"]


def test_a_deadline_that_passes(gpus: Any) -> None:
    job = gpus.sbatch("-H", "--deadline=now+3", "--wrap", "true")
    gpus.wait(job, "DEADLINE")
    assert record(gpus, job)["Reason"] == "DeadLine"
