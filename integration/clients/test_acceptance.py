"""What real programs ask of the commands, a test a line, in the programs' own words."""

import csv
import json
import re
import socket
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ended(shared: Any) -> str:
    """A job without arguments that has ended and is kept."""
    (shared.work / "plain.sh").write_text("#!/bin/sh\necho out\n")
    job = str(shared.sbatch("plain.sh"))
    shared.wait(job, "COMPLETED")
    return job


def silent(shared: Any, *argv: str, **how: Any) -> str:
    """Run what must succeed without a word on stderr; its stdout."""
    done = shared.run(*argv, **how)
    assert (done.returncode, done.stderr) == (0, ""), argv
    return str(done.stdout)


def test_01_a_script_on_standard_input(shared: Any) -> None:
    assert re.fullmatch(r"\d+\n", silent(shared, "sbatch", "--parsable", input="#!/bin/sh\n"))


def test_02_one_line_for_each_submission(shared: Any, ended: str) -> None:
    for _ in range(2):
        out = silent(shared, "sbatch", "plain.sh", env={"LC_ALL": "C"})
        assert re.fullmatch(r"Submitted batch job \d+\n", out)


def test_03_sacct_jobs_add_up(shared: Any, ended: str) -> None:
    other = shared.sbatch("plain.sh")
    shared.wait(other)
    out = silent(shared, "sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", ended, "-j", other)
    head, *rows = out.splitlines()
    assert head == "JobID|State|NodeList"
    jobs = {row.split("|")[0]: row.split("|")[1:] for row in rows if "." not in row.split("|")[0]}
    assert set(jobs) == {ended, other}
    assert all(state == "COMPLETED" and host.startswith("node") for state, host in jobs.values())


def test_04_three_words_in_each_row(shared: Any, ended: str) -> None:
    out = silent(shared, "squeue", "-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me")
    assert [ended, "CD", "None"] in [line.split() for line in out.splitlines()]
    assert all(len(line.split()) == 3 for line in out.splitlines())


def test_05_a_job_that_left_the_queue(shared: Any, ended: str) -> None:
    ask = ("squeue", "--noheader", "-o", "%i %t", "--job")
    assert silent(shared, *ask, ended) == ""
    unknown = shared.run(*ask, "99999")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "slurm_load_jobs error: Invalid job id specified\n"
    assert silent(shared, *ask, "99999,99999") == ""


def test_06_cells_between_carets(shared: Any, ended: str) -> None:
    letters = "%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V"
    env = {"SLURM_TIME_FORMAT": "standard"}
    ask = ("squeue", "--noheader", "-o", letters, f"--jobs={ended},{ended}", "-t", "all")
    (row,) = silent(shared, *ask, env=env).splitlines()
    cells = row.split("^^^")
    assert len(cells) == 14
    assert cells[:3] == [ended, "CD", "None"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", cells[-1])


def test_07_scancel_says_what_it_ends(shared: Any) -> None:
    job = shared.sbatch("--wrap", "exec sleep 300")
    shared.wait(job, "RUNNING")
    done = shared.run("scancel", "-v", job)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"scancel: Terminating job {job}\n" in done.stderr
    shared.wait(job, "CANCELLED")


def test_08_scancel_after_the_end(shared: Any, ended: str) -> None:
    assert silent(shared, "scancel", ended) == ""


def test_09_every_word_of_a_job_has_an_equals_sign(shared: Any, ended: str) -> None:
    out = silent(shared, "scontrol", "show", "job", "-o", ended, env={"SLURM_TIME_FORMAT": "standard"})
    assert [word for word in out.split() if "=" not in word] == []


def test_10_every_field_that_sacct_names(shared: Any, ended: str) -> None:
    names = ",".join(silent(shared, "sacct", "--helpformat").split()) + ","
    out = silent(shared, "sacct", f"--format={names}", "--parsable", f"--jobs={ended}")
    assert {line.count("|") for line in out.splitlines()} == {names.count(",")}


def test_11_a_partition_begins_with_its_name_alone(shared: Any) -> None:
    out = silent(shared, "scontrol", "show", "partition")
    assert [record.split("\n")[0] for record in out.strip().split("\n\n")] == ["PartitionName=debug"]


def test_12_every_word_of_a_partition_is_a_pair(shared: Any) -> None:
    words = silent(shared, "scontrol", "show", "part", "-o").split()
    assert [word for word in words if not re.fullmatch(r"[^=]+=.+", word)] == []


def test_13_nodes_and_cpus_in_eight_numbers(shared: Any) -> None:
    (row,) = silent(shared, "sinfo", "-aho", "%F/%C").splitlines()
    numbers = [int(n) for n in row.split("/")]
    assert (len(numbers), numbers[3], numbers[7]) == (8, 2, 8)


def test_14_six_words_for_each_kind_of_node(shared: Any) -> None:
    head, *rows = silent(shared, "sinfo", "-a", "-o", "%P %G %l %p %c %m").splitlines()
    assert len(head.split(" ")) == 6
    assert rows
    assert all(len(row.split(" ")) == 6 for row in rows)


def test_15_no_padding_with_a_suffix(shared: Any, ended: str) -> None:
    for mark in ("|", "\x1f"):
        fields = f"Account:{mark},JobID:{mark},WorkDir:{mark}"
        out = silent(shared, "squeue", "--all", "--states=all", "--noconvert", "-O", fields)
        assert out.splitlines()[0] == mark.join(("ACCOUNT", "JOBID", "WORK_DIR", ""))
        assert mark.join(("(null)", ended, str(shared.work), "")) in out.split("\n")


def test_16_and_17_no_controller_is_needed(shared: Any) -> None:
    away = {"SPUR_CONF": "/nonexistent/spur.conf"}
    assert silent(shared, "srun", "--version", env=away) == "slurm 25.11.0\n"
    hosts = "n01\nn02\nn03\n"
    assert silent(shared, "scontrol", "show", "hostname", "n[01-03]", env=away) == hosts
    inside = away | {"SLURM_JOB_NODELIST": "n[01-03]"}
    assert silent(shared, "scontrol", "show", "hostnames", env=inside) == hosts


def test_18_how_long_jobs_are_kept(shared: Any) -> None:
    out = silent(shared, "scontrol", "show", "config")
    assert re.search(r"^MinJobAge               = \d+ sec$", out, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        "sacctmgr -n -s list user U format=account%256",
        "sacctmgr show assoc format=User,Account,GrpCPU,GrpMem,GrpJobs,GrpSubmit --noheader --parsable2",
        "sshare -n -P -o account,fairshare",
        "sshare -U --format Account%256 --noheader",
    ],
)
def test_19_33_and_34_accounting_is_refused_in_one_line(line: str, shared: Any) -> None:
    done = shared.run(*line.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"(sacctmgr|sshare): error: not available in this release .*\n", done.stderr)


