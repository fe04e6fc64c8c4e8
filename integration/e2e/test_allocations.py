"""What users do inside an allocation: salloc, steps by srun, in turn and side by side, under restarts."""

import re
import signal
import subprocess
from typing import Any

import pytest


class Alloc:
    """A script run by `salloc` in a cluster."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def run(self, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return self.cluster.run("salloc", "-Q", *(options or ("-N2", "-n4")), "bash", "-c", script)

    def start(self, script: str, *options: str) -> "subprocess.Popen[str]":
        words = ["salloc", "-Q", *(options or ("-N2", "-n4")), "bash", "-c", script]
        return subprocess.Popen(
            words,
            env=self.cluster.env,
            cwd=self.cluster.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def alloc(shared: Any) -> Any:
    yield Alloc(shared)
    shared.until(shared.idle, "idle nodes")


@pytest.fixture
def own(cluster: Any) -> Alloc:
    return Alloc(cluster)


def lines(done: Any) -> list[str]:
    return sorted(done.stdout.splitlines())


def test_two_nodes_four_ranks(alloc: Any) -> None:
    done = alloc.run("srun -l sh -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME'")
    assert done.returncode == 0, done.stderr
    assert lines(done) == ["0: 0 0 0 node1", "1: 1 1 0 node1", "2: 2 0 1 node2", "3: 3 1 1 node2"]


def test_what_salloc_says(alloc: Any) -> None:
    done = alloc.cluster.run("salloc", "-N2", "true")
    job = re.search(r"Granted job allocation (\d+)", done.stderr)
    assert job
    assert done.stderr == (
        f"salloc: Granted job allocation {job[1]}\n"
        "salloc: Nodes node[1-2] are ready for job\n"
        f"salloc: Relinquishing job allocation {job[1]}\n"
    )
    assert alloc.cluster.wait(job[1]) == "COMPLETED"


def test_the_commands_code_is_the_jobs(alloc: Any) -> None:
    done = alloc.run("echo $SLURM_JOB_ID; exit 6")
    assert done.returncode == 6
    job = done.stdout.strip()
    assert alloc.cluster.wait(job) == "FAILED"
    assert alloc.cluster.history(job, "ExitCode", "-X") == [["6:0"]]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("true", 0, ""),
        ("exit $((SLURM_PROCID + 3))", 6, "node2: task 3: Exited with exit code 6"),
        ("[ $SLURM_PROCID != 2 ] || kill -9 $$", 137, "node2: task 2: Killed"),
        ("[ $SLURM_PROCID != 0 ] || kill -TERM $$", 143, "node1: task 0: Terminated"),
    ],
)
def test_codes(alloc: Any, command: str, code: int, said: str) -> None:
    done = alloc.run(f"srun sh -c '{command}'")
    assert done.returncode == code
    assert said in done.stderr


def test_a_failing_rank_ends_the_step(alloc: Any) -> None:
    done = alloc.run("srun -n2 -N1 -K sh -c '[ $SLURM_PROCID = 1 ] && exit 4; sleep 60'")
    assert done.returncode == 143
    assert "node1: task 1: Exited with exit code 4" in done.stderr
    assert re.search(r"srun: Terminating StepId=\d+\.0\n", done.stderr)


def test_the_first_end_starts_a_clock(alloc: Any) -> None:
    done = alloc.run("srun -n2 -N1 -W1 sh -c '[ $SLURM_PROCID = 0 ] && exit; sleep 60'")
    assert done.returncode == 143
    assert "srun: First task exited 1s ago\n" in done.stderr


def test_a_step_waits_for_its_turn(alloc: Any) -> None:
    """In the order of asking; nothing runs beside a step that has everything."""
    script = """
        rm -f go began; mkfifo go
        srun sh -c '[ $SLURM_PROCID != 0 ] || { echo first; touch began; read x < go; }' &
        until [ -e began ]; do sleep 0.05; done
        for i in second third; do
            srun sh -c "[ \\$SLURM_PROCID != 0 ] || echo $i" 2> err.$i &
            until grep -q retrying err.$i; do sleep 0.05; done
        done
        srun -I true; echo refused $?
        srun -n1 --overlap echo beside
        echo > go
        wait; cat err.second >&2; rm go began err.*
    """
    done = alloc.run(script)
    assert done.stdout.split() == ["first", "refused", "1", "beside", "second", "third"]
    assert re.search(r"srun: Job \d+ step creation temporarily disabled, retrying \(Requested", done.stderr)
    assert re.search(r"srun: Step created for StepId=\d+\.\d\n", done.stderr)
    assert "Unable to create step for job" in done.stderr


def test_steps_side_by_side(alloc: Any) -> None:
    """Four exact steps of one CPU each meet: none waits for another."""
    script = """
        rm -f met.*
        for i in 1 2 3 4; do
            srun -Q --exact -n1 -N1 sh -c "touch met.$i
                until [ -e met.1 -a -e met.2 -a -e met.3 -a -e met.4 ]; do sleep 0.02; done" &
        done
        wait; rm met.*
    """
    assert alloc.run(script).returncode == 0


def test_a_program_per_rank(alloc: Any) -> None:
    script = "printf '0 echo one %%t\\n1-3 echo more %%t %%o\\n' > mp; srun -l --multi-prog mp"
    assert lines(alloc.run(script)) == ["0: one 0", "1: more 1 0", "2: more 2 1", "3: more 3 2"]


def test_input_and_output_by_rank(alloc: Any) -> None:
    script = """
        echo x | srun -l cat; echo y | srun -l -i 2 cat
        for i in 0 1 2 3; do echo in$i > in.$i; done; srun -i in.%t -o out.%t cat; cat out.0 out.3
    """
    assert alloc.run(script).stdout.split("\n")[-3:-1] == ["in0", "in3"]
    assert sorted(alloc.run(script).stdout.splitlines())[:5] == ["0: x", "1: x", "2: x", "2: y", "3: x"]


def test_places(alloc: Any) -> None:
    script = "for o in '-w node2' '-x node1' '-r 1 -N 1'; do srun $o -n1 sh -c 'echo $SLURMD_NODENAME'; done"
    assert alloc.run(script).stdout.split() == ["node2"] * 3


def test_a_batch_script_runs_steps(shared: Any) -> None:
    script = "srun -l hostname; srun -n1 sh -c 'exit 3'; echo code $?"
    job = shared.sbatch("-N2", "-n2", "-o", "steps.out", "--wrap", script)
    assert shared.wait(job) == "COMPLETED"
    out = (shared.work / "steps.out").read_text()
    assert "code 3" in out
    rows = shared.history(job, "JobID,State,ExitCode")
    assert [row[0] for row in rows] == [job, f"{job}.batch", f"{job}.0", f"{job}.1"]
    assert rows[3][1:] == ["FAILED", "3:0"]


def test_from_outside(shared: Any) -> None:
    shared.ok("salloc", "--no-shell", "-Q", "-N2")
    job = shared.ok("squeue", "-h", "-o", "%i", "-n", "no-shell").strip()
    assert sorted(shared.ok("srun", f"--jobid={job}", "-l", "echo", "hi").splitlines()) == ["0: hi", "1: hi"]
    shared.ok("scancel", job)
    shared.wait(job)
    done = shared.run("srun", f"--jobid={job}", "true")
    assert done.returncode == 1
    assert f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {job}\n" in done.stderr


def test_cancelled_steps_and_signals(alloc: Any) -> None:
    script = """
        rm -f began; srun sh -c 'touch began; exec sleep 60' & P=$!
        until [ -e began ]; do sleep 0.05; done
        squeue -h -s $SLURM_JOB_ID -o '%i %j %A'; scancel $SLURM_JOB_ID.0; wait $P; echo $?
        rm began; srun -n1 sh -c 'trap "exit 5" USR1; touch began; while :; do sleep 0.1; done' & P=$!
        until [ -e began ]; do sleep 0.05; done
        scancel -s USR1 $SLURM_JOB_ID.1; wait $P; echo $?; rm began
    """
    done = alloc.run(script)
    words = done.stdout.split()
    assert [words[1:3], words[-2:]] == [["sh", "4"], ["143", "5"]], done.stdout
    assert "Job step aborted: Waiting up to 32 seconds for job step to finish." in done.stderr


def test_the_limit_hangs_up_the_command(alloc: Any) -> None:
    script = "trap 'echo hup; exit 9' HUP; while :; do sleep 0.1; done"
    done = alloc.cluster.run("salloc", "-t", "0:02", "bash", "-c", script)
    assert (done.returncode, done.stdout) == (9, "hup\n")
    assert "has exceeded its time limit and its allocation has been revoked.\n" in done.stderr


def test_two_interrupts_end_the_step_alone(alloc: Any) -> None:
    script = "srun -n1 sh -c 'echo ready; exec sleep 60'; echo code $?; srun -n1 echo next"
    child = alloc.start(script)
    assert child.stdout is not None
    # What the task has written has come through srun, which therefore follows the step.
    assert child.stdout.readline() == "ready\n"
    find = ["pgrep", "-f", "srun -n1 sh -c echo ready"]
    pids = subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()
    for _ in range(2):
        for pid in pids:
            subprocess.run(["kill", f"-{int(signal.SIGINT)}", pid], check=False)
    out, err = child.communicate(timeout=60)
    assert out == "code 130\nnext\n", err


def test_a_step_outlives_its_agent_and_the_controller(own: Alloc) -> None:
    """Every line comes once and in order, and the codes are right."""
    script = "srun -l sh -c 'for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done; exit $SLURM_PROCID'"
    child = own.start(script, "-N2", "-n2")
    assert child.stdout is not None
    first = child.stdout.readline()
    own.cluster.restart("spurd-node2", "--kill")
    own.cluster.restart("spurctld-1", "--kill")
    # Not communicate(): it passes over what readline() has read ahead.
    with child:
        out = child.stdout.read()
    assert child.returncode == 1
    for rank in "01":
        mine = [line for line in (first + out).splitlines() if line.startswith(f"{rank}: ")]
        assert mine == [f"{rank}: {i}" for i in range(1, 9)]


def test_a_step_is_made_while_the_controller_comes_back(own: Alloc) -> None:
    script = "echo ready; read < go; srun -n2 echo made; rm go"
    child = own.start("mkfifo go; " + script, "-N2", "-n2")
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    own.cluster.kill("spurctld-1")
    (own.cluster.work / "go").write_text("\n")
    own.cluster.restart("spurctld-1")
    out, err = child.communicate(timeout=90)
    assert (child.returncode, out) == (0, "made\nmade\n"), err


def test_the_interactive_step_outlives_the_agent_and_has_steps_beside_it(own: Alloc) -> None:
    """`srun --interactive`, which is what Slurm's salloc starts its shell with."""
    script = "echo begun; squeue -s -h -o %i; read -r line; srun -N1 -n1 echo inner; echo got $line; exit 3"
    words = ["salloc", "-Q", "-N1", "-n1", "srun", "--interactive", "bash", "-c", script]
    cluster = own.cluster
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=cluster.env, cwd=cluster.work, stdin=pipe, stdout=pipe, text=True
    ) as run:
        try:
            assert run.stdin is not None
            assert run.stdout is not None
            assert run.stdout.readline() == "begun\n"
            job = re.fullmatch(r"(\d+)\.interactive\n", run.stdout.readline())
            assert job
            cluster.restart("spurd-node1", "--kill")
            run.stdin.write("a line\n")
            run.stdin.flush()
            told = [run.stdout.readline() for _ in range(3)]
        finally:
            run.stdin and run.stdin.close()
            code = run.wait(60)
    assert (code, told) == (3, [f"{job[1]}.extern\n", "inner\n", "got a line\n"])
    cluster.until(
        lambda: (
            f"{job[1]}.interactive|FAILED|3:0" in cluster.ok("sacct", "-nP", "-o", "jobid,state,exitcode")
        ),
        "it is in the history",
    )
    refused = cluster.run("srun", "--interactive", "true")
    assert (refused.returncode, refused.stderr) == (
        255,
        "srun: error: --interactive is for steps inside an allocation\n",
    )
