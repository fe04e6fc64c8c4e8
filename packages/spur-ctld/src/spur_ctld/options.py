"""The command line of spurctld."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from spur_core.config.address import split_address
from spur_core.errors import GrammarError, RequestError
from spur_ctld import __version__
from spur_ctld.logs import LEVELS

if TYPE_CHECKING:
    from spur_core.config.model import Config

DEFAULT_CONFIG = Path("/etc/spur/spur.conf")
#: Accepted words whose listeners do not exist yet: refused instead of ignored.
NOT_YET = ("--rest-listen", "--metrics-listen")


class Options(NamedTuple):
    """Flags as given; None = not given, the configuration decides."""

    config: Path | None
    state_dir: Path | None
    listen: str | None
    raft_listen: str | None
    node_id: int | None
    log_level: str | None
    check_config: bool
    paranoid: bool


class UsageError(RequestError):
    """The command line cannot be used."""

    code = "usage"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see spurctld --help")


def parser() -> argparse.ArgumentParser:
    """The flags of design section 7 that this release has."""
    made = _Parser(prog="spurctld", description="The controller of a SPUR cluster.", allow_abbrev=False)
    made.add_argument("-D", dest="foreground", action="store_true", help="stay in the foreground (always so)")
    made.add_argument(
        "-f", "--config", metavar="FILE", type=Path, help=f"configuration file (default {DEFAULT_CONFIG})"
    )
    made.add_argument("--state-dir", metavar="DIR", type=Path, help="where the log and snapshots live")
    made.add_argument("--listen", metavar="ADDR", help="HOST:PORT of the gRPC service; port 0 = a free one")
    made.add_argument(
        "--raft-listen",
        metavar="ADDR",
        help="HOST:PORT where the other controllers of the group reach this one",
    )
    made.add_argument(
        "--node-id", metavar="N", type=int, help="this controller's position in [controller] peers, from 1"
    )
    made.add_argument("--log-level", metavar="L", choices=LEVELS, help="debug, info, warning or error")
    made.add_argument("--check-config", action="store_true", help="check the configuration and exit")
    made.add_argument(
        "--paranoid", action="store_true", help="check the state's invariants after every change"
    )
    made.epilog = "spurctld raft --help: making, inspecting and changing a group of controllers."
    made.add_argument("-V", "--version", action="version", version=f"spurctld {__version__}")
    for flag in NOT_YET:
        made.add_argument(flag, metavar="ADDR", help=argparse.SUPPRESS)
    return made


def parse(argv: Sequence[str]) -> Options:
    """Options from the words after the program's name.

    Raises:
        UsageError: something in them cannot be used.
        SystemExit: `--help` or `--version` was printed.
    """
    found = parser().parse_args(argv)
    for flag in NOT_YET:
        if getattr(found, flag.strip("-").replace("-", "_")) is not None:
            raise UsageError(f"{flag} is not available in this release; leave it out")
    return Options(
        config=found.config,
        state_dir=found.state_dir,
        listen=found.listen,
        raft_listen=found.raft_listen,
        node_id=found.node_id,
        log_level=found.log_level,
        check_config=found.check_config,
        paranoid=found.paranoid,
    )


def read_config(path: Path | None) -> "Config":
    """The configuration; only the default file may be missing: one that was named must be there.

    Raises:
        ConfigError: it cannot be used.
    """
    from spur_core.config.loader import ConfigMissing, default_config, load_config

    try:
        return load_config(path or DEFAULT_CONFIG)
    except ConfigMissing:
        if path is not None:
            raise
        return default_config()


def in_group(config: "Config", raft_listen: str | None, node_id: int | None) -> "Config":
    """`config` with what the command line says about this member of the group.

    Raises:
        UsageError: it contradicts the list of members.
    """
    section = config.controller
    count = len(section.peers)
    if raft_listen is not None:
        if count <= 1:
            raise UsageError(
                "--raft-listen: a single controller opens no such port; leave it out, or name the members of"
                " the group in [controller] peers"
            )
        try:
            split_address(raft_listen)
        except GrammarError as error:
            raise UsageError(f"--raft-listen: {error.text}") from None
        section = dataclasses.replace(section, raft_listen_addr=raft_listen)
    if node_id is not None:
        if not 1 <= node_id <= max(count, 1):
            raise UsageError(
                f"--node-id {node_id}: must be the position of this controller in [controller] peers,"
                f" 1 to {max(count, 1)}"
            )
        section = dataclasses.replace(section, node_id=node_id)
    return dataclasses.replace(config, controller=section)
