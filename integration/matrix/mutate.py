"""Whether the tests of requirements V1 to V25 notice the faults that they guard against.

    hatch run mutate [--only 5,17] [--keep] [--table]

For every fault in mutations.py: apply it to a copy of the workspace with an environment of its own, run the
one test that must notice it, take it back.  FAILED is good, SURVIVED is not.  All tests are run once before
that, since a test that fails anyway proves nothing (BROKEN); STALE is a fault whose text is no longer in the
sources.  `--table` prints the rows of docs/failure-matrix.md instead of lines.  Needs no network; to be run
as root, on demand, not in CI.  Exit status 0 when every fault was noticed.
"""

import argparse
import compileall
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mutations import MUTATIONS, Edit, Mutation

ROOT = Path(__file__).resolve().parents[2]
#: Left behind when the workspace is copied.
LEFT_OUT = (".git", ".venv", "__pycache__", ".*_cache", "dist", "*.egg-info", ".hypothesis")
#: Seconds for one test; one that a fault makes hang has noticed it.
PATIENCE = 300
FAILED, SURVIVED, BROKEN, STALE = "FAILED", "SURVIVED", "BROKEN", "STALE"
#: pytest's own: tests ran and some failed.
_TESTS_FAILED = 1


class Copy:
    """A copy of the workspace in which programs and tests run from the copied sources."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "w"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        self.python = self._environment()
        for source in self.sources():
            compileall.compile_dir(source, quiet=2)
        self._verify()

    def sources(self) -> list[Path]:
        return sorted(self.root.glob("packages/*/src"))

    def _environment(self) -> Path:
        """Our own interpreter and third-party packages; the workspace's from the copy."""
        ours, copy = Path(sys.prefix), self.root / ".venv"
        (copy / "bin").mkdir(parents=True)
        shutil.copy(ours / "pyvenv.cfg", copy)
        for entry in (ours / "bin").iterdir():
            place = copy / "bin" / entry.name
            if entry.is_symlink():
                place.symlink_to(entry.readlink())
                continue
            # Entry points name the interpreter in their first line; other programs are used as they are.
            with entry.open("rb") as file:
                is_script = file.read(2) == b"#!"
            if is_script:
                place.write_bytes(entry.read_bytes().replace(bytes(ours), bytes(copy), 1))
                place.chmod(0o755)
            else:
                place.symlink_to(entry)
        packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        (copy / packages).mkdir(parents=True)
        paths = [*map(str, self.sources()), str(ours / packages)]
        (copy / packages / "workspace.pth").write_text("".join(f"{path}\n" for path in paths))
        return copy / "bin" / "python"

    def _verify(self) -> None:
        names = [path.name for source in self.sources() for path in source.iterdir() if path.is_dir()]
        names = [name for name in names if name.startswith("spur")]
        code = "import importlib, sys\nfor n in sys.argv[1:]: print(importlib.import_module(n).__file__)"
        done = subprocess.run(
            [self.python, "-I", "-c", code, *names], capture_output=True, text=True, check=True
        )
        for path in done.stdout.split():
            if not Path(path).is_relative_to(self.root):
                sys.exit(f"mutate: {path} is not in the copy")

    def apply(self, edits: Sequence[Edit]) -> dict[Path, str] | None:
        """Make the edits; what the files were before, or None when one does not fit any more."""
        before: dict[Path, str] = {}
        for edit in edits:
            path = self.root / edit.file
            text = path.read_text()
            before.setdefault(path, text)
            if text.count(edit.old) != 1:
                self.restore(before)
                return None
            self._write(path, text.replace(edit.old, edit.new))
        return before

    def restore(self, before: dict[Path, str]) -> None:
        """Take edits back."""
        for path, text in before.items():
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        if path.suffix == ".py":
            # Compiled anew at once: supervisors write no byte-code, and times of files are coarse.
            compileall.compile_file(path, quiet=2, force=True)

    def test(self, *nodes: str) -> int:
        """pytest's exit status; as for a failure when it takes too long."""
        command = [self.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *nodes]
        env = {name: text for name, text in os.environ.items() if name not in ("CI", "VIRTUAL_ENV")}
        with (self.root / "mutate.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=self.root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                return child.wait(PATIENCE * (len(nodes) if len(nodes) > 1 else 1))
            except subprocess.TimeoutExpired:
                # Interrupted, so that fixtures end what they have started.
                os.killpg(child.pid, signal.SIGINT)
                try:
                    child.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                return _TESTS_FAILED

    def sweep(self) -> None:
        """End what a test with a fault has left: programs of the copy."""
        mark = os.fsencode(self.root)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if (entry / "cmdline").read_bytes().startswith(mark):
                        os.kill(int(entry.name), signal.SIGKILL)


def judge(copy: Copy, mutation: Mutation) -> str:
    """What became of one fault."""
    before = copy.apply(mutation.edits)
    if before is None:
        return STALE
    try:
        status = copy.test(mutation.test)
    finally:
        copy.sweep()
        copy.restore(before)
    return {0: SURVIVED, _TESTS_FAILED: FAILED}.get(status, BROKEN)


def row(mutation: Mutation, result: str) -> str:
    """A row of the table in the documentation."""
    file, _, name = mutation.test.partition("::")
    return f"| V{mutation.number} | `{name}` ({Path(file).name}) | {mutation.fault} | {result} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="numbers of requirements, such as 1,17")
    parser.add_argument("--keep", action="store_true", help="keep the copy and its log")
    parser.add_argument("--table", action="store_true", help="rows for the documentation")
    given = parser.parse_args()
    wanted = {int(word) for word in given.only.split(",") if word}
    chosen = [m for m in MUTATIONS if not wanted or m.number in wanted]
    folder = Path(tempfile.mkdtemp(prefix="spurmut", dir="/tmp"))
    folder.chmod(0o755)
    try:
        copy = Copy(folder)
        broken = {node for node in {m.test for m in chosen} if copy.test(node)}
        results = []
        for mutation in chosen:
            began = time.monotonic()
            result = BROKEN if mutation.test in broken else judge(copy, mutation)
            results.append(result)
            line = f"V{mutation.number:<3} {result:9} {time.monotonic() - began:5.1f} s  {mutation.fault}"
            print(row(mutation, result) if given.table else line, flush=True)
        if given.keep:
            print(f"kept: {folder}, {copy.root / 'mutate.log'}", file=sys.stderr)
        return 0 if set(results) == {FAILED} else 1
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
