"""A private PostgreSQL server per test session, from Debian's package, in a temporary folder.

Its socket is a file in that folder, it listens on no network, and every durability switch is off.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=''")


class PrivatePostgres:
    """One server.  `start` and `stop` may be called again and again: tests take the database away.

    Attributes:
        url: SQLAlchemy's URL of the database `postgres`, for asyncpg, as the user `spur`.
    """

    def __init__(self, programs: Path, *, durable: bool = False) -> None:
        """`durable` keeps what was committed over `stop`, which is a crash."""
        self._programs = programs
        self._settings = ("listen_addresses=''",) if durable else _FAST
        # The server refuses to run as root.  A socket's path holds 107 bytes: not under pytest's folder.
        self._user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = Path(tempfile.mkdtemp(prefix="spurpg", dir="/tmp"))
        shutil.chown(self.folder, self._user)
        self.url = f"postgresql+asyncpg://spur@/postgres?host={self.folder}"
        locale = ["-E", "UTF8", "--locale=C.UTF-8"]
        self._run("initdb", *locale, "-A", "trust", "-U", "spur", "--no-sync", "--no-instructions")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = " ".join([f"-k {self.folder}", *(f"-c {o}" for o in self._settings)])
        self._run("pg_ctl", "-w", "-s", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once, as a crash would, and wait until it is gone."""
        self._run("pg_ctl", "-m", "immediate", "-s", "-w", "stop")

    def running(self) -> bool:
        """Whether the server process is there."""
        return self._call("pg_ctl", "status").returncode == 0

    def remove(self) -> None:
        """Stop it and delete everything."""
        if self.running():
            self.stop()
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        done = self._call(program, *arguments)
        if done.returncode:
            log = self.folder / "log"
            more = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} {arguments[-1]}: status {done.returncode}\n{done.stderr}{more}")

    def _call(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        account: dict[str, object] = {}
        if os.geteuid() == 0:
            account = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
        with tempfile.TemporaryFile("w+") as errors:  # not a pipe: the server would hold its other end open
            done = subprocess.run(
                [self._programs / program, "-D", self.folder / "data", *arguments],
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                check=False,
                **account,  # type: ignore[call-overload]
            )
            errors.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, "", errors.read())


def newest_programs() -> Path | None:
    """The folder of the newest installed server's programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


@pytest.fixture(scope="session")
def pg_server() -> Iterator[PrivatePostgres]:
    """The session's server, running.  A test that stops it starts it again."""
    programs = newest_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server programs; apt-get install postgresql")
    server = PrivatePostgres(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def pg_url(pg_server: PrivatePostgres) -> str:
    """URL of a private PostgreSQL database, shared by the session: use tables or schemas of your own."""
    return pg_server.url


@pytest.fixture
def pg_private() -> Iterator[PrivatePostgres]:
    """A server of the test's own, not started yet: for tests of a database that comes and goes."""
    programs = newest_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server programs; apt-get install postgresql")
    server = PrivatePostgres(programs, durable=True)
    try:
        yield server
    finally:
        server.remove()
