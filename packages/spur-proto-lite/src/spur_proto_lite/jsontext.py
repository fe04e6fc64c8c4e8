"""JSON by the C half of the standard library's `json` alone.

`json` itself loads `re`, `enum`, `functools` and `collections`, a fifth of a supervisor's memory.
"""

from __future__ import annotations

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    _scan: Callable[[str, int], tuple[object, int]]
    _chunks: Callable[[object, int], tuple[str, ...]]
else:
    import _json

    class _Reading:
        """How `json.loads` reads."""

        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}.__getitem__

    def _refuse(value):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")

    _scan = _json.make_scanner(_Reading)
    _chunks = _json.make_encoder(
        None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True
    )

_SPACE = " \t\n\r"


def encode(value: object) -> bytes:
    """`value` as JSON in ASCII, without spaces.

    Raises:
        TypeError: something in it has no form in JSON.
    """
    return "".join(_chunks(value, 0)).encode()


def decode(data: bytes) -> object:
    """The value that `data`, UTF-8 text, describes.

    Raises:
        ValueError: no JSON, or nested deeper than Python can follow.
    """
    text = data.decode("utf-8", "surrogatepass").strip(_SPACE)
    try:
        value, end = _scan(text, 0)
    # For most mistakes `_json` takes the exception from `json.decoder`; while nobody has loaded that, the
    # interpreter only knows that a call failed, which is a SystemError.
    except (StopIteration, RecursionError, SystemError, ImportError):
        raise ValueError("this is no JSON") from None
    if end != len(text):
        raise ValueError(f"something follows the JSON, {len(text) - end} characters from its end")
    return value
