"""Where the batch script comes from, and what is checked before it is sent."""

import os

from spur_cli.context import Context

MAX_BYTES = 4 << 20
WRAP_HEAD = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"


class Script:
    """A batch script.

    body: its bytes.  file: its name for messages.  path: absolute path, "" when it came by stdin or --wrap.
    name: the default job name.
    """

    __slots__ = ("args", "body", "file", "name", "path")

    def __init__(self, body: bytes, file: str, path: str, name: str, args: list[str]) -> None:
        self.body = body
        self.file = file
        self.path = path
        self.name = name
        self.args = args


def find(ctx: Context, operands: list[str], wrap: str | None, work_dir: str | None) -> Script:
    """The script of this call.

    Args:
        operands: script and its arguments, as given.
        work_dir: the value of `-D`, where a relative name is looked up first.

    Raises:
        Stop: there is none, or it cannot be used.
    """
    if wrap is not None:
        if operands:
            raise ctx.stop("Script arguments not permitted with --wrap option")
        body = WRAP_HEAD + wrap + "\n"
        return Script(body.encode("utf-8", "surrogateescape"), "wrap", "", "wrap", [])
    if not operands:
        script = Script(_read_all(ctx, ctx.stdin, "standard input"), "stdin", "", "sbatch", [])
    else:
        path = _look_up(ctx, operands[0], work_dir)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise ctx.stop(f"Unable to open file {operands[0]}") from None
        try:
            body_bytes = _read_all(ctx, fd, operands[0])
        finally:
            os.close(fd)
        base = operands[0].rsplit("/", 1)[-1]
        script = Script(body_bytes, operands[0], path, base, operands[1:])
    check(ctx, script.body)
    return script


def _look_up(ctx: Context, name: str, work_dir: str | None) -> str:
    if name.startswith("/"):
        return name
    for folder in ([ctx.path(work_dir)] if work_dir else []) + [ctx.cwd]:
        path = f"{folder.rstrip('/')}/{name}"
        if os.path.exists(path):  # noqa: PTH110 - pathlib costs start-up time
            return path
    if "/" not in name:
        for folder in ctx.env.get("PATH", "").split(":"):
            path = f"{folder.rstrip('/')}/{name}"
            if folder and os.path.isfile(path):  # noqa: PTH113 - as above
                return path
    return ctx.path(name)


def _read_all(ctx: Context, fd: int, what: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = os.read(fd, 1 << 16)
        except OSError as error:
            raise ctx.stop(f"Unable to read file {what}: {error.strerror}") from None
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ctx.fatal(f"Job script exceeds size limit of {MAX_BYTES} bytes: {what}")


def check(ctx: Context, body: bytes) -> None:
    """Refuse what cannot be a batch script, with Slurm's words.

    Raises:
        Stop: it is none.
    """
    if not body:
        raise ctx.stop("Batch script is empty!")
    if not body.strip():
        raise ctx.stop("Batch script contains only whitespace!")
    if not body.startswith(b"#!"):
        ctx.error("This does not look like a batch script.  The first")
        ctx.error("line must start with #! followed by the path to an interpreter.")
        raise ctx.stop("For instance: #!/bin/sh")
    if b"\0" in body:
        text = "The Slurm controller does not allow scripts that contain a NULL character '\\0'."
        raise ctx.stop(text)
    if b"\r\n" in body:
        ctx.error("Batch script contains DOS line breaks (\\r\\n)")
        raise ctx.stop("instead of expected UNIX line breaks (\\n).")