def test_20_csv(shared: Any, ended: str) -> None:
    letters = '"%i","%j","%t","%M","%L","%D","%C","%m","%b","%R"'
    out = silent(shared, "squeue", "--me", "-t", "all", "-o", letters)
    rows = {row["JOBID"]: row for row in csv.DictReader(out.splitlines())}
    assert (rows[ended]["NAME"], rows[ended]["ST"]) == ("plain.sh", "CD")
    assert {"TIME", "TIME_LEFT", "NODES", "CPUS", "MIN_MEMORY", "TRES_PER_NODE"} < set(rows[ended])


def test_21_json_built_by_a_format(shared: Any, ended: str) -> None:
    letters = (
        '{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, '
        '"mem": "%m", "array_id": "%K", "r": "%R"}'
    )
    out = silent(shared, "squeue", "--states=all", "-h", "-r", "-o", letters)
    rows = {row["id"]: row for row in map(json.loads, out.splitlines())}
    assert rows[int(ended)]["state"] == "COMPLETED"
    node = '{"s": "%T", "mem": %m, "n": "%n", "l": "%O", "p": "%R", "fmem": "%e", "cstate": "%C", "w": %w}'
    nodes = [json.loads(line) for line in silent(shared, "sinfo", "-h", "-o", node).splitlines()]
    assert {row["n"] for row in nodes} == {socket.gethostname()}


def test_22_the_history_as_json(shared: Any) -> None:
    job = shared.sbatch("--wrap", "exit 3")
    shared.wait(job, "FAILED")
    (found,) = json.loads(silent(shared, "sacct", "-j", job, "--json"))["jobs"]
    assert found["state"]["current"] == ["FAILED"]
    assert found["exit_code"]["return_code"]["number"] == 3


def test_23_only_the_state(shared: Any, ended: str) -> None:
    out = silent(shared, "squeue", "--only-job-state", "-h", "-o", "%i %t", "-t", "all")
    assert [ended, "CD"] in [line.split(" ") for line in out.splitlines()]


def test_24_time_limits(shared: Any) -> None:
    for given, shown in {"0:7200": "02:00:00", "90": "01:30:00", "10:30": "00:11:00"}.items():
        job = shared.sbatch("--hold", f"--time={given}", "--wrap", "true")
        assert f" TimeLimit={shown} " in silent(shared, "scontrol", "show", "job", job)
        shared.ok("scancel", job)


@pytest.mark.parametrize(("asked", "who"), [("B:USR2@54", "batch"), ("USR2@54", "step")])
def test_25_a_signal_ahead_of_the_limit(shared: Any, asked: str, who: str) -> None:
    """To the batch shell alone, or to the steps alone; here some six seconds after the start."""
    told = shared.work / f"warned-{who}"
    inner = f"trap 'echo step >> {told}; exit 0' USR2; sleep 300 & wait"
    body = f"trap 'echo batch >> {told}; exit 0' USR2; srun -n1 sh -c \"{inner}\" & wait $!"
    job = shared.sbatch(f"--signal={asked}", "--time=1", "--wrap", body)
    shared.wait(job, secs=90)
    assert told.read_text() == f"{who}\n"


