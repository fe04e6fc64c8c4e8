"""The one place that knows which gRPC status an error of ours becomes.

The status details are the error's sentence; the stable code travels in the trailing metadata
`x-spur-code`.  Nothing else of an error reaches a caller.
"""

import logging
from typing import Final

import grpc

from spur_core import errors
from spur_ctld.users import UnknownUser

log = logging.getLogger(__name__)

CODE_KEY: Final = "x-spur-code"

#: First match wins, so subclasses stand before their bases.
_STATUS: Final[tuple[tuple[type[errors.SpurError], grpc.StatusCode], ...]] = (
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (errors.WrongState, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.IdentityMismatch, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.IllegalTransition, grpc.StatusCode.FAILED_PRECONDITION),
    (UnknownUser, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.AccessDenied, grpc.StatusCode.PERMISSION_DENIED),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Unsupported, grpc.StatusCode.UNIMPLEMENTED),
    (errors.RequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.BusyError, grpc.StatusCode.UNAVAILABLE),
    (errors.StateError, grpc.StatusCode.INTERNAL),
)
#: A refusal of `apply` brings only its code; the class with that code decides.
_BY_CODE: Final[dict[str, type[errors.SpurError]]] = {
    kind.code: kind
    for kind in (
        errors.RequestError,
        errors.GrammarError,
        errors.NotFound,
        errors.NoSuchJob,
        errors.AlreadyExists,
        errors.WrongState,
        errors.AccessDenied,
        errors.Unauthenticated,
        errors.Unsupported,
        errors.IdentityMismatch,
        errors.IllegalTransition,
        errors.BusyError,
    )
}

#: Characters of a sentence; a sentence may quote what the caller sent.
_MOST_TEXT: Final = 1000
INTERNAL_TEXT: Final = "Slurm internal error, contact system administrator"


class Refused(errors.SpurError):
    """An operation had no effect; `code` and the sentence come from `apply`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def status_of(error: errors.SpurError) -> grpc.StatusCode:
    """The status for one of our errors."""
    if isinstance(error, Refused):
        kind = _BY_CODE.get(error.code, errors.WrongState)
    else:
        kind = type(error)
    for base, status in _STATUS:
        if issubclass(kind, base):
            return status
    return grpc.StatusCode.INTERNAL


def outcome(error: BaseException, method: str) -> tuple[grpc.StatusCode, str, str]:
    """(status, details, code) for whatever a handler raised; unexpected things are logged in full."""
    if isinstance(error, errors.SpurError):
        return status_of(error), clipped(error.text), error.code
    log.error("rpc_failed method=%s", method, exc_info=error)
    return grpc.StatusCode.INTERNAL, INTERNAL_TEXT, errors.StateError.code


def clipped(text: str) -> str:
    """`text` as it fits into the trailing metadata, which clients take up to 16 KiB of, even escaped."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."
