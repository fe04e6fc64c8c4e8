"""Debian's `slurm-client`, unpacked beside the machine's own programs and never installed."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = ("slurm-client", "slurm-wlm-basic-plugins")
#: The version whose answers the tables hold.
VERSION = "22.05"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
#: Enough to parse command lines; its controller is never asked.
CONF = """\
ClusterName=none
SlurmctldHost=localhost
SlurmctldPort=1
AuthType=auth/none
CredType=cred/none
PluginDir={libraries}/slurm-wlm
NodeName=n[1-4] CPUs=4
PartitionName=p Nodes=ALL Default=YES
"""


def unpacked() -> Path:
    """The folder with `usr/bin/sbatch` and so on, made once per machine and user.

    Raises:
        AssertionError: the packages cannot be had; the text says what apt said.
    """
    base = Path(tempfile.gettempdir()) / f"spur-tests-{os.getuid()}"
    base.mkdir(mode=0o755, exist_ok=True)
    assert base.stat().st_uid == os.getuid(), f"{base} belongs to somebody else"
    path = base / f"slurm-client-{VERSION}"
    with (base / "slurm-client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            making = base / f"slurm-client-{VERSION}.new"
            shutil.rmtree(making, ignore_errors=True)
            _make(making)
            (making / "slurm.conf").write_text(CONF.format(libraries=path / LIBRARIES))
            making.rename(path)
    return path


def environment(root: Path) -> dict[str, str]:
    """What its programs need to find their libraries and their configuration."""
    libraries = root / LIBRARIES
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/",
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm",
        "SLURM_CONF": str(root / "slurm.conf"),
    }


def _make(folder: Path) -> None:
    packages = folder / "packages"
    (packages / "partial").mkdir(parents=True)
    own = [f"-oDir::State::Lists={folder}/lists", f"-oDir::Cache={folder}/cache"]
    done = _apt(packages, "download", *PACKAGES)
    if done.returncode != 0:  # a machine without lists of packages, or with old ones
        done = _apt(packages, *own, "update")
        done = _apt(packages, *own, "download", *PACKAGES)
    assert done.returncode == 0, (
        "Debian's slurm-client is needed for this test and apt-get cannot fetch it; "
        f"give this machine a Debian 12 package source:\n{done.stdout}{done.stderr}"
    )
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True, timeout=60)
    shutil.rmtree(packages)
    for rest in ("lists", "cache"):
        shutil.rmtree(folder / rest, ignore_errors=True)


def _apt(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["apt-get", "-q", *arguments], cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )
