"""Memory sizes: `--mem=4G` in, `4G` or `1500M` out.  MiB inside."""

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_SHOWN = "MGTP"


def parse_mem(text: str, option: str = "--mem") -> int:
    """MiB of `N[K|M|G|T][B]`, any case, default M; kibibytes round up to 1 MiB.

    Raises:
        GrammarError: "Invalid OPTION specification".
    """
    body, unit = text.upper(), "M"
    if body.endswith("B") and body[-2:-1] in _KIB:
        body = body[:-1]
    if body[-1:] in ("K", "M", "G", "T"):
        unit, body = body[-1], body[:-1]
    number = digits(body, 15)
    if number is None:
        raise GrammarError(f"Invalid {option} specification")
    return -(-number * _KIB[unit] // 1024)


def format_mem(mebibytes: int, *, noconvert: bool = False, units: str = "") -> str:
    """Binary suffix by exact conversion only: 4096 → `4G`, 1500 → `1500M`, 0 → `0`.

    Args:
        noconvert: keep MiB.
        units: one of K M G T P: convert to it, with two decimals.

    Raises:
        GrammarError: unknown units.
    """
    if units and units.upper() not in _KIB:
        raise GrammarError(f"Invalid --units specification: {units}")
    if mebibytes == 0:
        return "0"
    if units:
        return f"{mebibytes * 1024 / _KIB[units.upper()]:.2f}{units.upper()}"
    return f"{mebibytes}M" if noconvert else _exact(mebibytes, _SHOWN)


def format_kib(kibibytes: int) -> str:
    """sacct's MaxRSS: exact conversion from KiB: `1780K`, `2M`."""
    return _exact(kibibytes, "K" + _SHOWN) if kibibytes else "0"


def _exact(amount: int, units: str) -> str:
    at = 0
    while at + 1 < len(units) and amount % 1024 == 0:
        amount //= 1024
        at += 1
    return f"{amount}{units[at]}"
