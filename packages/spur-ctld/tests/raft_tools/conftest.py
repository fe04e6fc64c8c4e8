"""A configured group on this machine, and its tools as an administrator runs them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from spur_ctld import main

#: Positions of [controller] peers in the tests' files.
THREE = 'peers = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]\n' + (
    'client_addrs = ["127.0.0.1:6001", "127.0.0.1:6002", "127.0.0.1:6003"]\n'
)


class Done(NamedTuple):
    """How a tool ended."""

    code: int
    out: list[str]
    err: list[str]


class Tools:
    """`spurctld raft` with the group's configuration."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.config = folder / "spur.conf"
        self.group(THREE)

    def group(self, lines: str) -> None:
        """Write the configuration anew."""
        self.config.write_text(f'cluster_name = "t"\n[controller]\n{lines}')

    def state(self, member: int) -> Path:
        """The state directory of a member."""
        return self.folder / f"state-{member}"

    def run(self, *words: str) -> Done:
        """Run a tool; one line of error at most."""
        self._capsys.readouterr()
        code = main.main(["raft", *words])
        shown = self._capsys.readouterr()
        assert "Traceback" not in shown.err
        return Done(code, shown.out.splitlines(), shown.err.splitlines())

    def member(self, tool: str, member: int, *words: str) -> Done:
        """Run a tool on a member's directory."""
        place = ("--config", str(self.config), "--state-dir", str(self.state(member)))
        return self.run(tool, *place, "--node-id", str(member), *words)

    def inspect(self, member: int, *words: str) -> Done:
        """Inspect a member's directory."""
        return self.run("inspect", "--state-dir", str(self.state(member)), *words)

    def make_certs(self, *members: int) -> None:
        """The CA, and the certificates in their places."""
        out = self.folder / "certs"
        assert self.run("gen-certs", "--config", str(self.config), "--out", str(out)).code == 0
        for member in members:
            self.state(member).mkdir(exist_ok=True)
            (out / f"member-{member}").rename(self.state(member) / "tls")


@pytest.fixture
def tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(tmp_path, capsys)


Log = Callable[[int, int], None]
