"""Every test: `hatch run test [PYTEST ARGUMENTS]`.

1. Byte-code is compiled, so that nobody measures or races the compiler.
2. Suites of pure code run on two workers.
3. What crosses wheels (`integration/`) runs in three processes side by side, since most of it is waiting.
4. So do the other suites of the wheels, and, as root, the tests marked `node` once more as an ordinary user
   in a private temporary folder.

5. Up to UNSTEADY_MAX tests that failed beside all the others are run again alone, REPEATS times.  Those that
   pass every time are named as unsteady; anything else is a failure (docs/decisions/0018-unsteady-tests.md).

Arguments are passed on; with a path among them only that is run, in one process, then once more as an
ordinary user, and nothing is repeated.  Ends with one line of totals, and with status 1 when any run failed
or nothing ran.
"""

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Suites without processes, sockets or shared files: safe and faster on two workers.
PURE = ("packages/spur-core", "packages/spur-proto-lite", "packages/spur-sched", "packages/spur-auth")
#: Of `integration/`: what acts as other accounts, one of which kills all its processes, is in one process.
ACCOUNTS = ("attack", "matrix")
#: Likewise apart: groups of controllers, which mostly wait for elections.
GROUPS = ("ha",)
#: Who runs the node's tests once more.
ORDINARY_USER = "nobody"
#: Seconds for one run; then it is ended, and that is a failure.
PATIENCE = 35 * 60
NODE_TESTS = f"node tests as {ORDINARY_USER}"
NO_TESTS = 5
FAILED = 1
#: More failures than this in the whole are never put down to the company a test had.
UNSTEADY_MAX = 3
#: How often such a test must pass alone, without one failure.
REPEATS = 3
#: As in testkit/failures.py, which is not on our path.
FAILED_TO = "SPUR_FAILED_TO"
NAMELESS = "?"


class Result(NamedTuple):
    """One run of pytest.

    Attributes:
        names: node ids of the tests that failed, NAMELESS for a failure outside a test.
    """

    title: str
    status: int
    tests: int
    failed: int
    skipped: int
    names: tuple[str, ...] = ()


def counts(report: Path) -> tuple[int, int, int]:
    """(tests, failed, skipped) of a JUnit file; zeros when pytest died before writing it."""
    try:
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        return 0, 0, 0
    total = {k: sum(int(s.get(k, 0)) for s in suites) for k in ("tests", "failures", "errors", "skipped")}
    return total["tests"], total["failures"] + total["errors"], total["skipped"]


