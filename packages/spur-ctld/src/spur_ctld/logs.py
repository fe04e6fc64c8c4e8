"""One line per event on stderr: `key=value` text, or JSON."""

import json
import logging
import re
import sys
import time
from typing import TextIO

from spur_proto import hung_up

LEVELS = ("debug", "info", "warning", "error")
_PAIR = re.compile(r"(\w+)=(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S+)")


def _stamp(created: float) -> str:
    parts = time.gmtime(created)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int(created % 1 * 1000):03d}Z"


def one_line(text: str) -> str:
    """`text` with escapes for whatever breaks lines or drives a terminal: users choose parts of it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class TextFormatter(logging.Formatter):
    """`at=... level=... logger=... event=... key=value`; a traceback is folded into one field."""

    def format(self, record: logging.LogRecord) -> str:
        event, _, rest = record.getMessage().partition(" ")
        line = f"at={_stamp(record.created)} level={record.levelname.lower()} event={event}"
        if rest:
            line += " " + one_line(rest)
        if record.exc_info:
            line += f" trace={json.dumps(self.formatException(record.exc_info))}"
        return line


class JsonFormatter(logging.Formatter):
    """The same as one JSON object; pairs of the message become fields."""

    def format(self, record: logging.LogRecord) -> str:
        event, _, rest = record.getMessage().partition(" ")
        fields: dict[str, object] = {
            "at": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        for key, value in _PAIR.findall(rest):
            fields.setdefault(key, value.strip("\"'"))
        if rest:
            fields["text"] = rest
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def set_up(level: str, form: str = "text", stream: TextIO | None = None) -> None:
    """Send everything of `level` and above to `stream` (stderr)."""
    hung_up.set_up()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # SQL drivers talk a lot at their own debug level and say nothing an administrator needs.
    for noisy in ("aiosqlite", "asyncio", "sqlalchemy", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
