"""A thread that brings what the controller says of a job or a step, through restarts of the controller and to
the one that leads after it."""

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
#: Who watches so long may see controllers come and go: then the whole group is asked for.
LEARN_SECS = 1.0
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0


def start_watching(
    transport: "Transport", method: str, request: Any, answer: type[Any], events: "SimpleQueue[Event]"
) -> None:
    """Watch a job (`WatchJob`) or a step (`WatchStep`) until it has ended for good."""
    field = "job" if method == "WatchJob" else "step"
    learning = threading.Timer(LEARN_SECS, transport.learn)
    learning.daemon = True

    def run() -> None:
        learning.start()
        try:
            watch()
        finally:
            learning.cancel()

    def watch() -> None:
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
            # A controller that goes down cancels what it serves.
            over = not failure.busy and failure.status != "CANCELLED"
            if over or time.monotonic() - last > WAIT_SECS:
                events.put((WATCH_LOST, "", failure))
                return
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    threading.Thread(target=run, name="watch", daemon=True).start()
