"""Wheels built once per session, and empty environments to install them into."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Environment(NamedTuple):
    """A virtual environment with nothing of ours but what was asked for."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def program(self, name: str) -> Path:
        return self.path / "bin" / name

    def run(
        self, *command: object, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with nothing inherited but PATH: no PYTHONPATH, no workspace."""
        done = subprocess.run(
            [str(word) for word in command],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(self.path)},
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def distributions(self) -> dict[str, str]:
        """Installed distribution -> version; what a fresh environment brings along left out."""
        code = (
            "import importlib.metadata as m, json;"
            "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
        )
        found: dict[str, str] = json.loads(self.run(self.python, "-I", "-c", code).stdout)
        return {
            name: version for name, version in found.items() if name not in ("pip", "setuptools", "wheel")
        }

    def can_import(self, *modules: str) -> set[str]:
        """Which of `modules` this environment has."""
        code = (
            "import importlib.util as u, sys;"
            "print(*[m for m in sys.argv[1:] if u.find_spec(m.partition('.')[0]) is not None])"
        )
        return set(self.run(self.python, "-I", "-c", code, *modules).stdout.split())


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution name -> wheel file, all nine, built from the working tree."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(ROOT / "tools" / "wheels.py"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("-")[0].replace("_", "-"): path for path in sorted(out.glob("*.whl"))}


@pytest.fixture(scope="session")
def environment(
    wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Environment]:
    """environment(NAME, ...): a new environment with these wheels and what they need, from wheels and index.

    Siblings are pinned to the files just built, so that no package of the same name in an index takes their
    place; a pin alone installs nothing.
    """
    pins = tmp_path_factory.mktemp("pins") / "constraints.txt"
    pins.write_text("".join(f"{name} @ {path.as_uri()}\n" for name, path in wheels.items()))

    def make(*names: str) -> Environment:
        path = tmp_path_factory.mktemp("env")
        uv = shutil.which("uv")
        if uv:
            create = [
                uv,
                "venv",
                "-q",
                "--no-project",
                "--python",
                sys.executable,
                "--allow-existing",
                str(path),
            ]
            install = [uv, "pip", "install", "-q", "--no-config", "--python", str(path / "bin" / "python")]
        else:
            create = [sys.executable, "-m", "venv", str(path)]
            install = [
                str(path / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
            ]
        links = str(next(iter(wheels.values())).parent)
        for command in (create, [*install, "--find-links", links, "-c", str(pins), *names]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return Environment(path)

    return make
