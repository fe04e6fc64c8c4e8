"""What users say does not make lines of its own in a daemon's log, nor reach a reader's terminal."""

import io
import logging

import pytest

from spur_agent.logs import LineFormatter


@pytest.mark.parametrize(
    "evil", ["a\nat=1 level=info event=forged", "\x1b]0;x\x07", "\x9b2J\r", "\u2028", "\udcff\0"]
)
def test_one_event_is_one_plain_line(evil):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    log = logging.Logger("of a test")
    log.addHandler(handler)
    log.info("submitted name=%s rest=größe", evil)
    line = stream.getvalue()
    assert line.endswith(" rest=größe\n")
    assert line[:-1].isprintable()
    assert "event=submitted name=" in line
