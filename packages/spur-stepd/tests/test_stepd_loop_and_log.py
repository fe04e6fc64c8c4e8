"""Waiting for very long, and words of others in the supervisor's log."""

import os

import pytest

from spur_stepd import log
from spur_stepd.loop import READ, Loop


@pytest.mark.parametrize("timeout", [1e308, float("inf"), 2**32, 5_000_000.0, 86_401])
def test_a_deadline_that_the_kernel_cannot_express_is_no_end(timeout):
    """A grace or a hook's time of a month must not end the supervisor."""
    loop, seen = Loop(), []
    read, write = os.pipe()
    loop.watch(read, READ, seen.append)
    os.write(write, b"x")
    loop.turn(timeout)
    assert seen == [READ]
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    "text", ["", "a b", "a\nb", "a=b", 'a"b', "\x1b[2J", "a\rb", "a\x7f", "\x9b", "a\u2028b", "\0", "\udcff"]
)
def test_a_text_of_somebody_elses_stays_one_plain_word_of_the_line(text, capfd):
    log.say("event", key=text)
    line = capfd.readouterr().err
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    assert line.splitlines()[0].partition(" event key=")[2] == repr(text)
    log.say("event", key="plain-größe/1")
    assert capfd.readouterr().err.endswith(" event key=plain-größe/1\n")
