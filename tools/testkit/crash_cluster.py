"""A cluster whose daemons are killed and started by hand, and what must be true of it afterwards.

Made as `spur up` makes it, but every daemon is started here: the controller with `--paranoid`, so that a
broken rule of its state shows in its log, and nobody waits for a daemon that is to be killed at once.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spur_cli.cluster import home
from spur_core.linux import cgroup_layout, procfs
from testkit.tuned import tuned

BIN = Path(sys.executable).parent
CONTROLLER = home.CONTROLLER
#: A time-out of a condition here means a lost job or a hung daemon, not a slow machine.
PATIENCE = 60.0


def until(condition: Callable[[], Any], what: str, secs: float = PATIENCE) -> Any:
    """Ask again and again until `condition` gives something true.

    Raises:
        AssertionError: it never did.
    """
    deadline = time.monotonic() + secs
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {secs:g} s still not: {what}")
        pause.wait(0.05)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def processes() -> Iterator[tuple[int, list[str]]]:
    """(pid, arguments) of every process that has any."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[0] and alive(int(entry)):
                    yield int(entry), words


def configure(config: Path, wanted: dict[str, dict[str, str]]) -> None:
    """Add keys (section -> key -> value in TOML) to a configuration, in which the sections may be already."""
    text = config.read_text()
    for section, values in wanted.items():
        lines = "".join(f"{key} = {value}\n" for key, value in values.items())
        head = f"[{section}]\n"
        text = text.replace(head, head + lines) if head in text else f"{text}\n{head}{lines}"
    config.write_text(text)


