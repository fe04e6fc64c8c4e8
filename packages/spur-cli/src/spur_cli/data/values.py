"""Small trees that many others hold."""

from typing import Any

from spur_core.grammar.signals import signal_name


def nv(number: float | None, *, infinite: bool = False) -> dict[str, Any]:
    """A number that may be missing: `{"set": true, "infinite": false, "number": 4}`."""
    known = number is not None and not infinite
    return {"set": known, "infinite": infinite, "number": number if known else 0}


def exit_tree(code: int, signal: int = 0) -> dict[str, Any]:
    """How a process ended."""
    status = "SIGNALED" if signal else "ERROR" if code else "SUCCESS"
    return {
        "status": [status],
        "return_code": nv(code),
        "signal": {"id": nv(signal or None), "name": signal_name(signal) if signal else ""},
    }
