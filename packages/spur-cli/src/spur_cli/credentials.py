"""The caller's credential: from the environment, a token file, or minted with a key the caller may read.

Order: `SPUR_AUTH_TOKEN`, `SLURM_JWT`; the token file that the configuration names for its cluster; a token
minted with the configuration's key, when the caller may read it; `~/.spur/token`.  A cluster's own file comes
before the general one so that a token of another cluster is not sent to it.
"""

import os
from collections.abc import Callable, Mapping

from spur_cli.endpoints import Endpoints, home

#: Life of a token minted here, seconds.
MINT_TTL = 3600.0
GENERAL = "~/.spur/token"
Metadata = tuple[tuple[str, str], ...]


def user_name() -> str:
    """The login name of the caller; the uid as text when the host does not know it."""
    import pwd

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def metadata(where: Endpoints, env: Mapping[str, str], now: float, warn: Callable[[str], None]) -> Metadata:
    """What to send along with a call.

    Args:
        now: seconds since the epoch.
        warn: called with a sentence about a token file that is ignored.
    """
    token = _token(where, env, now, warn)
    if token:
        return (("authorization", f"Bearer {token}"),)
    return (("x-spur-user", user_name()),)


def _token(where: Endpoints, env: Mapping[str, str], now: float, warn: Callable[[str], None]) -> str:
    for variable in ("SPUR_AUTH_TOKEN", "SLURM_JWT"):
        value = env.get(variable, "").strip()
        if value:
            return value
    if where.client.auth_plugin == "none":
        return ""
    own = where.client.token_file
    if own != GENERAL:
        path = _expand(own, env)
        token = read_token(path, warn)
        if token and fresh(token, now):
            return token
        return _mint(where, now, path) or token or read_token(_expand(GENERAL, env), warn)
    return read_token(_expand(GENERAL, env), warn) or _mint(where, now, "")


def _expand(path: str, env: Mapping[str, str]) -> str:
    return home(env) + path[1:] if path.startswith("~/") else path


def read_token(path: str, warn: Callable[[str], None]) -> str:
    """The text of a token file, "" when there is none that may be used."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if os.fstat(fd).st_mode & 0o077:
            warn(f"{path} is open to others and not used; run chmod 600 {path}")
            return ""
        return os.read(fd, 65536).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)


def fresh(token: str, now: float) -> bool:
    """Whether less than half of the token's life is over.  Its signature is the server's business."""
    import binascii
    import json

    try:
        middle = token.split(".")[1].replace("-", "+").replace("_", "/")
        claims = json.loads(binascii.a2b_base64(middle + "=" * (-len(middle) % 4)))
        return now < (float(claims["iat"]) + float(claims["exp"])) / 2
    except (IndexError, KeyError, ValueError, TypeError):
        return False


def _mint(where: Endpoints, now: float, keep_at: str) -> str:
    key = cluster_key(where.config)
    if not key:
        return ""
    from spur_auth.mint import mint_user

    token = mint_user(key, user_name(), os.getuid(), MINT_TTL, now, cluster=where.client.cluster_name)
    if keep_at:
        _store(keep_at, token)
    return token


def cluster_key(config: str) -> bytes:
    """The cluster key that the configuration file names, empty when the caller cannot have it.

    Not being able to read it is the ordinary user's normal case, so every problem answers "no key"; what is
    wrong with a key is the daemons' business to say.
    """
    if not config:
        return b""
    import tomllib

    from spur_core.config.secret import read_key_file
    from spur_core.errors import ConfigError

    try:
        with open(config, "rb") as file:
            auth = tomllib.load(file).get("auth", {})
        text = auth.get("jwt_key") or ""
        if text:
            return str(text).encode()
        path = str(auth.get("jwt_key_file") or "")
        return read_key_file(path) if path else b""
    except (OSError, ValueError, AttributeError, ConfigError):
        return b""


def _store(path: str, token: str) -> None:
    """Keep a minted token for the next command; that it cannot be kept harms nothing."""
    part = f"{path}.{os.getpid()}"
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, token.encode() + b"\n")
        finally:
            os.close(fd)
        os.replace(part, path)  # noqa: PTH105 - pathlib costs start-up time
    except OSError:
        return
