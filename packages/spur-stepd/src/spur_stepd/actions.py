"""What the machine has the supervisor do: one class of value an action."""

from __future__ import annotations

from spur_core.lean import namedtuple

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Launch(NamedTuple):
        """Groups, work dir, script, files, and the tasks forked up to the gate."""

    class RecordStart(NamedTuple):
        """Journal `Started`, rewrite the descriptor."""

    class OpenGate(NamedTuple):
        """Let the tasks exec."""

    class AnswerStart(NamedTuple):
        """Answer everybody who asked for `start`."""

    class AbortTasks(NamedTuple):
        """Kill tasks that wait at the gate."""

    class Record(NamedTuple):
        """Append to the journal."""

        event: str
        data: dict[str, object]

    class Acknowledge(NamedTuple):
        """Write into the journal that the exit has arrived."""

        by: str

    class Deliver(NamedTuple):
        """Send a signal to every process of the step."""

        signal: int

    class KillAll(NamedTuple):
        """SIGKILL to the whole step at once."""

    class CheckOom(NamedTuple):
        """Count the processes that the kernel has killed."""

    class CheckHeld(NamedTuple):
        """Count the processes in a step that has no task."""

    class Freeze(NamedTuple):
        """Stop the step."""

    class Thaw(NamedTuple):
        """Let it go on."""

    class LastWords(NamedTuple):
        """Tell the user in the job's stderr why it ends."""

        reason: str

    class ObserveExit(NamedTuple):
        """Read the OOM evidence, write the exit to the disk."""

    class AnswerWaits(NamedTuple):
        """Answer everybody who waits for the exit."""

    class Push(NamedTuple):
        """Notify the agent."""

    class KillLeftovers(NamedTuple):
        """Kill what the tasks have left behind and count what is still there."""

    class Cleanup(NamedTuple):
        """Remove groups, script and scratch.  `left`: processes that would not die."""

        left: int

    class RunTaskEpilog(NamedTuple):
        """Run what belongs behind the end of a task."""

        rank: int

    class EndOthers(NamedTuple):
        """End the attempt's other steps on this node and remove the job's group."""

    class RunEpilog(NamedTuple):
        """Start the node's epilog."""

    class WriteEpilog(NamedTuple):
        """Write the epilog's result to the disk."""

    class CheckSession(NamedTuple):
        """Look whether the session directory still exists."""

    class Quit(NamedTuple):
        """End the supervisor once its answers are out."""

        code: int

    Action = (
        Launch
        | RecordStart
        | OpenGate
        | AnswerStart
        | AbortTasks
        | Record
        | Acknowledge
        | Deliver
        | KillAll
        | CheckOom
        | CheckHeld
        | Freeze
        | Thaw
        | LastWords
        | ObserveExit
        | AnswerWaits
        | Push
        | KillLeftovers
        | Cleanup
        | RunTaskEpilog
        | EndOthers
        | RunEpilog
        | WriteEpilog
        | CheckSession
        | Quit
    )
else:

    def _same(self, other):
        return type(self) is type(other) and tuple.__eq__(self, other)

    def _differs(self, other):
        return not _same(self, other)

    def _action(name, *fields):
        """A class of values that are equal only to their like: as mere tuples all empty ones would be."""
        made = namedtuple(name, fields)
        made.__eq__ = _same
        made.__ne__ = _differs
        made.__hash__ = tuple.__hash__
        return made

    Launch = _action("Launch")
    RecordStart = _action("RecordStart")
    OpenGate = _action("OpenGate")
    AnswerStart = _action("AnswerStart")
    AbortTasks = _action("AbortTasks")
    Record = _action("Record", "event", "data")
    Acknowledge = _action("Acknowledge", "by")
    Deliver = _action("Deliver", "signal")
    KillAll = _action("KillAll")
    CheckOom = _action("CheckOom")
    CheckHeld = _action("CheckHeld")
    Freeze = _action("Freeze")
    Thaw = _action("Thaw")
    LastWords = _action("LastWords", "reason")
    ObserveExit = _action("ObserveExit")
    AnswerWaits = _action("AnswerWaits")
    Push = _action("Push")
    KillLeftovers = _action("KillLeftovers")
    Cleanup = _action("Cleanup", "left")
    RunTaskEpilog = _action("RunTaskEpilog", "rank")
    EndOthers = _action("EndOthers")
    RunEpilog = _action("RunEpilog")
    WriteEpilog = _action("WriteEpilog")
    CheckSession = _action("CheckSession")
    Quit = _action("Quit", "code")
