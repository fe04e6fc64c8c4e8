"""spur simulate hands over to the scheduler's wheel, which may be missing."""

import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path

from spur_cli import dispatch

EXAMPLE = Path(__file__).parents[3] / "packages/spur-sched/examples/made-up.swf"
SCRIPT = Path(__file__).parents[1] / "scripts/spur"


def call(words, env=None, before=""):
    code = (
        f"import sys; {before}\nfrom spur_cli import dispatch;"
        f"sys.exit(dispatch.run('spur', {words!r}, {dict(os.environ) | (env or {})!r}, '/tmp'))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_it_runs_the_program_in_the_callers_directory(tmp_path):
    done = call(["simulate", str(EXAMPLE), "--policy", "easy"])
    assert done.returncode == 0, done.stderr
    assert "easy" in done.stdout
    done = call(["simulate", "nowhere.swf"])
    assert (done.returncode, done.stderr) == (
        1,
        "spur simulate: error: nowhere.swf: No such file or directory\n",
    )


def test_without_the_wheel_it_names_the_wheel(tmp_path):
    hide = "sys.modules['spur_sched'] = None"
    done = call(["simulate", "x.swf"], {"PATH": str(tmp_path)}, hide)
    assert done.returncode == 1
    assert done.stderr == (
        "spur simulate: error: the simulator is not installed; install the wheel spur-sched"
        " (pip install spur-sched)\n"
    )


def test_another_installation_on_path_will_do(tmp_path):
    program = tmp_path / "spur-simulate"
    program.write_text('#!/bin/sh\necho "got $*"; exit 7\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    done = call(
        ["simulate", "a b", "c"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}, "sys.modules['spur_sched'] = None"
    )
    assert (done.returncode, done.stdout) == (7, "got a b c\n")


def test_the_verb_is_known():
    assert importlib.util.find_spec(__import__("spur_cli.spur", fromlist=["OWN"]).OWN["simulate"])
    assert "spur" in dispatch.COMMANDS
