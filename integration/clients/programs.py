"""Programs from PyPI that are made for Slurm, each used as its own documentation says.

    python programs.py NAME

Runs in the environment that has them, with our commands on PATH; prints `NAME: WORD` lines that the test
compares.  Nothing of ours is imported here.
"""

import asyncio
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path


def wait_for(ask, what, secs=90):
    """Ask again and again; the first true answer."""
    deadline = time.monotonic() + secs
    while time.monotonic() < deadline:
        found = ask()
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"after {secs} s still not: {what}")


def add(a, b):
    return a + b


def fail():
    raise ValueError("on purpose")


def nap():
    time.sleep(300)


def submitit_():
    """A function, an array, one that fails, one that is cancelled, one that is preempted and goes on."""
    import submitit
    from submitit.core.utils import FailedJobError
    from submitit.helpers import DelayedSubmission

    class Counter:
        """Counts its runs; the first is preempted in the middle."""

        def __init__(self):
            self.run = 1

        def __call__(self):
            Path(f"counter-{self.run}").touch()
            if self.run == 1:
                time.sleep(300)
            return self.run

        def checkpoint(self):
            after = Counter()
            after.run = self.run + 1
            return DelayedSubmission(after)

    def now(job):
        return job.watcher.get_state(job.job_id, mode="force")

    executor = submitit.AutoExecutor(folder="submitit/%j")
    print("cluster:", executor.cluster)
    executor.update_parameters(timeout_min=5, mem_gb=0.1, slurm_array_parallelism=2)
    print("result:", executor.submit(add, 2, 3).result())
    print("array:", [job.result() for job in executor.map_array(add, [1, 2, 3], [10, 20, 30])])
    broken = executor.submit(fail)
    try:
        broken.result()
    except FailedJobError as error:
        wait_for(lambda: now(broken) == "FAILED", "it is known")
        print("failed:", "on purpose" in str(error))
    sleeper = executor.submit(nap)
    wait_for(lambda: now(sleeper) == "RUNNING", "it runs")
    sleeper.cancel()
    wait_for(lambda: now(sleeper).startswith("CANCELLED"), "it is cancelled")
    print("cancelled: True")
    counter = executor.submit(Counter())
    wait_for(lambda: Path("counter-1").exists(), "the first run is in the middle")
    counter._interrupt(timeout=False)
    print("preempted:", counter.result())


def dask():
    """A worker started by a job of its own takes the work."""
    from dask.distributed import Client
    from dask_jobqueue import SLURMCluster

    with SLURMCluster(
        cores=1, memory="500MB", processes=1, walltime="00:05:00", interface="lo", log_directory="dask"
    ) as cluster:
        cluster.scale(jobs=1)
        with Client(cluster) as client:
            print("result:", client.submit(add, 2, 3).result(timeout=120))
        # No job is kept in a variable: dask counts those that nobody holds as closed.
        print("ids:", all(str(job.job_id).isdigit() for job in cluster.workers.values()))
    wait_for(lambda: not _out("squeue", "-h", "-n", "dask-worker", "-t", "R"), "its jobs have ended")


def simple_slurm():
    from simple_slurm import Slurm

    slurm = Slurm(job_name="simple", output="simple-%j.out", time=datetime.timedelta(minutes=5))
    job = slurm.sbatch("echo said $SLURM_JOB_NAME")
    print("id:", isinstance(job, int))
    _ended(job)
    print("output:", Path(f"simple-{job}.out").read_text().strip())
    sleeper = Slurm(job_name="simple").sbatch("sleep 300")
    slurm.squeue.update_squeue()
    print("listed:", sleeper in slurm.squeue.jobs)
    slurm.scancel.cancel_job(sleeper)
    print("state:", _ended(sleeper))


def qtoolkit():
    from qtoolkit.core.data_objects import QResources
    from qtoolkit.io.slurm import SlurmIO

    slurm = SlurmIO()
    script = slurm.get_submission_script(
        ["echo by qtoolkit; sleep 2"],
        QResources(processes=1, job_name="qtk", time_limit=300, output_filepath="qtk.out"),
    )
    Path("qtk.sh").write_text(script)
    done = _run(slurm.get_submit_cmd("qtk.sh"))
    submitted = slurm.parse_submit_output(done.returncode, done.stdout, done.stderr)
    print("submitted:", submitted.status.name)
    job = submitted.job_id

    def one():
        found = _run(slurm.get_job_cmd(job))
        return slurm.parse_job_output(found.returncode, found.stdout, found.stderr)

    print("name:", one().name)
    listed = _run(slurm.get_jobs_list_cmd([job], None))
    (row,) = slurm.parse_jobs_list_output(listed.returncode, listed.stdout, listed.stderr)
    print("row:", row.job_id == job, row.name)
    wait_for(lambda: one().state.name == "DONE", "it is done")
    sleeper = slurm.parse_submit_output(0, _out("sbatch", "--wrap", "sleep 300"), "").job_id
    done = _run(slurm.get_cancel_cmd(sleeper))
    print("cancelled:", slurm.parse_cancel_output(done.returncode, done.stdout, done.stderr).status.name)


