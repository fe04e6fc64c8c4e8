"""The steps on all virtual nodes: begun, waited for, ended, told to the controller until it has them.

The controller's calls about a run name job and attempt and no node, because an agent is one node.  Here they
mean the run on every virtual node.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from spur_agent.emulate.script import Doing
from spur_agent.logs import value
from spur_agent.membership import rid_message
from spur_agent.report import Verdict, judge
from spur_core.errors import AlreadyExists, SpurError, WrongState
from spur_core.ids import RuntimeId
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

log = logging.getLogger(__name__)

_PAUSE: Final = 1.0
#: Runs that are remembered after their end, so that a late launch does not begin them again.
_MOST_ENDED: Final = 200_000

#: One RPC of the controller in the name of a node: (node, rpc, request).
Call = Callable[[str, str, Any], Coroutine[Any, Any, Any]]


class Step:
    """One step of one virtual node."""

    __slots__ = ("digest", "exit", "lifetime", "node", "rid", "started_at", "telling", "timer")

    def __init__(self, node: str, rid: RuntimeId, digest: str, *, lifetime: bool) -> None:
        self.node = node
        self.rid = rid
        self.digest = digest
        self.lifetime = lifetime
        self.started_at = time.time()
        self.timer: asyncio.TimerHandle | None = None
        self.telling: asyncio.Task[None] | None = None
        #: None while it runs.
        self.exit: common_pb2.ExitStatus | None = None


class Steps:
    """Of all virtual nodes.

    Args:
        call: reaches the controller.

    Attributes:
        begun, ended: how many steps, for the log.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._on_node: dict[str, dict[RuntimeId, Step]] = {}
        self._of_attempt: dict[tuple[int, int], list[Step]] = {}
        self._past: OrderedDict[tuple[str, RuntimeId], None] = OrderedDict()
        self._telling: set[asyncio.Task[None]] = set()
        self._back = asyncio.Event()
        self.begun = 0
        self.ended = 0

    def held(self, node: str) -> list[tuple[RuntimeId, str]]:
        """What a heartbeat says is on the node."""
        here = self._on_node.get(node)
        if not here:
            return []
        return [(step.rid, "live" if step.exit is None else "finished") for step in here.values()]

    def begin(self, node: str, rid: RuntimeId, digest: str, doing: Doing | None, *, lifetime: bool) -> Step:
        """Start a step; a repeated launch finds it running.

        Args:
            doing: None = it holds the node until it is ended.

        Raises:
            AlreadyExists: another spec of the same run is here.
            WrongState: it has ended, or its attempt is not here.
        """
        here = self._on_node.setdefault(node, {})
        known = here.get(rid)
        if known is not None:
            if known.digest != digest:
                raise AlreadyExists(f"{rid} is on this node, launched from another spec")
            return known
        if (node, rid) in self._past:
            raise WrongState(f"{rid} has run here and its end is acknowledged")
        if not lifetime and not any(
            step.node == node and step.lifetime and step.exit is None for step in self._named(rid)
        ):
            raise WrongState(f"{rid}: that attempt is not on this node")
        step = here[rid] = Step(node, rid, digest, lifetime=lifetime)
        self._of_attempt.setdefault((rid.job_id, rid.run_attempt), []).append(step)
        self.begun += 1
        if doing is not None:
            loop = asyncio.get_running_loop()
            step.timer = loop.call_later(doing.secs, self._end, step, doing.code, 0)
        return step

    def _named(self, rid: RuntimeId) -> list[Step]:
        return self._of_attempt.get((rid.job_id, rid.run_attempt), [])

    def named(self, job_id: int, attempt: int, step_id: int | None) -> list[Step]:
        """Every step of exactly that attempt on any node, or that one step of it."""
        found = self._of_attempt.get((job_id, attempt), ())
        return [step for step in found if step_id is None or step.rid.step_id == step_id]

    def kill(self, step: Step, number: int) -> None:
        """End it by a signal; what holds a node just ends."""
        if step.exit is None:
            held = step.timer is None
            self._end(step, 0, 0 if held else number)

    def _end(self, step: Step, code: int, number: int) -> None:
        if step.exit is not None:
            return
        if step.timer is not None:
            step.timer.cancel()
        step.exit = common_pb2.ExitStatus(code=code, signal=number)
        self.ended += 1
        if step.lifetime:
            for other in list(self._named(step.rid)):
                if other.node == step.node and not other.lifetime:
                    self._end(other, 0, 9)
        task = step.telling = asyncio.create_task(self._tell(step, time.time()))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, step: Step, ended_at: float) -> None:
        """Report until the controller has it or wants nothing of it."""
        if step.lifetime:
            # The end of an attempt is told after those of its other steps.
            others = [o.telling for o in self._named(step.rid) if o.node == step.node and o is not step]
            await asyncio.gather(*(task for task in others if task is not None))
        request = pb.ReportJobStatusRequest(
            rid=rid_message(step.rid),
            node=step.node,
            exit=step.exit,
            started_at=step.started_at,
            ended_at=ended_at,
        )
        unknown: float | None = None
        while True:
            said = await self._say(request)
            now = time.monotonic()
            if said == pb.REPORT_VERDICT_UNKNOWN:
                unknown = now if unknown is None else unknown
            elif said is not None:
                unknown = None
            if judge(said, None if unknown is None else now - unknown) is Verdict.SETTLED:
                break
            back = self._back
            try:
                async with asyncio.timeout(_PAUSE):
                    await back.wait()
            except TimeoutError:
                pass
        self._forget(step)

    async def _say(self, request: pb.ReportJobStatusRequest) -> int | None:
        try:
            answer = await self._call(request.node, "ReportJobStatus", request)
        except SpurError as error:
            log.debug("report_failed node=%s error=%s", request.node, value(error.text))
            return None
        return int(answer.verdict)

    def controller_back(self) -> None:
        """A controller answers again: tell it now what waits."""
        self._back.set()
        self._back = asyncio.Event()

    def _forget(self, step: Step) -> None:
        self._on_node[step.node].pop(step.rid, None)
        key = (step.rid.job_id, step.rid.run_attempt)
        left = [one for one in self._of_attempt.get(key, ()) if one is not step]
        if left:
            self._of_attempt[key] = left
        else:
            self._of_attempt.pop(key, None)
        self._past[step.node, step.rid] = None
        while len(self._past) > _MOST_ENDED:
            self._past.popitem(last=False)

    def stop(self) -> None:
        """Nothing is told any more."""
        for task in self._telling:
            task.cancel()
