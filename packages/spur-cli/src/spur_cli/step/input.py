"""Standard input on its way to a step."""

import os
from collections.abc import Sequence

from spur_cli.step.session import NodeSession

_READ_BYTES = 64 << 10


def pump(fd: int, sessions: Sequence[NodeSession]) -> None:
    """Give every session what can be read from `fd`, then the end; the body of a thread.

    Reads no further while much of it is on its way, so the slowest node sets the pace.
    """
    while True:
        for one in sessions:
            one.wait_for_room()
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError:
            data = b""  # a terminal that is gone
        for one in sessions:
            one.send_stdin(data)
        if not data:
            return
