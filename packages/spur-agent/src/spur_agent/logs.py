"""One line per event on stderr: `at=... level=... event=... key=value`."""

import json
import logging
import sys
import time
from typing import TextIO

from spur_proto import hung_up

LEVELS = ("debug", "info", "warning", "error")


def one_line(text: str) -> str:
    """`text` with escapes for whatever breaks lines or drives a terminal: users choose parts of it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class LineFormatter(logging.Formatter):
    """The first word of a message is the event; a traceback is folded into one field."""

    def format(self, record: logging.LogRecord) -> str:
        event, _, rest = record.getMessage().partition(" ")
        parts = time.gmtime(record.created)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int(record.created % 1 * 1000):03d}Z"
        line = f"at={stamp} level={record.levelname.lower()} event={event}"
        if rest:
            line += " " + one_line(rest)
        if record.exc_info:
            line += f" trace={json.dumps(self.formatException(record.exc_info))}"
        return line


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send everything of `level` and above to `stream` (stderr)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    hung_up.set_up()


def value(text: object) -> str:
    """Free text as the value of a key: quoted when it holds blanks or quotes."""
    plain = str(text)
    return json.dumps(plain) if not plain or any(c in plain for c in " \t\n\"'=") else plain
