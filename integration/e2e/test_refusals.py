"""Bad input and other people's jobs: one line, Slurm's words and exit codes, and nothing happens."""

import os
import pwd
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROWS = [
    (("sbatch", "--bogus", "x.sh"), 255, "sbatch: unrecognized option '--bogus'"),
    (("squeue", "--bogus"), 1, "squeue: unrecognized option '--bogus'"),
    (("sbatch", "-t", "abc", "--wrap", "true"), 255, "sbatch: error: Invalid --time specification"),
    (("sbatch", "--mem", "1.5G", "--wrap", "true"), 255, "sbatch: error: Invalid --mem specification"),
    (
        ("sbatch", "-p", "nope", "--wrap", "true"),
        1,
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
    ),
    (
        ("sbatch", "-c", "4000", "--wrap", "true"),
        1,
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    ),
    (
        ("sbatch", "-d", "afterok", "--wrap", "true"),
        1,
        "sbatch: error: Batch job submission failed: Job dependency problem",
    ),
    (
        ("sbatch", "-a", "5-1", "--wrap", "true"),
        1,
        "sbatch: error: Batch job submission failed: Invalid job array specification",
    ),
    (("sbatch", "missing.sh"), 1, "sbatch: error: Unable to open file missing.sh"),
    (("squeue", "-j", "99999"), 1, "slurm_load_jobs error: Invalid job id specified"),
    (("squeue", "-j", "bogus"), 1, "squeue: error: Invalid job id: bogus"),
    (("scancel", "bogus"), 1, "scancel: error: Invalid job id bogus"),
    (("scancel",), 1, "scancel: error: No job identification provided"),
    (("sacct", "-o", "bogus"), 1, 'sacct: error: Invalid field requested: "bogus"'),
    (("srun",), 1, "srun: fatal: No command given to execute."),
    (("scontrol", "bogus"), 1, "invalid keyword: bogus"),
    (("scontrol", "show", "node", "nope"), 1, "Node nope not found"),
    (("sinfo", "-t", "bogus"), 1, 'sinfo: error: Bad state string: "bogus"'),
]


@pytest.mark.parametrize(("argv", "code", "text"), ROWS, ids=[" ".join(row[0]) for row in ROWS])
def test_mistakes_get_one_line(shared: Any, argv: tuple[str, ...], code: int, text: str) -> None:
    done = shared.run(*argv)
    assert text in (done.stderr + done.stdout)
    assert done.returncode == code
    assert "Traceback" not in done.stderr + done.stdout


def test_an_unreadable_script(shared: Any) -> None:
    script = shared.work / "noread.sh"
    script.write_text("no shebang\n")
    done = shared.run("sbatch", "noread.sh")
    assert done.returncode == 1
    assert "This does not look like a batch script" in done.stderr


def test_no_controller_is_one_line(tmp_path: Path, shared: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{port}"}
    done = shared.run("sbatch", "--wrap", "true", env=env)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
    )
    assert shared.run("sinfo", env=env).stderr == (
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"
    )


def test_unknown_config_key_names_the_mend(tmp_path: Path, shared: Any) -> None:
    conf = tmp_path / "spur.conf"
    conf.write_text('cluster_name = "c"\n[controller]\nlissen_addr = "x"\n')
    done = shared.run("spurctld", "--config", str(conf), "--state-dir", str(tmp_path / "s"))
    assert done.returncode == 1
    assert done.stderr == (
        f"spurctld: error: {conf}: [controller] lissen_addr is an unknown key; did you mean listen_addr?\n"
    )


def test_a_state_dir_that_is_not_writable(tmp_path: Path, shared: Any) -> None:
    target = tmp_path / "file"
    target.write_text("")
    done = shared.run("spurctld", "--config", shared.env["SPUR_CONF"], "--state-dir", str(target / "below"))
    assert done.returncode == 1
    assert str(target) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def stranger(shared: Any, tmp_path: Path) -> Any:
    """Commands as another user, with that user's own valid token."""
    name = next(user.pw_name for user in pwd.getpwall() if user.pw_uid not in (0, os.geteuid()))
    token = shared.ok("spur", "token", "user", "--user", name).strip()
    return lambda *argv: shared.run(*argv, env={"SPUR_AUTH_TOKEN": token})


def test_another_users_job_is_out_of_reach(shared: Any, stranger: Any) -> None:
    job = shared.sbatch("--comment", "secret", "--wrap", "sleep 600")
    shared.wait(job, "RUNNING")
    done = stranger("scancel", job)
    assert done.returncode != 0
    assert done.stderr == f"scancel: error: Kill job error on job id {job}: Access/permission denied\n"
    for argv in (
        ("scontrol", "update", f"JobId={job}", "TimeLimit=1"),
        ("scontrol", "hold", job),
        ("scontrol", "requeue", job),
    ):
        refused = stranger(*argv)
        assert refused.returncode == 1
        assert "Access/permission denied" in refused.stderr + refused.stdout
    assert "secret" not in stranger("scontrol", "show", "job", job).stdout
    assert shared.state(job) == "RUNNING"
    shared.ok("scancel", job)
    shared.wait(job, "CANCELLED", secs=60)


def test_credentials_of_the_wrong_sort(shared: Any) -> None:
    node = shared.ok("spur", "token", "node", "--node", "node1").strip()
    refused = shared.run("sbatch", "--wrap", "true", env={"SPUR_AUTH_TOKEN": node})
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    user = shared.ok("spur", "token", "user", "--user", "root", "--ttl", "1h").strip()
    forged = shared.run("squeue", env={"SPUR_AUTH_TOKEN": user[:-4] + "AAAA"})
    assert forged.returncode == 1
    assert forged.stderr.count("\n") == 1


def test_the_key_is_private(shared: Any) -> None:
    secrets = [p for p in shared.folder.rglob("*") if p.is_file() and "key" in p.name]
    assert secrets
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in secrets)
    key = secrets[0].read_text().strip()
    processes = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout
    assert key not in processes
    for log in (shared.folder / "log").glob("*"):
        assert key not in log.read_text()
