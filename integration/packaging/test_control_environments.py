"""A controller host and a login node: each gets its own part, and nothing that runs on compute nodes."""

import re

import pytest


@pytest.mark.slow
def test_a_controller_host(environment):
    controller = environment("spur-ctld")
    said = controller.run(controller.program("spurctld"), "--version").stdout
    assert re.fullmatch(r"spurctld \d+\.\d+\.\d+\n", said)
    ours = {name for name in controller.distributions() if name.startswith("spur-")}
    assert ours == {"spur-auth", "spur-core", "spur-ctld", "spur-proto", "spur-sched"}


@pytest.fixture(scope="module")
def login(environment):
    return environment("spur-cli")


@pytest.mark.slow
def test_a_login_node(login):
    ours = {name for name in login.distributions() if name.startswith("spur-")}
    assert ours == {"spur-auth", "spur-cli", "spur-core", "spur-proto"}
    assert login.can_import("sqlalchemy", "litestar", "numpy", "msgspec", "spur_ctld", "spur_agent") == set()
    for program in ("spur", "sbatch", "squeue", "sinfo", "sacct", "scontrol", "scancel", "srun"):
        assert login.run(login.program(program), "--version").stdout.strip()


@pytest.mark.slow
def test_a_login_node_without_a_cluster(login):
    """No controller: one line, no traceback."""
    done = login.run(login.program("squeue"), "--controller", "127.0.0.1:1", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
