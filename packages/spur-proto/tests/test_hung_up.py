"""What gRPC logs of clients that hang up is turned down; nothing else is."""

import logging

import pytest

from spur_proto import hung_up


def test_only_hang_ups_are_turned_down(caplog: pytest.LogCaptureFixture) -> None:
    hung_up.set_up()
    hung_up.set_up()
    logger = logging.getLogger("grpc._cython.cygrpc")
    assert sum(isinstance(one, hung_up.HungUp) for one in logger.filters) == 1
    with caplog.at_level(logging.INFO):
        try:
            raise ConnectionError("gone")
        except ConnectionError:
            logger.exception("ExecuteBatchError raised in core by servicer method [%s]", "/x/Y")
            logger.exception("Unexpected [%s]", "/x/Y")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("ERROR", "Unexpected [/x/Y]")]
