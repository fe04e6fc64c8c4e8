"""A supervisor alone: three wheels, no third-party code, and it runs a job over its socket."""

import json
import os
import pwd
import re
from pathlib import Path

import pytest

#: Runs inside the environment, with spur-core, spur-proto-lite and spur-stepd as all there is.
DRIVER = Path(__file__).with_name("drive_supervisor.py")


@pytest.fixture(scope="module")
def supervisor(environment):
    return environment("spur-stepd")


@pytest.mark.slow
def test_three_wheels_and_nothing_else(supervisor):
    assert set(supervisor.distributions()) == {"spur-core", "spur-proto-lite", "spur-stepd"}
    assert (
        supervisor.can_import("grpc", "google", "spur_proto", "spur_agent", "spur_auth", "jwt", "numpy")
        == set()
    )


@pytest.mark.slow
def test_version(supervisor):
    said = supervisor.run(supervisor.program("spurstepd"), "--version").stdout
    assert re.match(r"spurstepd \d+\.\d+\.\d+", said)


@pytest.mark.slow
def test_v04_one_job_over_its_socket(supervisor, tmp_path):
    """Start, output where the pattern says, the exit in the journal, acknowledged, supervisor gone."""
    account = pwd.getpwuid(os.getuid())
    orders = {
        "state": str(tmp_path),
        "program": str(supervisor.program("spurstepd")),
        "user": account.pw_name,
    }
    done = supervisor.run(supervisor.python, "-I", DRIVER, json.dumps(orders))
    got = json.loads(done.stdout)
    assert got["exit"] == {"code": 3, "signal": 0}
    assert (got["gone"], got["own"]) == (True, True)
    assert (tmp_path / "result.txt").read_text() == "hello from 7\n"
