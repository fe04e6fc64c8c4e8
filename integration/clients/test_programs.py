"""Programs from PyPI, as they are, submit, watch and end jobs by our commands (docs/clients.md)."""

import sys
from pathlib import Path
from typing import Any

import pytest
from testkit import pypi

BIN = Path(sys.executable).parent
PROGRAMS = (
    "submitit==1.5.4",
    "dask-jobqueue==0.9.0",
    "simple-slurm==0.3.6",
    "qtoolkit==0.1.7",
    "psij-python==0.9.11",
    "pysqa==1.1.1",
    "gridtk==4.0.0",
    "parsl==2026.10.26",
    "snakemake==9.27.1",
    "snakemake-executor-plugin-slurm==2.8.0",
    "snakemake-executor-plugin-slurm-jobstep==0.6.1",
)
#: Program -> the lines by which programs.py says that all went well.
SAYS = {
    "submitit": [
        "cluster: slurm",
        "result: 5",
        "array: [11, 22, 33]",
        "failed: True",
        "cancelled: True",
        "preempted: 2",
    ],
    "dask": ["result: 5", "ids: True"],
    "simple_slurm": ["id: True", "output: said simple", "listed: True", "state: CANCELLED"],
    "qtoolkit": ["submitted: SUCCESSFUL", "name: qtk", "row: True qtk", "cancelled: SUCCESSFUL"],
    "psij": ["state: COMPLETED", "output: by psij", "cancelled: CANCELED"],
    "pysqa": ["id: True", "status: running", "state: CANCELLED"],
    "gridtk": ["done: True", "report: True"],
    "parsl": ["result: 5"],
    "snakemake": ["output: ['by snakemake', 'by snakemake', '']"],
}


@pytest.fixture(scope="module")
def environment() -> Path:
    return pypi.environment(*PROGRAMS) / "bin"


@pytest.mark.parametrize("name", SAYS)
def test_it_runs_jobs(name: str, environment: Path, shared: Any) -> None:
    place = shared.work / f"by-{name}"
    place.mkdir()
    script = Path(__file__).with_name("programs.py")
    env = {"PATH": f"{environment}:{BIN}:/usr/local/bin:/usr/bin:/bin", "HOME": str(place)}
    done = shared.run(str(environment / "python"), str(script), name, env=env, cwd=place)
    told = [line for line in done.stdout.splitlines() if line in SAYS[name]]
    assert (done.returncode, told) == (0, SAYS[name]), done.stdout + done.stderr


def test_batchspawners_command_lines(shared: Any) -> None:
    """JupyterHub's spawner itself needs a hub; these are its templates."""
    script = (
        "#!/bin/bash\n#SBATCH --output=jupyterhub_%j.log\n#SBATCH --job-name=spawner-jupyterhub\n"
        "#SBATCH --chdir=/tmp\n#SBATCH --export=PATH,HUB\n#SBATCH --get-user-env=L\n#SBATCH --time=1:00:00\n"
        "#SBATCH --mem=100M\n#SBATCH --cpus-per-task=1\ntrap 'echo SIGTERM received' TERM\nsrun sleep 300\n"
    )
    job = shared.ok("sbatch", "--parsable", input=script).split("\n")[-2].split(";")[0]
    ask = ("squeue", "-h", "-j", job, "-o", "%T %B")
    shared.until(lambda: shared.ok(*ask).startswith("RUNNING "), "it runs", 60)
    assert shared.ok(*ask).split()[-1] in ("node1", "node2")
    shared.ok("scancel", job)
    shared.wait(job, "CANCELLED", secs=60)
