"""What one controller says of a call that it passes to another: whose it is and where it came from.

Not a token: those open agents as well, and a port of a leader that has just died may be anybody's.  A seal is
good for one caller at one address and for a short time, and opens nothing else.
"""

from collections.abc import Sequence
from typing import Final

from spur_auth.keys import derive
from spur_auth.kinds import CONTROLLER, LEEWAY_SECS

#: No token is signed over text that begins so.
_LABEL: Final = b"spur passed on "
_LIFE_SECS: Final = 30


def seal(key: bytes, now: float, *said: str) -> str:
    """What stands for the controller's word on `said`."""
    import hmac

    at = int(now)
    # Lengths, so that no two lists look alike.
    text = "".join(f"{len(part)}:{part}" for part in said)
    return f"{at}.{hmac.digest(derive(key, CONTROLLER), _LABEL + f'{at} {text}'.encode(), 'sha256').hex()}"


def sealed(keys: Sequence[bytes], found: str, now: float, *said: str) -> bool:
    """Whether a controller of the cluster has just sealed exactly `said`."""
    import hmac

    digits = found.partition(".")[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        return False
    at = int(digits)
    if not -LEEWAY_SECS <= now - at <= _LIFE_SECS + LEEWAY_SECS:
        return False
    given = found.encode(errors="replace")
    return any(hmac.compare_digest(seal(key, at, *said).encode(), given) for key in keys)
