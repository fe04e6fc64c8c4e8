"""Where the output of tasks goes: this terminal, nowhere, or files by pattern; with labels when asked for."""

import os
from collections.abc import Mapping

from spur_cli.context import Context, write_all
from spur_core.grammar import filepattern

STDOUT, STDERR = 1, 2
#: Files that are open at once; a step may write more of them than a process may have open.
OPEN_FILES = 256
#: rank -> (node, its place among the step's nodes)
Places = Mapping[int, tuple[str, int]]


class Target:
    """One of -o and -e.

    text: as given; "" or "all" = the terminal, "none" = nowhere, a number = only that task, else a pattern.
    """

    def __init__(self, text: str) -> None:
        self.only: int | None = None
        self.pattern = ""
        kind, rank = filepattern.stream_target(text or "all")
        self.nowhere = kind == "none"
        if kind == "rank":
            self.only = rank
        elif kind == "file":
            self.pattern = text


class Output:
    """Writes what tasks print.

    Args:
        out, err: the values of -o and -e.
        width: of the labels, 0 = no labels.
        append: files are appended to instead of being emptied first.
    """

    def __init__(
        self,
        ctx: Context,
        out: str,
        err: str,
        *,
        width: int,
        append: bool,
        values: filepattern.PatternValues,
        work_dir: str,
    ) -> None:
        self._ctx = ctx
        targets = {STDOUT: Target(out), STDERR: Target(err)}
        # One file for both unless -e says otherwise, as long as -o names a file.
        if not err and (targets[STDOUT].pattern or targets[STDOUT].nowhere):
            targets[STDERR] = targets[STDOUT]
        self._targets = targets
        self._width = width
        self._append = append
        self._values = values
        self._work_dir = work_dir
        #: Open files, the one used longest ago first.
        self._files: dict[str, int] = {}
        #: Every file of this step: what was emptied once is appended to later.
        self._begun: set[str] = set()
        self._partial: dict[tuple[int, int], bytes] = {}

    def begin(self, places: Places) -> None:
        """Make every file, so that it is there although its task prints nothing.

        Raises:
            OSError: one cannot be made; `filename` names it.
        """
        for stream, target in self._targets.items():
            if not target.pattern:
                continue
            codes = filepattern.codes(target.pattern)
            for rank, (node, index) in sorted(places.items()):
                self._descriptor(target, stream, rank, node, index)
                if not codes & {"t", "N", "n"}:
                    break

    def write(self, rank: int, stream: int, node: str, node_index: int, data: bytes) -> None:
        """Bytes that a task printed.

        Raises:
            OSError: they cannot be written.
        """
        target = self._targets[stream]
        if target.nowhere or (target.only is not None and target.only != rank):
            return
        if not self._width:
            write_all(self._descriptor(target, stream, rank, node, node_index), data)
            return
        whole, newline, rest = (self._partial.pop((rank, stream), b"") + data).rpartition(b"\n")
        if rest:
            self._partial[rank, stream] = rest
        if newline:
            label = f"{rank:>{self._width}}: ".encode()
            text = b"".join(label + line + b"\n" for line in whole.split(b"\n"))
            write_all(self._descriptor(target, stream, rank, node, node_index), text)

    def _descriptor(self, target: Target, stream: int, rank: int, node: str, node_index: int) -> int:
        if not target.pattern:
            return self._ctx.stdout if stream == STDOUT else self._ctx.stderr
        values = self._values._replace(task=rank, node=node, node_index=node_index)
        path = filepattern.resolve(target.pattern, values, self._work_dir)
        fd = self._files.pop(path, None)
        if fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            if not self._append and path not in self._begun:
                flags |= os.O_TRUNC
            if len(self._files) >= OPEN_FILES:
                os.close(self._files.pop(next(iter(self._files))))
            fd = os.open(path, flags, 0o666)
            self._begun.add(path)
        self._files[path] = fd
        return fd

    def finish(self, places: Places) -> None:
        """Print lines that were never ended, and close the files.

        Args:
            places: rank -> (node, its index).
        """
        for (rank, stream), rest in sorted(self._partial.items()):
            node, index = places.get(rank, ("", 0))
            fd = self._descriptor(self._targets[stream], stream, rank, node, index)
            write_all(fd, f"{rank:>{self._width}}: ".encode() + rest + b"\n")
        self._partial.clear()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
