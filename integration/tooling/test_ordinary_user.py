"""The second run of the node's tests really is an ordinary user's, and has what it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.node
def test_programs_and_temporary_folder_are_in_reach(tmp_path):
    """Interpreter, wheels and a private folder, as whoever runs this: root, a developer, or `nobody`."""
    (tmp_path / "x").write_text("here")
    assert tmp_path.stat().st_uid == os.geteuid()
    done = subprocess.run(
        [sys.executable, "-c", "import spur_core, spur_proto_lite, grpc; print('ok')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.node
def test_an_ordinary_user_cannot_write_the_sources():
    if os.geteuid() == 0 or os.geteuid() == ROOT.stat().st_uid:
        return  # the owner may
    with pytest.raises(PermissionError):
        (ROOT / "packages" / "planted").write_text("x")
    caps = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    assert int(caps, 16) == 0
