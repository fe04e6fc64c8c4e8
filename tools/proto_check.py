"""The wire contract's checks, in `hatch run proto:check`.

1. `buf lint` and `buf format`.
2. `buf breaking` against the contract frozen in the last commit, in the main branch where this branch left
   it, and in the last release of spur-proto: so a break cannot be hidden by freezing it.
3. The frozen contract (proto.lock.binpb) is the present one: `hatch run proto:freeze` after a change.
4. The generated code is the one these .proto files give: `hatch run proto:gen` after a change.

Nothing in the working tree is changed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "proto.lock.binpb"
GENERATED = Path("packages/spur-proto/src")


def git(*args: str) -> str | None:
    """The output, stripped; None when git says no."""
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def bases() -> dict[str, str]:
    """Commit -> why the contract is compared with what it froze."""
    found: dict[str, str] = {}

    def add(commit: str | None, why: str) -> None:
        if commit:
            found.setdefault(commit, why)

    add(git("rev-parse", "--verify", "-q", "HEAD"), "the last commit")
    if git("rev-parse", "--verify", "-q", "origin/main"):
        # Without common history (a shallow clone) the tip of main is the next best.
        add(git("merge-base", "HEAD", "origin/main") or git("rev-parse", "origin/main"), "the main branch")
    tags = (git("tag", "--list", "spur-proto-v*", "--sort=-version:refname") or "").splitlines()
    if tags:
        add(git("rev-parse", f"{tags[0]}^{{commit}}"), f"release {tags[0]}")
    return found


def run(what: str, *command: str) -> bool:
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        print(f"proto: {what} failed (status {done.returncode})", file=sys.stderr)
    return done.returncode == 0


def breaking(tmp: Path) -> bool:
    good = True
    for commit, why in bases().items():
        shown = subprocess.run(
            ["git", "show", f"{commit}:{LOCK}"], cwd=ROOT, capture_output=True, check=False
        )
        if shown.returncode:
            print(f"proto: {why} ({commit[:10]}) has frozen no contract")
            continue
        image = tmp / f"{commit}.binpb"
        image.write_bytes(shown.stdout)
        good &= run(f"buf breaking against {why}", "buf", "breaking", "--against", str(image))
    return good


def frozen(tmp: Path) -> bool:
    now = tmp / "now.binpb"
    if not run("buf build", "buf", "build", "--exclude-source-info", "-o", str(now)):
        return False
    lock = ROOT / LOCK
    if lock.is_file() and lock.read_bytes() == now.read_bytes():
        return True
    print(f"proto: {LOCK} is not the present contract: run `hatch run proto:freeze`", file=sys.stderr)
    return False


def generated(tmp: Path) -> bool:
    if not run("buf generate", "buf", "generate", "-o", str(tmp / "gen")):
        return False
    fresh = {p.relative_to(tmp / "gen"): p.read_bytes() for p in (tmp / "gen").rglob("*") if p.is_file()}
    held = {
        p.relative_to(ROOT): p.read_bytes() for p in (ROOT / GENERATED).rglob("*_pb2*.py*") if p.is_file()
    }
    held = {p: text for p, text in held.items() if "__pycache__" not in p.parts}
    differing = sorted(str(p) for p in fresh.keys() | held.keys() if fresh.get(p) != held.get(p))
    for path in differing:
        print(f"proto: {path} is not what the .proto files give: run `hatch run proto:gen`", file=sys.stderr)
    return not differing


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        results = [
            run("buf lint", "buf", "lint"),
            run("buf format", "buf", "format", "-d", "--exit-code"),
            breaking(tmp),
            frozen(tmp),
            generated(tmp),
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
