"""The program spurctld: flags, configuration, signals, readiness, exit codes."""

import os

# Before the first import of grpc: its fork handlers must never run in this process.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spur_core import faults
from spur_core.errors import ConfigError, SpurError
from spur_ctld import logs, options

if TYPE_CHECKING:
    from spur_core.config.model import Config

log = logging.getLogger(__name__)

EXIT_FAILED = 1
#: The log or the group is of a newer release (`replication.api`, which is not imported for `--help`).
EXIT_TOO_OLD = 78
TOO_NEW = "too_new"


#: The Slurm whose commands and answers this is; scripts look at it.
COMPATIBLE_VERSION = "25.11.0"


def _complain(problems: Sequence[str]) -> None:
    for problem in problems:
        sys.stderr.write(f"spurctld: error: {problem}\n")
    sys.stderr.flush()


def _problems(error: SpurError) -> list[str]:
    return error.problems if isinstance(error, ConfigError) else [error.text]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the controller until SIGTERM or SIGINT; returns the exit code."""
    try:
        faults.arm(os.environ)
        _be_older()
        words = list(sys.argv[1:] if argv is None else argv)
        if words[:1] == ["raft"]:
            from spur_ctld.raft_tools.cli import run

            return run(words[1:])
        return _main(options.parse(words))
    except SpurError as error:
        _complain(_problems(error))
        return EXIT_TOO_OLD if error.code == TOO_NEW else EXIT_FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _be_older() -> None:
    """In tests of upgrades this process may have to behave as an older release."""
    if "SPUR_TEST_COMMAND_VERSION" in os.environ:
        from spur_ctld.state import versions

        versions.pretend(os.environ)


def _main(opts: options.Options) -> int:
    path = opts.config or options.DEFAULT_CONFIG
    config = options.read_config(opts.config)
    config = options.in_group(config, opts.raft_listen, opts.node_id)
    logs.set_up(opts.log_level or config.logging.level, config.logging.format)
    from spur_core.config import group

    for warning in group.warnings(config):
        log.warning("group text=%r", warning)
    if opts.check_config:
        _check(config, opts)
        sys.stdout.write(f"{path}: ok\n")
        return 0
    listen = opts.listen or config.controller.listen_addr
    state_dir = opts.state_dir or Path(config.controller.state_dir)
    from spur_core.config.address import split_address
    from spur_core.linux.connections import raise_file_limit

    split_address(listen)
    raise_file_limit()
    from spur_ctld.controller import Controller
    from spur_ctld.replication.watchdog import new_event_loop

    controller = Controller(
        config,
        state_dir,
        listen,
        fatal=_fatal,
        paranoid=opts.paranoid,
        facts=_facts(config, path, state_dir, listen),
    )
    # A loop that counts its own long turns.
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(controller))
    return 0


def _check(config: "object", opts: options.Options) -> None:
    """What a start would refuse, besides the file itself."""
    from spur_auth.posture import posture
    from spur_core.config.model import Config
    from spur_core.config.secret import resolve_jwt_key

    assert isinstance(config, Config)
    auth = config.auth
    listen = opts.listen or config.controller.listen_addr
    judged = posture(
        auth.plugin, auth.mode, resolve_jwt_key(config), listen, forced=auth.allow_none_off_loopback
    )
    problems = list(judged.refusals)
    if len(config.controller.peers) > 1:
        problems += _group_problems(config, opts.state_dir or Path(config.controller.state_dir))
    if problems:
        raise ConfigError(problems)


def _group_problems(config: "Config", state_dir: Path) -> list[str]:
    """Why this host cannot be a member of its group."""
    from spur_core.config import group
    from spur_ctld import membership

    own, _ = group.members(config, socket.gethostname())
    return membership.problems(config, own, state_dir)


async def _serve(controller: "object") -> int:
    from spur_ctld.controller import Controller, run_until

    assert isinstance(controller, Controller)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    began = time.monotonic()
    await run_until(stop, controller, announce)
    log.info("stopped up_secs=%d", time.monotonic() - began)
    return 0


def announce(address: str) -> None:
    """Readiness: one line on stdout, and systemd's message."""
    sys.stdout.write(f"READY spurctld {address}\n")
    sys.stdout.flush()
    target = os.environ.get("NOTIFY_SOCKET", "")
    if target:
        if target.startswith("@"):
            target = "\0" + target[1:]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1\n", target)


def _fatal(error: BaseException) -> None:
    """The log cannot be trusted any more: end at once, with a code of its own, and let nothing more out."""
    from spur_ctld.replication.api import EXIT_STORAGE, TooNew

    if isinstance(error, TooNew):
        # The log is in order, but what follows in it is for a newer release.
        sys.stderr.write(f"spurctld: fatal: {error.text}\n")
        sys.stderr.flush()
        os._exit(EXIT_TOO_OLD)
    sys.stderr.write(f"spurctld: fatal: the log cannot be written any more: {error}\n")
    sys.stderr.flush()
    os._exit(EXIT_STORAGE)


def _facts(config: "Config", config_path: Path, state_dir: Path, listen: str) -> dict[str, str]:
    """What `GetConfig` tells of this process."""
    from spur_ctld.users import user_name

    host = socket.gethostname()
    return {
        "AccountingStorageType": "accounting_storage/spur",
        "AuthType": f"auth/{config.auth.plugin}",
        "BOOT_TIME": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "SLURM_CONF": str(config_path),
        "SLURM_VERSION": COMPATIBLE_VERSION,
        "SlurmUser": f"{user_name(os.getuid())}({os.getuid()})",
        "SlurmctldHost[0]": host,
        "SlurmctldPort": listen.rpartition(":")[2],
        "OverTimeLimit": f"{config.scheduler.over_time_limit // 60} min",
        "SlurmdPort": config.agent_listen_addr.rpartition(":")[2],
        "SlurmdSpoolDir": config.agent_state_dir,
        "StateSaveLocation": str(state_dir),
    }


if __name__ == "__main__":
    sys.exit(main())
