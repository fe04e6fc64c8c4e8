"""Build every wheel of the workspace: `python tools/wheels.py OUTDIR [NAME ...]`.

There is no project at the root, so `hatch build` cannot do it.  Needs hatchling in the running interpreter.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def projects(names: list[str]) -> list[Path]:
    """The folders of the named wheels, or of all."""
    found = {p.parent.name: p.parent for p in sorted(ROOT.glob("packages/*/pyproject.toml"))}
    unknown = [n for n in names if n not in found]
    if unknown:
        sys.exit(f"wheels: no such package: {', '.join(unknown)}; there are {', '.join(found)}")
    return [found[n] for n in names or found]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: wheels.py OUTDIR [NAME ...]")
    out = Path(sys.argv[1]).resolve()
    for folder in projects(sys.argv[2:]):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        done = subprocess.run(command, cwd=folder, check=False)
        if done.returncode:
            sys.exit(f"wheels: building {folder.name} failed (status {done.returncode})")


if __name__ == "__main__":
    main()
