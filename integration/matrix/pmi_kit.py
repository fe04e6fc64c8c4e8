"""A step of two ranks in the middle of a PMI exchange, held there by a gate."""

from pathlib import Path

from step_kit import Client
from testkit.crash_cluster import CrashCluster

#: Rank 0 waits in the barrier, rank 1 before it until the gate is there; then each reads what the other put.
_PROGRAM = """
import os, socket, time
gate, rank = os.environ["GATE_FILE"], int(os.environ["PMI_RANK"])
link = socket.socket(fileno=int(os.environ["PMI_FD"]))
reader = link.makefile("r")
def say(line):
    link.sendall((line + "\\n").encode())
    return reader.readline().strip()
say("cmd=init pmi_version=1 pmi_subversion=1")
say(f"cmd=put kvsname=x key=k{rank} value=of {rank}")
open(f"{gate}.{rank}", "w").close()
while rank and not os.path.exists(gate):
    time.sleep(0.05)
assert say("cmd=barrier_in") == "cmd=barrier_out", "the exchange has ended"
assert say(f"cmd=get kvsname=x key=k{1 - rank}").endswith(f"value=of {1 - rank}")
say("cmd=finalize")
"""


class Exchange:
    """Begun by an srun from outside, beside whatever the job runs.

    Args:
        name: of its gate, which no other has.
    """

    def __init__(self, cluster: CrashCluster, job: str, name: str) -> None:
        self._gate = Path(cluster.work) / name
        words = f"srun --jobid={job} --overlap -O -n2 -N1 --mpi=pmi2 --export=ALL,GATE_FILE={self._gate}"
        self.client = Client(cluster, *words.split(), "python3", "-I", "-S", "-c", _PROGRAM)
        cluster.until(
            lambda: all(self._at(rank).exists() for rank in (0, 1)), "the ranks are in the exchange"
        )

    def _at(self, rank: int) -> Path:
        return self._gate.with_name(f"{self._gate.name}.{rank}")

    def open(self) -> None:
        """Let it go on."""
        self._gate.touch()
