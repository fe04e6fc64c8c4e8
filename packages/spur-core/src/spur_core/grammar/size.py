"""Memory sizes: `--mem=4G` in, `4G` or `1500M` out.  MiB inside."""

from spur_core.errors import GrammarError

_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_UNITS = "MGTP"


def parse_mem(text: str, option: str = "--mem") -> int:
    """MiB of `N[K|M|G|T][B]`, any case, default M; kibibytes round up to 1 MiB.

    Raises:
        GrammarError: "Invalid OPTION specification".
    """
    body = text.upper()
    if body.endswith("B") and len(body) > 1 and not body[-2].isdigit():
        body = body[:-1]
    unit = "M"
    if body and body[-1] in "KMGT":
        unit, body = body[-1], body[:-1]
    if not (body.isascii() and body.isdigit()) or len(body) > 15:
        raise GrammarError(f"Invalid {option} specification")
    return -(-int(body) * _KIB[unit] // 1024)


def format_mem(mebibytes: int, *, noconvert: bool = False, units: str = "") -> str:
    """Binary suffix by exact conversion only: 4096 → `4G`, 1500 → `1500M`, 0 → `0`."""
    if mebibytes == 0:
        return "0"
    if units:
        scaled = mebibytes * 1024 / _KIB[units.upper()]
        return f"{scaled:.2f}{units.upper()}"
    at = 0
    if not noconvert:
        while at + 1 < len(_UNITS) and mebibytes % 1024 == 0:
            mebibytes //= 1024
            at += 1
    return f"{mebibytes}{_UNITS[at]}"


def format_kib(kibibytes: int) -> str:
    """sacct's MaxRSS: exact conversion from KiB: `1780K`, `2M`."""
    if kibibytes == 0:
        return "0"
    at = 0
    while at < len(_UNITS) and kibibytes % 1024 == 0:
        kibibytes //= 1024
        at += 1
    return f"{kibibytes}{'KMGTP'[at]}"