def psij():
    from psij import Job, JobExecutor, JobSpec

    executor = JobExecutor.get_instance("slurm")
    job = Job(JobSpec(executable="/bin/echo", arguments=["by psij"], stdout_path=Path.cwd() / "psij.out"))
    executor.submit(job)
    print("state:", job.wait(timeout=datetime.timedelta(seconds=90)).state.name)
    print("output:", Path("psij.out").read_text().strip())
    sleeper = Job(JobSpec(executable="/bin/sleep", arguments=["300"]))
    executor.submit(sleeper)
    sleeper.cancel()
    print("cancelled:", sleeper.wait(timeout=datetime.timedelta(seconds=90)).state.name)


def pysqa():
    from pysqa import QueueAdapter

    queue = QueueAdapter(queue_type="SLURM")
    job = queue.submit_job(job_name="pysqa", working_directory=str(Path.cwd()), cores=1, command="sleep 300")
    print("id:", isinstance(job, int))
    print(
        "status:",
        wait_for(lambda: queue.get_status_of_job(process_id=job) == "running" and "running", "it runs"),
    )
    queue.delete_job(process_id=job)
    print("state:", _ended(job))


def gridtk():
    _run(["gridtk", "submit", "--wrap", "echo by gridtk"], check=True)
    listed = wait_for(lambda: "COMPLETED" in _out("gridtk", "list") and _out("gridtk", "list"), "it is done")
    print("done:", "gridtk" in listed)
    print("report:", "by gridtk" in _out("gridtk", "report"))


def parsl_():
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.launchers import SrunLauncher
    from parsl.providers import SlurmProvider

    provider = SlurmProvider(
        init_blocks=1,
        max_blocks=1,
        walltime="00:05:00",
        exclusive=False,
        launcher=SrunLauncher(),
        partition="debug",
    )
    executor = HighThroughputExecutor(address="127.0.0.1", provider=provider, max_workers_per_node=1)
    with parsl.load(Config(executors=[executor], run_dir="parsl", strategy="none")):
        print("result:", parsl.python_app(add)(2, 3).result(timeout=120))
    wait_for(lambda: not _out("squeue", "-h", "-t", "R,PD", "-o", "%j").count("parsl"), "its block has ended")


def snakemake():
    Path("Snakefile").write_text(
        "rule all:\n    input: 'b.txt'\n"
        "rule a:\n    output: 'a.txt'\n    resources: mem_mb=1500, runtime=5\n"
        "    shell: 'echo by snakemake > {output}'\n"
        "rule b:\n    input: 'a.txt'\n    output: 'b.txt'\n    resources: mem_mb=1500, runtime=5\n"
        "    shell: 'cat {input} {input} > {output}'\n"
    )
    done = _run(
        [
            "snakemake", "--executor", "slurm", "--jobs", "2", "--latency-wait", "5",
            "--default-resources", "slurm_partition=debug", "--slurm-no-account",
            "--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "2",
        ]
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    print("output:", Path("b.txt").read_text().split("\n"))


def _run(argv, check=False):
    words = ["sh", "-c", argv] if isinstance(argv, str) else argv
    return subprocess.run(words, capture_output=True, text=True, timeout=150, check=check)


def _out(*argv):
    return _run(list(argv), check=True).stdout


def _ended(job):
    """The state of a job that has ended."""

    def state():
        words = _out("sacct", "-X", "-n", "-P", "-o", "State", "-j", str(job)).split()
        return words and words[0] not in ("PENDING", "RUNNING", "COMPLETING") and words[0]

    return wait_for(state, f"job {job} has ended")


if __name__ == "__main__":
    name = sys.argv[1]
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    found = globals()[f"{name}_" if f"{name}_" in globals() else name]
    if asyncio.iscoroutinefunction(found):
        asyncio.run(found())
    else:
        found()
