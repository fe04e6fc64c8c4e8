"""Environments with programs from PyPI, for tests of what we are to other people's software.

They are made once per machine and user and then used again: their folder lies below the system's temporary
one and is named after what is in it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def environment(*requirements: str) -> Path:
    """The folder of a virtual environment that has exactly these, made when it is not there.

    Args:
        requirements: pinned, "name==version".

    Raises:
        AssertionError: they cannot be installed; the text is the installer's.
    """
    named = "\n".join([sys.version, *sorted(requirements)])
    key = hashlib.sha256(named.encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"spur-tests-{os.getuid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} belongs to somebody else"
    path, whole = folder / key, folder / f"{key}.whole"
    with (folder / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            _make(path, requirements)
            whole.touch()
    return path


def _make(path: Path, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    python = str(path / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "-q", "--no-config", "--python", sys.executable, str(path)])
        _run([uv, "pip", "install", "-q", "--no-config", "--python", python, *requirements])
    else:
        _run([sys.executable, "-m", "venv", str(path)])
        _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
