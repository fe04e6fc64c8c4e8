"""Which `[auth]` settings a daemon refuses to start with, and which it warns about."""

import ipaddress
from collections import namedtuple
from typing import TYPE_CHECKING, Final

from spur_auth.gate import DISABLED, MODES, PERMISSIVE, REQUIRED

PLUGINS: Final = ("none", "jwt", "spur")

#: A shorter key can be guessed from one captured token.
MIN_KEY_BYTES: Final = 16

if TYPE_CHECKING:
    from typing import NamedTuple

    class _Posture(NamedTuple):
        refusals: tuple[str, ...]
        warnings: tuple[str, ...]
else:
    _Posture = namedtuple("_Posture", ("refusals", "warnings"))


class Posture(_Posture):
    """What is wrong with the settings: one line each.  Any refusal means: do not start."""

    __slots__ = ()


def posture(plugin: str, mode: str, key: bytes | None, listen_addr: str, *, forced: bool = False) -> Posture:
    """Judge the settings of one daemon.

    Args:
        key: the resolved cluster key, None when none is configured.
        listen_addr: `HOST:PORT` as configured; an empty host means every address.
        forced: the administrator insists on plugin `none` off loopback.
    """
    refusals: list[str] = []
    warnings: list[str] = []
    local = is_loopback(listen_addr)
    if plugin not in PLUGINS:
        hint = "; use plugin spur, which needs no munged" if plugin == "munge" else ""
        refusals.append(f'[auth] plugin = "{plugin}" is not one of {", ".join(PLUGINS)}{hint}')
    if mode not in MODES:
        refusals.append(f'[auth] mode = "{mode}" is not one of {", ".join(MODES)}')
    if key is not None and len(key) < MIN_KEY_BYTES:
        refusals.append(
            f"[auth] the key has {len(key)} of at least {MIN_KEY_BYTES} bytes; make one with `spur keygen`"
        )
    if mode == REQUIRED:
        if plugin == "none":
            refusals.append('[auth] mode = "required" cannot work with plugin = "none"; use plugin = "jwt"')
        elif key is None:
            refusals.append(
                '[auth] mode = "required" needs a key; make one with `spur keygen` and set jwt_key_file'
            )
    if plugin == "none" and not local and not forced:
        refusals.append(
            f'[auth] plugin = "none" believes every caller, so it serves loopback only, not {listen_addr}'
        )
    if mode in (PERMISSIVE, DISABLED):
        what = "ignores credentials" if mode == DISABLED else "lets callers without a credential in"
        reach = (
            ""
            if local
            else f", and {listen_addr} can be reached from other hosts: anybody there can act as anybody"
        )
        warnings.append(f'[auth] mode = "{mode}" {what}{reach}')
    if plugin == "none" and not local and forced:
        warnings.append(
            f'[auth] plugin = "none" is forced on {listen_addr}: any host that reaches it can be anybody'
        )
    return Posture(tuple(refusals), tuple(warnings))


def is_loopback(listen_addr: str) -> bool:
    """Whether only this host can reach `HOST:PORT`, `[V6]:PORT`, `unix:PATH` or a bare host.

    A host name other than `localhost` counts as not loopback: what it resolves to may change.
    """
    if listen_addr.startswith("unix:"):
        return True
    host = listen_addr
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
