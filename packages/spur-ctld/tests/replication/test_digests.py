"""Digests of members are compared where both are known, and a difference is told loudly, once."""

import logging

import pytest

from spur_ctld.replication.digests import KEPT, Difference, DigestBook


def test_equal_states_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    book = DigestBook(1)
    book.record(100, "v-a")
    book.heard(2, [(100, "v-a"), (200, "v-b")])
    book.record(200, "v-b")
    assert (book.found, book.differences, caplog.records) == (0, [], [])
    assert book.own() == [(100, "v-a"), (200, "v-b")]


@pytest.mark.parametrize("own_first", [True, False])
def test_a_difference_is_found_whoever_is_first(caplog: pytest.LogCaptureFixture, *, own_first: bool) -> None:
    book = DigestBook(1)
    steps = [lambda: book.record(100, "v-a"), lambda: book.heard(2, [(100, "v-b")])]
    for step in steps if own_first else reversed(steps):
        step()
    expected = (1, "v-a", 2, "v-b") if not own_first else (2, "v-b", 1, "v-a")
    assert book.differences == [Difference(100, *expected)]
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert "state_differs index=100" in record.getMessage()
    book.heard(2, [(100, "v-b")])
    assert (book.found, len(caplog.records)) == (1, 1), "told once"


def test_releases_that_write_differently_are_not_compared() -> None:
    book = DigestBook(1)
    book.record(100, "old-a")
    book.heard(2, [(100, "new-b")])
    book.heard(3, [(100, "")])
    assert book.found == 0


def test_two_others_are_compared_as_well() -> None:
    book = DigestBook(1)
    book.heard(2, [(100, "v-a")])
    book.heard(3, [(100, "v-b")])
    assert book.differences == [Difference(100, 3, "v-b", 2, "v-a")]


def test_only_the_newest_are_kept() -> None:
    book = DigestBook(1)
    for index in range(100):
        book.record(index, f"v-{index}")
        book.heard(2, [(index, "v-other")])
    assert [index for index, _ in book.own()] == list(range(100 - KEPT, 100))
    assert (len(book.differences), book.found) == (KEPT, 100)