def test_26_export_by_name(shared: Any) -> None:
    script = "env > $OUT.batch; srun -n1 env > $OUT.step"
    names = {"A": "1", "B": "2 3", "C": "no", "OUT": str(shared.work / "export")}
    job = shared.sbatch("--export=A,B,OUT", "--wrap", script, env=names)
    shared.wait(job, "COMPLETED")
    for part in ("batch", "step"):
        lines = (shared.work / f"export.{part}").read_text().splitlines()
        assert "A=1" in lines
        assert "B=2 3" in lines
        assert f"SLURM_JOB_ID={job}" in lines
        assert not [line for line in lines if line.startswith("C=")]


def test_27_an_array_one_at_a_time(shared: Any) -> None:
    gate = shared.work / "one-at-a-time"
    body = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo $SLURM_ARRAY_TASK_ID"
    job = shared.sbatch("--array=0-2%1", "--wrap", body)
    rows = [f"{job}_0 R", f"{job}_[1-2%1] PD"]
    ask = ("squeue", "-h", "-o", "%i %t", "-j", job)
    shared.until(lambda: sorted(shared.ok(*ask).splitlines()) == rows, f"{rows}", 60)
    out = silent(shared, "sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", job)
    assert sorted(out.splitlines()) == [f"{job}_0|RUNNING", f"{job}_[1-2%1]|PENDING"]
    gate.touch()
    files = [shared.work / f"slurm-{job}_{n}.out" for n in range(3)]
    ended = [f"{n}\n" for n in range(3)]
    shared.until(lambda: [f.read_text() if f.exists() else "" for f in files] == ended, "all output", 60)


def test_28_a_job_requeues_itself(shared: Any) -> None:
    script = (
        "#!/bin/sh\n"
        'echo "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0}" >> again.txt\n'
        '[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && exit 0\n'
        "scontrol requeue $SLURM_JOB_ID\n"
        "echo $? >> again.rc\n"
        "exec sleep 300\n"
    )
    job = shared.sbatch("--requeue", "--open-mode=append", input=script)
    shared.wait(job, "COMPLETED", secs=90)
    assert (shared.work / "again.txt").read_text() == f"{job} 0\n{job} 1\n"


def test_29_an_allocation_without_a_shell(shared: Any) -> None:
    done = shared.run("salloc", "--no-shell", "-N1")
    assert (done.returncode, done.stdout) == (0, "")
    found = re.search(r"^salloc: Granted job allocation (\d+)$", done.stderr, re.MULTILINE)
    assert found
    shared.ok("scancel", found[1])
    shared.wait(found[1])


def test_30_a_launcher_starts_its_daemons_beside_a_step(shared: Any) -> None:
    script = (
        "#!/bin/sh\n"
        "srun --overlap -N2 --ntasks=2 sleep 300 &\n"
        "srun -N2 --ntasks-per-node=1 --external-launcher --kill-on-bad-exit --mpi=none --cpu-bind=none"
        " --nodelist=$SLURM_JOB_NODELIST --ntasks=2 sh -c 'echo $SLURMD_NODENAME' | sort > daemons.txt\n"
        "kill -TERM $!; wait; exit 0\n"
    )
    job = shared.sbatch("-N2", "--ntasks-per-node=1", input=script)
    shared.wait(job, secs=90)
    assert (shared.work / "daemons.txt").read_text() == "node1\nnode2\n"


def test_31_where_it_would_run(shared: Any) -> None:
    done = shared.run("srun", "--test-only", "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(r" in partition debug\s", done.stderr)


def test_32_times_in_seconds_of_the_epoch(shared: Any, ended: str) -> None:
    ask = ("sacct", "-S", "2026-01-01", "-P", "-j", ended, "-o", "jobid,state,exitcode,end,nodelist")
    head, row, *_ = silent(shared, *ask, env={"SLURM_TIME_FORMAT": "%s"}).splitlines()
    assert head == "JobID|State|ExitCode|End|NodeList"
    assert re.fullmatch(rf"{ended}\|COMPLETED\|0:0\|\d{{10,}}\|node[12]", row)


def test_35_labels_of_sdiag(shared: Any) -> None:
    out = silent(shared, "sdiag")
    for label in (
        "Server thread count",
        "Agent queue size",
        "DBD Agent queue size",
        "Last cycle",
        "Mean cycle",
        "Cycles per minute",
        "Depth Mean",
        "Total backfilled jobs (since last slurm start)",
        "Remote Procedure Call statistics by message type",
        "Remote Procedure Call statistics by user",
    ):
        assert label in out
    assert json.loads(silent(shared, "sdiag", "--json"))["meta"]["plugin"]["data_parser"].startswith(
        "data_parser/v0.0.4"
    )
