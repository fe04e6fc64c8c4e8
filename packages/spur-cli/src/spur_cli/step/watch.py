"""A thread that brings what the controller says of a job or a step, through restarts of the controller."""

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from spur_cli.cli_errors import CallFailed
from spur_core.states import TERMINAL_STATES

if TYPE_CHECKING:
    from spur_cli.step.session import Event
    from spur_cli.transport import Transport

#: Events: WATCH with a part, WATCH_LOST with the CallFailed after which nothing more comes.
WATCH, WATCH_LOST = "watch", "watch_lost"
#: How long the controller may be away, seconds.
WAIT_SECS = 300.0
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0


def start_watching(
    transport: "Transport", method: str, request: Any, answer: type[Any], events: "SimpleQueue[Event]"
) -> None:
    """Watch a job (`WatchJob`) or a step (`WatchStep`) until it has ended for good."""
    field = "job" if method == "WatchJob" else "step"

    def run() -> None:
        pause, last = FIRST_PAUSE, time.monotonic()
        while True:
            try:
                for part in transport.stream(method, request, answer):
                    pause, last = FIRST_PAUSE, time.monotonic()
                    events.put((WATCH, "", part))
                    if int(getattr(part, field).state) in TERMINAL_STATES:
                        return
                failure = CallFailed("UNAVAILABLE", "", "the controller ended the watch")
            except CallFailed as error:
                failure = error
            if not failure.busy or time.monotonic() - last > WAIT_SECS:
                events.put((WATCH_LOST, "", failure))
                return
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    threading.Thread(target=run, name="watch", daemon=True).start()