class CrashCluster:
    """`controllers` controllers and `nodes` agents below `folder`.

    Args:
        fault: Python source that puts a fault into the supervisor program, see `_faulty`.
        silence: seconds after which a silent node is down.
        settings: section -> key -> value in TOML, laid over those of the harness.
        waits: "module.CONSTANT" -> seconds: what the agents wait for that nobody can configure.
        paranoid: controllers check the rules of their state after every change, of replayed ones too, which
            takes them seconds after a restart once there are many jobs.

    Attributes:
        runs: the file in which every job notes `JOB.RESTARTS.PID` as its first act.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        cpus: int = 8,
        fault: str = "",
        silence: int = 90,
        settings: dict[str, dict[str, str]] | None = None,
        controllers: int = 1,
        waits: Mapping[str, float] | None = None,
        paranoid: bool = True,
    ) -> None:
        self.folder = folder
        self._paranoid = paranoid
        self.waits = dict(waits or {})
        self.work = Path(tempfile.mkdtemp(prefix="crash-", dir=folder.parent))
        self.work.chmod(0o777)
        self.runs = self.work / "runs"
        self.runs.touch()
        self.runs.chmod(0o666)
        self.layout = home.create(folder, nodes, cpus, "", controllers)
        wanted: dict[str, dict[str, str]] = {
            "controller": {"heartbeat_timeout_secs": str(silence)},
            "scheduler": {"kill_wait_secs": "2"},
            "agent": {"heartbeat_interval_secs": "1"},
        }
        if fault:
            wanted["agent"]["stepd_path"] = json.dumps(str(self._faulty(fault)))
        for section, values in (settings or {}).items():
            wanted.setdefault(section, {}).update(values)
        configure(self.layout.config, wanted)
        self.env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "SPUR_CONF": str(self.layout.config),
        }
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def _faulty(self, fault: str) -> Path:
        """A supervisor program that has `fault`, which may call `die()`, the first time only: SIGKILL to
        itself, or with `die(AGENT)` to the agent of the first node."""
        path = self.work / "spurstepd"
        once = self.work / "died"
        path.write_text(
            f"#!{sys.executable} -IB\n"
            "import os, signal\n"
            "from spur_stepd import main, requests, supervisor\n"
            f"AGENT = {str(self.folder / 'run' / 'spurd-node1.pid')!r}\n"
            "def die(pid_file=''):\n"
            "    try:\n"
            f"        os.close(os.open({str(once)!r}, os.O_CREAT | os.O_EXCL))\n"
            "    except FileExistsError:\n"
            "        return\n"
            "    pid = int(open(pid_file).read()) if pid_file else os.getpid()\n"
            "    os.kill(pid, signal.SIGKILL)\n"
            f"{fault}\n"
            "main.console()\n"
        )
        path.chmod(0o755)
        return path

    # -- daemons

    @property
    def agents(self) -> list[str]:
        """Names of the agents."""
        return [name for name in self.layout.daemons if name not in self.layout.controllers]

    def start(self, name: str, *, wait: bool = False, faults: str = "", prefix: Sequence[str] = ()) -> None:
        """Start the daemon if it does not run.

        Args:
            faults: names of fault points (spur_core.faults) for it and its supervisors, joined by commas;
                each strikes once.
            prefix: words in front of its command, such as `unshare -m`.
        """
        with self._lock:
            child = self._children.get(name)
            if child is None or child.poll() is not None:
                self._launch(name, faults, prefix)
        if wait:
            until(lambda: self.ready(name), f"{name} is ready")

    def _launch(self, name: str, faults: str, prefix: Sequence[str]) -> None:
        struck = self.work / f"struck-{name}-{len(list(self.work.iterdir()))}"
        env = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0", **self._environment(name)}
        if faults:
            env |= {"SPUR_FAULT": faults, "SPUR_TEST_FAULTS": "1", "SPUR_FAULT_ONCE": str(struck)}
        words = self.layout.command(name)
        if name in self.layout.controllers and self._paranoid:
            words.append("--paranoid")
        program = tuned(str(BIN / words[0]), self.waits if name in self.agents else {})
        run = self.folder / "run"
        with open(run / f"{name}.ready", "wb") as out, open(self.log(name), "ab") as err:
            child = subprocess.Popen(
                [*prefix, *program, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd=self.folder,
                start_new_session=True,
            )
        self._children[name] = child
        (run / f"{name}.pid").write_text(f"{child.pid}\n")

    def _environment(self, name: str) -> dict[str, str]:
        """What the daemon's environment has besides."""
        return {}

    def ready(self, name: str) -> bool:
        """Whether it has said READY."""
        child = self._children[name]
        assert child.poll() is None, f"{name} ended: {self.log(name).read_text()[-2000:]}"
        return "READY " in (self.folder / "run" / f"{name}.ready").read_text()

    def start_all(self) -> None:
        """Start what does not run; wait until all of it answers.

        Controllers first: an agent that finds none has its pauses before it registers.
        """
        for names in (self.layout.controllers, self.agents):
            for name in names:
                self.start(name)
            for name in names:
                until(lambda name=name: self.ready(name), f"{name} is ready")  # type: ignore[misc]

    def running(self, name: str) -> bool:
        """Whether the daemon's process lives."""
        with self._lock:
            return self._children[name].poll() is None

    def pid(self, name: str) -> int:
        """Of a daemon that was started."""
        return self._children[name].pid

    def log(self, name: str) -> Path:
        """The daemon's log."""
        return self.folder / "log" / f"{name}.log"

    def kill(self, *names: str) -> None:
        """SIGKILL, all of them before any is waited for."""
        with self._lock:
            children = [self._children[name] for name in names]
            for child in children:
                child.kill()
            for child in children:
                child.wait()

    def stop(self) -> None:
        """End everything that belongs to this cluster, with its jobs."""
        with self._lock:
            for child in self._children.values():
                child.kill()
                child.wait()
        for pid in [*self.supervisors(), *self.shells()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Killed agents leave their own empty groups, which nobody will use again.
        for base in self._bases():
            for path in [*Path(base).glob("stepd"), Path(base)]:
                with contextlib.suppress(OSError):
                    path.rmdir()

    def _group_names(self) -> set[str]:
        """Names of the topmost groups of this cluster's agents."""
        states = [str(self.folder / "state" / agent) for agent in self.agents]
        return {f"spur_{hashlib.sha256(state.encode()).hexdigest()[:8]}" for state in states}

    def _bases(self) -> list[str]:
        """The directories of control groups that this cluster's agents have, one per agent and tree."""
        layout = cgroup_layout.detect()
        names = self._group_names()
        found = []
        for base in {str(base) for base in (layout.unified, *layout.v1.values()) if base}:
            for path, below, _ in os.walk(base):
                found += [f"{path}/{name}" for name in below if name in names]
                # What jobs make in their groups may be deeper than any path can name.
                below[:] = [name for name in below if not name.startswith("spur")]
        return found

    # -- what is on the nodes

    def sessions(self) -> list[Path]:
        """Every session directory."""
        return [path for name in self.agents for path in (self._runtime(name) / "sessions").iterdir()]

    def _runtime(self, agent: str) -> Path:
        return self.folder / "state" / agent / "runtime"

    def supervisors(self) -> list[int]:
        """Supervisors, known by the open log in their session; spawners have none.

        A session on a disk that was taken away has no path any more; its supervisor is known by its group.
        Only root may look at an open log; for others there is the session's descriptor.
        """
        inside = f"{self.folder}/state/"
        groups = [f"/{name}/stepd" for name in self._group_names()]
        found = []
        for pid, words in list(processes()):
            if any(word.endswith("spurstepd") for word in words[:8]):
                with contextlib.suppress(OSError):
                    log = os.readlink(f"/proc/{pid}/fd/2")
                    if log.startswith(inside):
                        found.append(pid)
                    elif log.endswith("/stepd.log"):
                        text = Path(f"/proc/{pid}/cgroup").read_text()
                        found += [pid] * any(group in text for group in groups)
        with contextlib.suppress(OSError):
            found += [pid for session in self.sessions() if (pid := living_supervisor(session)) is not None]
        return list(dict.fromkeys(found))

    def spawner(self, agent: str) -> int | None:
        """The agent's spawner: the child of it that runs the supervisor program."""
        parent = self.pid(agent)
        for pid, words in list(processes()):
            if "--spawner" in words:
                with contextlib.suppress(OSError):
                    stat = Path(f"/proc/{pid}/stat").read_text()
                    if int(stat.rpartition(")")[2].split()[1]) == parent:
                        return pid
        return None

    def supervisor_of(self, job: str) -> int | None:
        """The pid that the newest session of the job names."""
        found = [path for path in self.sessions() if path.name.startswith(f"{job}.")]
        for path in sorted(found, key=lambda path: int(path.name.split(".")[1]), reverse=True):
            if (pid := supervisor_in(path)) is not None:
                return pid
        return None

    def shells(self) -> list[int]:
        """Processes of jobs: their environment names this cluster's work folder."""
        mark = f"SLURM_SUBMIT_DIR={self.work}".encode()
        found = []
        for pid, _ in list(processes()):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def groups(self) -> list[str]:
        """Control groups of jobs that are still there."""
        found: list[str] = []
        for base in self._bases():
            with contextlib.suppress(FileNotFoundError):
                found += [str(path) for path in Path(base).glob("job_*")]
        return found

    def groups_below(self, name: str) -> list[Path]:
        """Control groups of that name and what is in them, outermost first."""
        found: set[Path] = set()
        for base in self._bases():
            for top in Path(base).glob(name):
                found |= {top, *(path for path in top.glob("**/") if path.is_dir())}
        return sorted(found)

    def moment(self, mark: str, secs: float) -> str:
        """Wait, without a pause, until a session that is not there now has come so far; its name, "" if none.

        Args:
            mark: "directory", "descriptor", or a journal event such as "Started".
        """
        known = {path.name for path in self.sessions()}
        folders = [str(self._runtime(name) / "sessions") for name in self.agents]
        deadline = time.monotonic() + secs
        while time.monotonic() < deadline:
            for folder in folders:
                for name in os.listdir(folder):
                    if name not in known and not name.startswith(".") and _reached(f"{folder}/{name}", mark):
                        return name
        return ""

    def session(self, agent: str, name: str) -> Path:
        """A session's directory."""
        return self._runtime(agent) / "sessions" / name

    def agent_of(self, session: str) -> str:
        """The agent that has that session, or had it last."""
        for name in self.agents:
            if (self._runtime(name) / "sessions" / session).exists():
                return name
        return self.agents[0]

    # -- commands

    def run(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, whatever comes of it."""
        return subprocess.run(
            argv, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=120, check=False
        )

    def ok(self, *argv: str) -> str:
        """Run a command that must succeed; its stdout."""
        done = self.run(*argv)
        assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def body(self, last: str) -> str:
        """A job's script: notes its run, then does `last`."""
        return f"echo $SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$ >> {self.runs}; {last}"

    def submit(self, last: str, *options: str) -> str:
        """Submit a job that notes its runs; its id, or "" when nobody took it."""
        done = self.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", self.body(last))
        return done.stdout.strip() if done.returncode == 0 else ""

    def rows(self) -> list[tuple[str, str, str]]:
        """(job, state without its "by UID", exit) of every job's last run in the history."""
        out = self.ok("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobID,State,ExitCode")
        rows = [line.split("|") for line in out.splitlines()]
        return [(job, state.split(" ")[0], status) for job, state, status in rows]

    def state(self, job: str) -> str:
        """Of the job's last run."""
        out = self.ok("sacct", "-j", job, "-X", "-n", "-P", "-o", "State")
        return out.split("\n")[0].split(" ")[0]

    def state_or_nothing(self, job: str) -> str:
        """The same, also while no controller answers."""
        done = self.run("sacct", "-j", job, "-X", "-n", "-P", "-o", "State")
        return done.stdout.split("\n")[0].split(" ")[0]

    def queued(self) -> list[str]:
        """Lines of the queue."""
        return self.ok("squeue", "-h", "-o", "%i %t %r %N").splitlines()

    def noted(self) -> list[tuple[str, str]]:
        """(job, restarts) of every run that began."""
        return [(line.split(".")[0], line.split(".")[1]) for line in self.runs.read_text().split()]

    def runs_of(self, job: str) -> int:
        """How often the job began."""
        return sum(1 for name, _ in self.noted() if name == job)

    until = staticmethod(until)

    # -- what must be true

    def settle(self, secs: float = PATIENCE) -> None:
        """Start everything; wait until every job has ended and the nodes hold nothing.

        Raises:
            AssertionError: that does not come.
        """
        self.start_all()
        try:
            until(lambda: not self.queued(), "the queue is empty", secs)
            until(lambda: not self.sessions(), "no session is left", secs)
            until(self.idle, "all nodes are idle", secs)
        except AssertionError as error:
            left = [path.name for path in self.sessions()]
            raise AssertionError(f"{error}; queue {self.queued()}, sessions {left}") from None

    def idle(self) -> bool:
        """All nodes answer and hold nothing."""
        out = self.ok("sinfo", "-h", "-N", "-o", "%t").split()
        return len(out) == len(self.agents) and set(out) == {"idle"}

    def faults(self, codes: dict[str, int], cancelled: set[str]) -> list[str]:
        """Everything that is not as it must be, once settled.

        Args:
            codes: job -> exit code that its script ends with.
            cancelled: jobs that somebody tried to cancel.
        """
        found = []
        rows = self.rows()
        for job, count in Counter(job for job, _, _ in rows).items():
            if count > 1:
                found.append(f"job {job} is {count} times in the history")
        history = {job: (state, status) for job, state, status in rows}
        for job, code in codes.items():
            truth = ("FAILED" if code else "COMPLETED", f"{code}:0")
            told = history.get(job)
            if told != truth and not (job in cancelled and told is not None and told[0] == "CANCELLED"):
                found.append(f"job {job} ended {told}, its script {truth}")
        noted = Counter(self.noted())
        found += [f"job {job} restart {n} ran {k} times" for (job, n), k in noted.items() if k > 1]
        ran = {job for job, _ in noted}
        found += [
            f"job {job} never ran"
            for job, (state, _) in history.items()
            if state != "CANCELLED" and job not in ran
        ]
        return found + self.left()

    def files_left(self) -> list[str]:
        """Scripts of ended jobs, and sessions that were set aside, of which there should be none."""
        places = [self.folder / "state" / name for name in self.agents]
        folders = [place / part for place in places for part in ("runtime/quarantine", "spool")]
        return [f"{path} is left" for folder in folders for path in folder.glob("*")]

    def left(self) -> list[str]:
        """What should be gone once settled, and complaints in the daemons' logs."""
        with contextlib.suppress(AssertionError):
            until(lambda: not (self.supervisors() or self.shells() or self.groups()), "all gone", 15)
        found = [f"supervisor {pid} is left" for pid in self.supervisors()]
        found += [f"process {pid} of a job is left" for pid in self.shells()]
        found += [f"group {path} is left" for path in self.groups()]
        for name in self.layout.daemons:
            text = self.log(name).read_text(errors="replace")
            for match in re.finditer(r"Traceback|Task exception|never retrieved|_broke |timer_failed", text):
                found.append(f"{name}: {text[max(match.start() - 300, 0) : match.start() + 1500]}")
                break
        return found


def _reached(session: str, mark: str) -> bool:
    if mark == "directory":
        return True
    try:
        if mark == "descriptor":
            return os.path.exists(f"{session}/descriptor.json")
        with open(f"{session}/journal") as file:
            return f'"{mark}"' in file.read()
    except OSError:
        return False


def living_supervisor(session: Path) -> int | None:
    """The pid that the session's descriptor names, if exactly that process lives."""
    try:
        found = json.loads((session / "descriptor.json").read_text())
        pid, ticks = int(found["stepd_pid"]), int(found["stepd_start_ticks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if procfs.start_ticks(pid) == ticks else None


def supervisor_in(session: Path) -> int | None:
    """The pid that the session's descriptor names."""
    try:
        return int(json.loads((session / "descriptor.json").read_text())["stepd_pid"])
    except (OSError, ValueError):
        return None
