"""A step that is joined by a further client, who gives it input only while nobody else does."""

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_cli.step import session
from spur_cli.step.pty_run import RESIZED
from spur_cli.step.rules import EndRules
from spur_cli.step.run import ABORTED, Placement, StepRun
from spur_cli.step.session import Event, Manner, NodeSession
from spur_cli.step.watch import start_watching
from spur_cli.step.wishes import OutputFactory, Wishes
from spur_core.ids import step_name
from spur_core.states import JobState

if TYPE_CHECKING:
    from spur_cli.step.sattach import Wanted
    from spur_cli.transport import Transport
    from spur_proto import agent_pb2, controller_pb2

INPUT = "input"
_READ_BYTES = 64 << 10


class AttachRun(StepRun):
    """Follows one step until it has ended or the caller leaves; never ends it.

    Args:
        found: the step as it is now.
    """

    def __init__(
        self, transport: "Transport", found: "controller_pb2.WatchStepResponse", wanted: "Wanted"
    ) -> None:
        ctx = wanted.ctx
        wishes = Wishes(
            rules=EndRules(kill_bad=False, wait_secs=0),
            stdin=None,
            quiet=wanted.quiet,
            verbose=wanted.verbose,
        )
        label = wanted.label and wanted.pty is None
        output = OutputFactory(ctx, wanted.out, wanted.err, label=label, append=True, work_dir=ctx.cwd)
        super().__init__(ctx, transport, wishes, output)
        self.manner = Manner(watch=True, want_input=wanted.input)
        self._wanted = wanted
        self._pty = wanted.pty
        self._found = found
        self._writers: set[str] = set()
        self._told_silent = False

    def run(self) -> int:
        """Until the end of the step or of the caller's interest."""
        self.signals.impatient = False
        try:
            with self.signals:
                return super().run()
        finally:
            for one in self.sessions.values():
                one.close()
            if self._pty is not None:
                self._pty.end()

    def begin(self) -> None:
        """Join the step."""
        from spur_core.grammar.filepattern import PatternValues
        from spur_proto import controller_pb2 as pb

        step = self._found.step
        rid = step.rid
        self.step = f"{rid.job_id}.{step_name(rid.step_id)}"
        values = PatternValues(rid.job_id, None, None, rid.step_id, 0, "", 0, step.user, step.name, 0)
        placement = Placement(
            (rid.job_id, rid.run_attempt, rid.step_id),
            [(held.node, held.ranks) for held in step.slices],
            {place.node: place.address for place in self._found.nodes},
            step.num_tasks,
            values,
        )
        self.attach(placement)
        start_watching(
            self.transport, "WatchStep", pb.WatchStepRequest(rid=rid), pb.WatchStepResponse, self.events
        )

    def news(self, part: "controller_pb2.WatchStepResponse") -> int | None:
        """The step has changed."""
        self.moved({place.node: place.address for place in part.nodes})
        state = JobState(int(part.step.state))
        self.state_is(state, part.step.exit, aborted=state in ABORTED)
        return None

    def other(self, kind: str, payload: Any) -> int | None:
        """Nothing else comes."""
        return None

    def signalled_early(self, number: int) -> int | None:
        """There is nothing to leave yet."""
        return 128 + number

    def _cancel(self, target: "controller_pb2.JobTarget | None" = None) -> None:
        """A watcher's end, whatever its reason, is no reason for the step to end."""

    def _signalled(self, number: int) -> int | None:
        """An interrupt leaves the step; it goes on."""
        if number == signal.SIGINT:
            self.info(f"detached from StepId={self.step}")
        return 128 + number

    def _node_failed(self, node: str, failure: CallFailed) -> int | None:
        if failure.status in ("PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"):
            raise self.ctx.stop(f"{node}: {failure.text}")
        return super()._node_failed(node, failure)

    # Input and terminal.

    def _handle(self, event: Event) -> int | None:
        kind, node, payload = event
        if kind == session.READY:
            self._ready(node, payload)
        elif kind == session.LOST:
            self._writers.discard(node)
        elif kind == RESIZED and self._pty is not None:
            self._pty.resize(self._givers())
            return None
        return super()._handle(event)

    def _ready(self, node: str, ready: "agent_pb2.SessionReady") -> None:
        """It is known who has the keyboard."""
        before = bool(self._writers)
        (self._writers.add if ready.writer else self._writers.discard)(node)
        wanted = self._wanted
        if wanted.input and not self._writers and not self._told_silent:
            self._told_silent = True
            if wanted.pty is not None or wanted.verbose:
                self.info(f"another client gives StepId={self.step} its input")
        if self._pty is None or bool(self._writers) is before:
            return
        # Raw keys that go nowhere would leave no way out of here.
        if self._writers:
            self._pty.begin(self._givers(), self.events)
        else:
            self._pty.end()

    def _givers(self) -> list[NodeSession]:
        wanted = self._wanted
        if wanted.input_task is None:
            return list(self.sessions.values())
        node = self.places.get(wanted.input_task, ("", 0))[0]
        return [one for one in self.sessions.values() if one.node == node]

    def _give_input(self) -> None:
        if self._wanted.input:
            threading.Thread(target=self._read_input, name="stdin", daemon=True).start()

    def _read_input(self) -> None:
        """Pass on what is read; its end only after something was given, or from a terminal."""
        fd, givers = self.ctx.stdin, self._givers()
        given = os.isatty(fd)
        while True:
            for one in givers:
                one.wait_for_room()
            try:
                data = os.read(fd, _READ_BYTES)
            except OSError:
                data = b""
            given = given or bool(data)
            if data or given:
                for one in givers:
                    one.send_stdin(data)
            if not data:
                return
