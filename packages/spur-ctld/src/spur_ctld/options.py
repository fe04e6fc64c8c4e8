"""The command line of spurctld."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from spur_core.errors import RequestError
from spur_ctld import __version__
from spur_ctld.logs import LEVELS

DEFAULT_CONFIG = Path("/etc/spur/spur.conf")
#: Accepted words whose listeners do not exist yet: refused instead of ignored.
NOT_YET = ("--rest-listen", "--raft-listen", "--metrics-listen")


class Options(NamedTuple):
    """Flags as given; None = not given, the configuration decides."""

    config: Path | None
    state_dir: Path | None
    listen: str | None
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
    made.add_argument("--log-level", metavar="L", choices=LEVELS, help="debug, info, warning or error")
    made.add_argument("--check-config", action="store_true", help="check the configuration and exit")
    made.add_argument(
        "--paranoid", action="store_true", help="check the state's invariants after every change"
    )
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
        log_level=found.log_level,
        check_config=found.check_config,
        paranoid=found.paranoid,
    )
