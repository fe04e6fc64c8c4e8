"""The switch of the fault points: off, refused, armed; what each kind does to a real process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spur_core import faults

TEST = {"SPUR_TEST_FAULTS": "1"}
PROGRAM = """
import os, sys
from spur_core import faults
faults.arm(os.environ)
faults.before("Started")
print("done", flush=True)
faults.after("Started")
print("told", flush=True)
"""


def passed(fault: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program that passes the point `Started`."""
    env = {**os.environ, **TEST, "SPUR_FAULT": fault, **more}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )


def test_without_the_switch_nothing_is_armed() -> None:
    faults.arm({})
    faults.before("Started")
    faults.after("Started")


def test_refused_outside_a_test() -> None:
    with pytest.raises(faults.BadFault, match="SPUR_TEST_FAULTS=1"):
        faults.arm({"SPUR_FAULT": "crash_after:Started"})


@pytest.mark.parametrize("name", ["crash_after:Starred", "explode:Started", "Started", "crash_after:"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(faults.BadFault, match="no KIND:POINT"):
        faults.arm({**TEST, "SPUR_FAULT": name})


@pytest.mark.parametrize(
    ("fault", "out"),
    [("crash_before:Started", ""), ("crash_after:Started", "done\n")],
)
def test_crashes(fault: str, out: str) -> None:
    done = passed(fault)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, out)


def test_fails_as_a_full_disk() -> None:
    done = passed("fail:Started")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


def test_once_over_all_processes(tmp_path: Path) -> None:
    once = {"SPUR_FAULT_ONCE": str(tmp_path / "struck")}
    assert passed("crash_after:Started", **once).returncode == -signal.SIGKILL
    assert passed("crash_after:Started", **once).stdout == "done\ntold\n"
    assert [path.name for path in tmp_path.iterdir()] == ["struck.crash_after.Started"]
