"""One command inside a step: its streams here, its exit code ours."""

import signal
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_cli.context import write_all
from spur_cli.signals import SIGNAL, Caught
from spur_cli.step import exits, session
from spur_cli.step.input import pump
from spur_cli.step.output import STDERR
from spur_cli.step.pty_run import RESIZED
from spur_cli.step.run import CAUGHT, INTERRUPT_SECS, TICK_SECS
from spur_cli.step.session import Manner, NodeSession

if TYPE_CHECKING:
    from spur_cli.step.exec_command import Wish
    from spur_cli.step.session import Rid
    from spur_cli.transport import Transport
    from spur_proto import agent_pb2

#: The command may have run, but how it ended is not known.
LOST_CODE = 255


class ExecRun:
    """Runs one command; it ends with us, with the agent or with the step."""

    def __init__(self, transport: "Transport", wish: "Wish", rid: "Rid", node: str, address: str) -> None:
        self.ctx = wish.ctx
        self._wish = wish
        self._events: SimpleQueue[session.Event] = SimpleQueue()
        manner = Manner(
            argv=wish.argv,
            environment=wish.environment,
            pty=wish.pty is not None,
            work_dir=wish.work_dir,
        )
        window = wish.pty.terminal.size() if wish.pty is not None else None
        self._session = NodeSession(transport, node, address, rid, self._events, manner, window)
        self._started = False
        self._last_interrupt = float("-inf")

    def run(self) -> int:
        """Until the command has ended; its exit code, or 128 + signal."""
        pty = self._wish.pty
        with Caught(CAUGHT, self._events) as signals:
            signals.impatient = False
            self._session.start()
            try:
                while True:
                    try:
                        event = self._events.get(timeout=TICK_SECS)
                    except Empty:
                        continue
                    code = self._handle(event)
                    if code is not None:
                        return code
            finally:
                self._session.close()
                if pty is not None:
                    pty.end()

    def _handle(self, event: session.Event) -> int | None:
        kind, _, payload = event
        if kind == session.READY:
            self._begin()
        elif kind == session.OUTPUT:
            self._write(*payload)
        elif kind == session.EXIT:
            return self._ended(payload)
        elif kind == session.FAILED:
            return self._failed(payload)
        elif kind == RESIZED and self._wish.pty is not None:
            self._wish.pty.resize([self._session])
        elif kind == SIGNAL:
            return self._signalled(payload)
        return None

    def _begin(self) -> None:
        """The command runs."""
        if self._started:
            return
        self._started = True
        threading.Thread(target=pump, args=(self.ctx.stdin, [self._session]), daemon=True).start()
        if self._wish.pty is not None:
            self._wish.pty.begin([self._session], self._events)

    def _write(self, rank: int, stream: int, end: int, data: bytes) -> None:
        write_all(self.ctx.stderr if stream == STDERR else self.ctx.stdout, data)
        self._session.delivered(rank, stream, end, len(data))

    def _ended(self, end: "agent_pb2.StepExit") -> int:
        found = end.ranks[0].exit if end.ranks else end.exit
        return exits.exit_code(exits.TaskEnd("", 0, found.code, found.signal, found.oom, found.core_dumped))

    def _failed(self, failure: CallFailed) -> int:
        node = self._session.node
        if self._started:
            text = f"{node}: the connection was lost and the command has been ended; it may be run again"
            self.ctx.error(text)
            return LOST_CODE
        self.ctx.error(f"{node}: {failure.text}" + ("" if failure.reached else "; try again"))
        return 1

    def _signalled(self, number: int) -> int | None:
        """Signals are the command's; who interrupts twice leaves it, which ends it."""
        now = time.monotonic()
        twice = number == signal.SIGINT and now - self._last_interrupt <= INTERRUPT_SECS
        if number == signal.SIGINT:
            self._last_interrupt = now
        if twice or not self._started:
            return 128 + number
        self._session.send_signal(number)
        return None
