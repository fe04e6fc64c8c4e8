"""gRPC's own log of clients that hang up in the middle of an answer.

`grpc.aio` logs an error with a traceback whenever it cannot send to a client that has gone, which any client
can bring about at will.  That is no fault of the server: it becomes one line of level debug.
"""

import logging

_LOGGER = "grpc._cython.cygrpc"
_START = "ExecuteBatchError raised in core"


class HungUp(logging.Filter):
    """Turns those records down; every other one passes as it is."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be logged."""
        if not record.getMessage().startswith(_START):
            return True
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        record.exc_info = None
        return logging.getLogger().isEnabledFor(logging.DEBUG)


def set_up() -> None:
    """Install the filter, once."""
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(one, HungUp) for one in logger.filters):
        logger.addFilter(HungUp())
