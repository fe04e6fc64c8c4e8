"""What a job inherits from the place it is submitted from: limits, umask, directory, host."""

import os

from spur_cli.context import Context
from spur_core.grammar import export

#: Slurm's names, in its order, with the kernel's numbers as `resource` has them.
_NAMES = "CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS"
LIMITS = _NAMES.split()
_UNLIMITED = "unlimited"


def umask() -> int:
    """The process's umask, read without setting it."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def rlimits(ctx: Context, option: str | None, given: bool) -> list[str]:
    """`NAME=soft:hard` of the limits to hand on; all of them unless `--propagate` says otherwise.

    Raises:
        Stop: an unknown limit's name.
    """
    wanted = [word.strip().upper().removeprefix("RLIMIT_") for word in (option or "ALL").split(",")]
    if given and wanted == ["NONE"]:
        return []
    if "ALL" in wanted:
        wanted = LIMITS
    import resource

    out = []
    for name in wanted:
        number = getattr(resource, f"RLIMIT_{name}", None) if name in LIMITS else None
        if number is None:
            raise ctx.stop(
                f"--propagate={option}: {name} is not a limit; use ALL, NONE or {','.join(LIMITS)}", 255
            )
        soft, hard = resource.getrlimit(number)
        out.append(f"{name}={_limit(soft)}:{_limit(hard)}")
    return out


def _limit(value: int) -> str:
    return _UNLIMITED if value in (-1, (1 << 64) - 1) else str(value)


def environment(ctx: Context, option: str | None, export_file: str | None) -> list[bytes]:
    """The `NAME=value` entries of the job.

    Raises:
        Stop: `--export` or `--export-file` cannot be used.
        GrammarError: a word of `--export` is no name.
    """
    env = dict(export.select(option, ctx.env_bytes()).env)
    if export_file is not None:
        env.update(export.parse_file(_file(ctx, export_file)))
    env[b"SLURM_SUBMIT_DIR"] = os.fsencode(ctx.cwd)
    env[b"SLURM_SUBMIT_HOST"] = os.fsencode(host())
    env[b"SLURM_UMASK"] = f"{umask():04o}".encode()
    env[b"SLURM_PRIO_PROCESS"] = str(os.nice(0)).encode()
    return [name + b"=" + value for name, value in env.items()]


def host() -> str:
    """The name of this host."""
    return os.uname().nodename


def rlimit_entries(limits: list[str]) -> list[bytes]:
    """`SLURM_RLIMIT_<NAME>=soft` for the job's environment."""
    out = []
    for item in limits:
        name, _, values = item.partition("=")
        soft = values.partition(":")[0]
        out.append(f"SLURM_RLIMIT_{name}={(1 << 64) - 1 if soft == _UNLIMITED else soft}".encode())
    return out


def _file(ctx: Context, name: str) -> bytes:
    is_descriptor = name.isascii() and name.isdigit() and int(name) >= 3
    try:
        fd = int(name) if is_descriptor else os.open(ctx.path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(fd, 1 << 16):
                parts.append(part)
        finally:
            if not is_descriptor:
                os.close(fd)
    except OSError as error:
        raise ctx.stop(f"Unable to open file {name}: {error.strerror}") from None
    return b"".join(parts)
