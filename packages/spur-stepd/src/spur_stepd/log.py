"""The supervisor's own log: one line an event on its standard error, which is `stepd.log`, size-capped."""

from __future__ import annotations

import os
import time

_LIMIT = 1 << 20


def say(event: str, **fields: object) -> None:
    """Write `time event key=value ...`; a full disk or an over-long log swallows it."""
    shown = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime())
    line = f"{stamp} {event}{shown}\n".encode("utf-8", "backslashreplace")
    try:
        if os.fstat(2).st_size < _LIMIT:
            os.write(2, line)
    except OSError:
        pass


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=') else repr(text)
