"""The program `spurd`: from the command line to a running daemon.

The spawner is started before gRPC is imported and before any thread exists; everything that can be judged
without them is judged first, so that a mistake of the administrator's is one line and exit status 1.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from spur_agent import logs, options, program, settings, spawner
from spur_agent.runtime_dir import Runtime, open_runtime
from spur_core import faults
from spur_core.errors import ConfigError, SpurError

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    # Before the first import of grpc: with its fork handlers on, starting a process beside a call hangs.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    try:
        faults.arm(os.environ)
        given = options.parse(sys.argv[1:] if argv is None else argv)
        found = settings.resolve(given, os.environ)
        logs.set_up(found.log_level)
        for warning in found.warnings:
            log.warning("start_warning text=%s", logs.value(warning))
        if given.emulate is not None:
            # No supervisors, no state, no node of its own.
            from spur_agent.emulate.daemon import run as emulate

            emulate(found, given.emulate)
            return 0
        runtime = open_runtime(found.state_dir)
        return _serve(found, runtime)
    except ConfigError as error:
        for problem in error.problems:
            print(f"spurd: error: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    except SpurError as error:
        print(f"spurd: error: {error.text}", file=sys.stderr)  # noqa: T201
        return 1


def _serve(found: settings.Settings, runtime: Runtime) -> int:
    # A signal that comes before the loop has its handlers must not kill us half-way.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    path = program.locate(found.config.agent.stepd_path)
    first = None
    try:
        if found.config.agent.spawn == "exec":
            program.check(path)
        else:
            first = spawner.start_process(path, os.environ)
    except program.ProgramUnusable as error:
        log.error("supervisor_missing error=%s", logs.value(error.text))
    from spur_agent.daemon import Daemon

    async def run() -> None:
        await Daemon(found, runtime, path, first).run()

    asyncio.run(run())
    return 0
