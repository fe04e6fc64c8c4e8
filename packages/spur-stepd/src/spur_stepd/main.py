"""The program `spurstepd`: `--session DIR`, `--spawner` or `--version`."""

from __future__ import annotations

import os
import sys

_USAGE = (
    "usage: spurstepd --session DIR | --spawner | --version\n"
    "Started by the node agent; nothing to be run by hand.\n"
)


def main(argv: list[str] | None = None) -> int:
    """Run the program; the exit code."""
    args = sys.argv[1:] if argv is None else argv
    if args == ["--version"]:
        from spur_stepd import __version__

        sys.stdout.write(f"spurstepd {__version__}\n")
        sys.stdout.flush()
        return 0
    if args and (problem := _arm()):
        sys.stderr.write(f"spurstepd: {problem}\n")
        return 2
    if len(args) == 2 and args[0] == "--session":
        return _session(os.path.abspath(args[1]))
    if args == ["--spawner"]:
        from spur_stepd import spawner

        return spawner.run_spawner()
    sys.stderr.write(_USAGE)
    return 2


def _arm() -> str:
    """Set up the fault points of a test; what is wrong with the order for them, "" if nothing."""
    if "SPUR_FAULT" not in os.environ:
        return ""
    from spur_core import errors, faults

    try:
        faults.arm(os.environ)
    except errors.SpurError as error:
        return str(error)
    return ""


def _session(session_dir: str) -> int:
    """Exec mode: fork away first, import afterwards.

    The first process ends at once, so the supervisor is nobody's child; its parent reads the records on
    our standard output, if that is a pipe.
    """
    import stat

    reports = stat.S_ISFIFO(os.fstat(1).st_mode)
    if os.fork():
        os._exit(0)
    from spur_stepd import detach

    detach.detach()
    record = os.dup(1) if reports else -1
    detach.std_streams(f"{session_dir}/stepd.log")
    if record >= 0:
        os.closerange(3, record)
    os.closerange(max(record + 1, 3), 1 << 20)
    detach.default_signals()
    # Nothing that is loaded here is ever garbage; looking for some would cost 2 ms.
    import gc

    gc.disable()
    from spur_stepd import run

    gc.enable()
    run.settle()
    return run.supervise(session_dir, record, alone=True)


def console() -> None:
    """Entry of the launcher: no interpreter teardown."""
    code = main()
    sys.stdout.flush()
    os._exit(code)
