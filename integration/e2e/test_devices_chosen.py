"""The controller chooses CPUs and GPUs, the agents obey; also over the death of an agent."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Four GPUs, 0 linked to 2 and 1 to 3; two CPUs near each.
GPUS = "".join(
    f"""
[[devices.gres]]
name = "gpu"
type = "a100"
cores = "{cores}"
links = "{links}"
"""
    for cores, links in (
        ("0-1", "-1,0,4,0"),
        ("4-5", "0,-1,0,4"),
        ("2-3", "4,0,-1,0"),
        ("6-7", "0,4,0,-1"),
    )
)
TELL = "echo gpus=$SLURM_JOB_GPUS seen=$CUDA_VISIBLE_DEVICES"


@pytest.fixture
def linked(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(2, "--cpus", "8")
    config = Path(cluster.env["SPUR_CONF"])
    config.write_text(config.read_text() + GPUS)
    for daemon in ("spurctld-1", "spurd-node1", "spurd-node2"):
        cluster.restart(daemon)
    cluster.until(cluster.idle, "the nodes are back")
    cluster.until(lambda: "gpu:a100:4" in cluster.ok("sinfo", "-h", "-N", "-n", "node1", "-o", "%G"), "GPUs")
    yield cluster
    cluster.down()


def has(cluster: Any, job: str) -> dict[str, tuple[str, str]]:
    """CPUs and gres of a job by node, as `scontrol -d show job` tells them."""
    found = {}
    for line in cluster.ok("scontrol", "-d", "show", "job", job).splitlines():
        if line.strip().startswith("Nodes="):
            words = dict(word.split("=", 1) for word in line.split())
            found[words["Nodes"]] = (words["CPU_IDs"], words["GRES"])
    return found


def start(cluster: Any, *options: str, script: str = TELL) -> str:
    """A job that tells what it sees and then waits for its file `go.ID`."""
    text = f"{script}; while [ ! -e {cluster.work}/go.$SLURM_JOB_ID ]; do sleep 0.1; done"
    job: str = cluster.sbatch(*options, "--wrap", text)
    cluster.wait(job, "RUNNING")
    cluster.until(lambda: told(cluster, job), "it has told")
    return job


def told(cluster: Any, job: str) -> str:
    path = cluster.work / f"slurm-{job}.out"
    return str(path.read_text().strip()) if path.exists() else ""


def end(cluster: Any, job: str) -> None:
    (cluster.work / f"go.{job}").touch()
    cluster.wait(job, "COMPLETED")


def test_two_jobs_get_gpus_of_a_link_group_each(linked: Any) -> None:
    ask = ("-w", "node1", "-c", "4", "--gres", "gpu:a100:2")
    first = start(linked, *ask)
    assert told(linked, first) == "gpus=0,2 seen=0,2"
    assert has(linked, first) == {"node1": ("0-3", "gpu:a100:2(IDX:0,2)")}

    # An agent that was killed knows again what is taken.
    linked.kill("spurd-node1")
    linked.restart("spurd-node1")
    second = start(linked, *ask)
    assert told(linked, second) == "gpus=1,3 seen=1,3"
    assert has(linked, second) == {"node1": ("4-7", "gpu:a100:2(IDX:1,3)")}
    assert "GresUsed=gpu:a100:4(IDX:0-3)" in linked.ok("scontrol", "-d", "show", "node", "node1")

    # And a controller that was killed.
    linked.kill("spurctld-1")
    linked.restart("spurctld-1")
    end(linked, first)
    third = start(linked, "-w", "node1", "--gres", "gpu:1")
    assert told(linked, third) == "gpus=0 seen=0"
    assert has(linked, third) == {"node1": ("0", "gpu:a100:1(IDX:0)")}
    assert has(linked, second) == {"node1": ("4-7", "gpu:a100:2(IDX:1,3)")}
    for job in (second, third):
        end(linked, job)


def test_steps_get_parts_of_their_job(linked: Any) -> None:
    step = "srun -n1 --exact --gres=gpu:1 bash -c 'echo step=$SLURM_STEP_GPUS seen=$CUDA_VISIBLE_DEVICES'"
    held = start(linked, "-w", "node2", "-c", "4", "--gres", "gpu:2")
    job = start(linked, "-w", "node2", "-c", "4", "--gres", "gpu:2", script=f"{TELL}; {step}")
    linked.until(lambda: "step=" in told(linked, job), "the step has told")
    assert told(linked, job).splitlines() == ["gpus=1,3 seen=1,3", "step=1 seen=1"]
    for one in (held, job):
        end(linked, one)


def test_a_job_over_two_nodes_has_its_own_on_each(linked: Any) -> None:
    one = start(linked, "-w", "node1", "-c", "2", "--gres", "gpu:1")
    both = start(linked, "-N", "2", "--ntasks-per-node", "1", "-c", "2", "--gres", "gpu:2")
    assert has(linked, one) == {"node1": ("0-1", "gpu:a100:1(IDX:0)")}
    assert has(linked, both) == {
        "node1": ("4-5", "gpu:a100:2(IDX:1,3)"),
        "node2": ("0-1", "gpu:a100:2(IDX:0,2)"),
    }
    for job in (one, both):
        end(linked, job)