class Run:
    """One pytest, from its start on.

    Args:
        output: where its output goes; None = straight through.
    """

    def __init__(
        self,
        title: str,
        command: list[str],
        report: Path,
        env: dict[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        self.title = title
        self.report = report
        self.output = output
        self.names = report.with_suffix(".failed")
        shown = command[command.index(sys.executable) :]  # without what leads up to the ordinary user
        self.heading = f"\n=== {title}\n$ {shlex.join(shown)}"
        if output is None:
            print(self.heading, flush=True)
        with contextlib.ExitStack() as files:
            sink = None if output is None else files.enter_context(output.open("wb"))
            self.child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=(os.environ if env is None else env) | {FAILED_TO: str(self.names)},
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=None if sink is None else subprocess.STDOUT,
            )

    def result(self) -> Result:
        """Wait for its end; shows what it wrote if nobody has seen it yet."""
        try:
            status = self.child.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"run_tests: {self.title}: not done after {PATIENCE} s, ended", file=sys.stderr)
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
            status = 124
        except BaseException:  # Ctrl-C: its tests end with us
            self.end()
            raise
        if self.output is not None:
            print(self.heading)
            print(self.output.read_text(errors="replace"), flush=True)
        names = tuple(self.names.read_text().splitlines()) if self.names.exists() else ()
        return Result(self.title, status, *counts(self.report), names)

    def end(self) -> None:
        """Its tests end with us."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGTERM)


def run(title: str, command: list[str], report: Path, env: dict[str, str] | None = None) -> Result:
    """Run one pytest, its output going straight through."""
    return Run(title, command, report, env).result()


def pytest_command(report: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *arguments]


def unreachable(trees: list[Path]) -> list[Path]:
    """Folders above `trees` that an ordinary user cannot pass (a home of root's, mostly), outermost first."""
    found = set()
    for tree in trees:
        for folder in reversed(tree.resolve().parents):
            if not folder.stat().st_mode & 0o001:
                found.add(folder)
                break
    return sorted(found)


# In a mount namespace of its own: each closed folder is covered by an empty one that anybody may pass, and
# only the trees that are needed appear in it again.  Other processes see no change.
OPEN_UP = """
stage=$1; shift
closed=$1; shift
n=0
for tree in $trees; do mkdir "$stage/$n"; mount --rbind "$tree" "$stage/$n"; n=$((n+1)); done
for folder in $closed; do mount -t tmpfs -o mode=755,size=1m spur-tests "$folder"; done
n=0
for tree in $trees; do mkdir -p "$tree"; mount --rbind "$stage/$n" "$tree"; n=$((n+1)); done
cd "$start"
unset trees start
exec "$@"
"""


def as_ordinary_user(command: list[str], env: dict[str, str], tmp: Path) -> tuple[list[str], dict[str, str]]:
    """The command that runs `command` as `ORDINARY_USER`, with interpreter and sources in its reach."""
    who = pwd.getpwnam(ORDINARY_USER)
    drop = ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups", "--"]
    trees = [ROOT, Path(sys.base_prefix)]
    closed = unreachable(trees)
    if not closed:
        return [*drop, *command], env
    inside = [t.resolve() for t in trees if any(c in t.resolve().parents for c in closed)]
    stage = tmp / "stage"
    stage.mkdir()
    env = env | {"trees": " ".join(map(str, inside)), "start": str(ROOT)}
    opened = ["unshare", "-m", "--propagation", "private", "sh", "-euc", OPEN_UP, "open-up", str(stage)]
    return [*opened, " ".join(map(str, closed)), *drop, *command], env


def ordinary_run(arguments: list[str]) -> Result:
    """The node's tests as an ordinary user."""
    who = pwd.getpwnam(ORDINARY_USER)
    title = NODE_TESTS
    tmp = Path(tempfile.mkdtemp(prefix="spurn", dir="/tmp"))  # short: sockets live below it
    try:
        home = tmp / "h"
        home.mkdir(mode=0o700)
        os.chown(home, who.pw_uid, who.pw_gid)
        tmp.chmod(0o711)
        report = home / "report.xml"
        command = pytest_command(
            report,
            "-p",
            "no:cacheprovider",
            f"--basetemp={home / 't'}",
            *arguments,
            "-m",
            "node and not root",
        )
        env = os.environ | {
            "HOME": str(home),
            "USER": ORDINARY_USER,
            "LOGNAME": ORDINARY_USER,
            "TMPDIR": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        env.pop("XDG_RUNTIME_DIR", None)
        command, env = as_ordinary_user(command, env, tmp)
        return run(title, command, report, env)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def has_path(arguments: list[str]) -> bool:
    return any(not a.startswith("-") and (ROOT / a.partition("::")[0]).exists() for a in arguments)


def everything(reports: Path, arguments: list[str]) -> list[Result]:
    """Steps 2 to 4."""

    def begin(title: str, paths: Iterable[str], output: str = "") -> Run:
        report = reports / f"{title}.xml"
        log = reports / output if output else None
        return Run(title, pytest_command(report, *arguments, *paths), report, output=log)

    crossing = sorted(folder for folder in (ROOT / "integration").iterdir() if any(folder.glob("test_*.py")))
    others = [f"integration/{folder.name}" for folder in crossing if folder.name not in ACCOUNTS + GROUPS]
    groups, accounts = ([f"integration/{name}" for name in names] for names in (GROUPS, ACCOUNTS))
    suites = sorted(folder.parent.name for folder in ROOT.glob("packages/*/tests"))
    wheels = [f"packages/{name}/tests" for name in suites if f"packages/{name}" not in PURE]

    results = [begin("pure suites", ("-n", "2", *PURE)).result()]
    with (
        beside(begin("integration", others, "integration.log")) as first,
        beside(begin("groups of controllers", groups, "groups.log")) as second,
    ):
        results += [begin("other accounts", accounts).result(), first.result(), second.result()]
    with beside(begin("wheels", wheels, "wheels.log")) as other:
        if os.geteuid() == 0:
            results.append(ordinary_run(arguments))
        results.append(other.result())
    return results


@contextlib.contextmanager
def beside(run: Run) -> Iterator[Run]:
    """A run that goes on meanwhile; it does not outlive the block."""
    try:
        yield run
    finally:
        run.end()


def repeated(results: list[Result], reports: Path) -> tuple[list[Result], list[str]]:
    """Step 5: the results with what it changes, and the names of the unsteady tests."""
    failed = [r for r in results if r.status not in (0, NO_TESTS)]
    if not failed or sum(r.failed for r in failed) > UNSTEADY_MAX:
        return results, []
    settled, unsteady = [], []
    for r in results:
        again = r in failed and passes_alone(r, reports)
        settled.append(r._replace(status=0, failed=0) if again else r)
        unsteady += [f"{r.title}: {name}" for name in r.names] if again else []
    return settled, unsteady


def passes_alone(r: Result, reports: Path) -> bool:
    """Whether failed tests, each known by name, pass REPEATS times with nothing beside them."""
    if r.status != FAILED or not r.names or NAMELESS in r.names or len(r.names) != r.failed:
        return False
    for number in range(1, REPEATS + 1):
        print(f"\n=== again, alone, {number} of {REPEATS}", flush=True)
        if r.title == NODE_TESTS:
            alone = ordinary_run(list(r.names))
        else:
            report = reports / f"again-{number}-{r.title}.xml"
            alone = run(r.title, pytest_command(report, *r.names), report)
        if alone.status != 0 or alone.skipped or alone.tests != len(r.names):
            return False
    return True


def main() -> int:
    arguments = sys.argv[1:]
    sources = [str(p) for p in sorted(ROOT.glob("packages/*/src"))]
    compiled = subprocess.run([sys.executable, "-m", "compileall", "-q", *sources], cwd=ROOT, check=False)
    results = [Result("byte-code", compiled.returncode, 0, 0, 0)]
    unsteady: list[str] = []
    with tempfile.TemporaryDirectory(prefix="spur-reports") as name:
        reports = Path(name)
        if has_path(arguments):
            report = reports / "given.xml"
            results.append(run("given paths", pytest_command(report, *arguments), report))
            if os.geteuid() == 0:
                results.append(ordinary_run(arguments))
        else:
            results += everything(reports, arguments)
            results, unsteady = repeated(results, reports)
    return summary(results, unsteady)


def summary(results: list[Result], unsteady: Iterable[str] = ()) -> int:
    """Print the totals; 0 only when every run passed and something ran.

    A run in which nothing was selected counts as passed: arguments such as -k may leave a suite empty.
    """
    print("\n=== totals")
    for r in results:
        verdict = "ok" if r.status in (0, NO_TESTS) else f"FAILED (status {r.status})"
        print(f"{r.title}: {r.tests} tests, {r.failed} failed, {r.skipped} skipped: {verdict}")
    for name in unsteady:
        print(
            f"UNSTEADY, to be mended: failed beside the others, passed {REPEATS} of {REPEATS} alone: {name}"
        )
    failed = sum(r.failed for r in results)
    skipped = sum(r.skipped for r in results)
    passed = sum(r.tests for r in results) - failed - skipped
    good = all(r.status in (0, NO_TESTS) for r in results) and passed > 0
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
