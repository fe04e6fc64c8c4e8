"""Builds the compiled kernel into the wheel where a C compiler is; without one the wheel is pure."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def build(place: pathlib.Path) -> bool:
    """Compile the kernel that lies there; False = there is no compiler, or it cannot."""
    target, source = place / "_kernel.so", place / "_kernel.c"
    compiler = _program(os.environ.get("CC", "")) or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        target.unlink(missing_ok=True)
        return False
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    # Whoever has the old one loaded keeps it.
    made = place / f"_kernel.so.{os.getpid()}"
    command = [compiler, *FLAGS, f'-DSPUR_KERNEL_SOURCE="{digest}"', "-o", str(made), str(source), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = "" if made.exists() and not done.returncode else done.stderr or f"{compiler} failed"
    except OSError as error:
        failed = str(error)
    if failed:
        sys.stderr.write(f"spur-sched: no compiled kernel: {failed.strip()}\n")
        made.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        return False
    made.replace(target)
    return True


def _program(command: str) -> str | None:
    """The program of a command, if it is there."""
    return shutil.which(command.split()[0]) if command.split() else None


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel is put together, and before an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, and say that the wheel is of this platform."""
        if self.target_name != "wheel" or not build(pathlib.Path(self.root, "src", "spur_sched")):
            return
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    raise SystemExit(not build(pathlib.Path(__file__).parent / "src" / "spur_sched"))
