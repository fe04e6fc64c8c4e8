"""`spur keygen` and `spur token`: keys and credentials made on this host."""

import os

from spur_cli.context import Context
from spur_cli.options.engine import REQUIRED, Option, Parsed, Table, UsageError, help_text, parse
from spur_cli.options.front import usage_stop
from spur_core.errors import RequestError

DEFAULT_USER_TTL = "24h"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run(ctx: Context) -> int:
    """The command; its name tells which."""
    return _keygen(ctx) if ctx.name.endswith("keygen") else _token(ctx)


def own_options(ctx: Context, table: Table) -> Parsed | None:
    """The parsed words of a verb of ours; None when `--help` was answered.

    Raises:
        Stop: the words cannot be parsed.
    """
    try:
        words = parse(table, ctx.argv)
    except UsageError as problem:
        raise usage_stop(ctx, problem, 1) from None
    if words.has("help"):
        ctx.out(help_text(ctx.name, table))
        return None
    return words


def _keygen(ctx: Context) -> int:
    table = Table([Option("help", "h", help="print this text and exit")], synopsis="[FILE]")
    words = own_options(ctx, table)
    if words is None:
        return 0
    from spur_auth import keygen

    if len(words.operands) > 1:
        raise ctx.stop("one file at most")
    if not words.operands:
        ctx.out(keygen.new_key() + "\n")
        return 0
    try:
        path = keygen.keygen(ctx.path(words.operands[0]))
    except RequestError as error:
        raise ctx.stop(error.text) from None
    ctx.err(f"key written to {path}; point [auth] jwt_key_file at it on controllers and agents\n")
    return 0


def _token(ctx: Context) -> int:
    table = Table(
        [
            Option("user", "u", REQUIRED, "whose token (default: yours)", metavar="NAME"),
            Option("node", "N", REQUIRED, "the node's name", metavar="NAME"),
            Option("ttl", "", REQUIRED, "life: 3600s, 24h, 7d", metavar="TIME"),
            Option(
                "config", "f", REQUIRED, "configuration file that names the key", metavar="FILE", raw=True
            ),
            Option("admin", "", refuse="*"),
            Option("help", "h", help="print this text and exit"),
        ],
        synopsis="user|node [OPTIONS]",
    )
    words = own_options(ctx, table)
    if words is None:
        return 0
    kind = words.operands[0] if words.operands else ""
    if kind in ("create", "list", "revoke"):
        raise ctx.stop(f"{kind} is not supported by this release")
    if kind not in ("user", "node") or len(words.operands) > 2:
        raise ctx.stop("write `spur token user [--user NAME]` or `spur token node --node NAME`")
    key, cluster = cluster_key(ctx, words.get("config"))
    try:
        token = _mint(ctx, words, kind, key, cluster)
    except RequestError as error:
        raise ctx.stop(error.text) from None
    ctx.out(token + "\n")
    return 0


def _mint(ctx: Context, words: Parsed, kind: str, key: bytes, cluster: str) -> str:
    from spur_auth import mint

    given = words.operands[1] if len(words.operands) > 1 else None
    now = ctx.clock()
    if kind == "node":
        node = words.get("node") or given
        if not node:
            raise ctx.stop("--node NAME is needed")
        if words.has("ttl"):
            return mint.mint_node(key, node, now, parse_ttl(words.text("ttl")), cluster=cluster)
        return mint.mint_node(key, node, now, cluster=cluster)
    ttl = parse_ttl(words.get("ttl") or DEFAULT_USER_TTL)
    return user_token(ctx, key, cluster, words.get("user") or given or "", ttl)


def user_token(ctx: Context, key: bytes, cluster: str, name: str, ttl: float) -> str:
    """A user's token, valid for `ttl` seconds; "" = who calls.

    Raises:
        RequestError: it cannot be signed.
    """
    from spur_auth import mint
    from spur_cli.credentials import user_name
    from spur_cli.users import find_user

    name = name or user_name()
    found = find_user(name)
    uid = found[1] if found is not None else None
    return mint.mint_user(key, name, uid, ttl, ctx.clock(), cluster=cluster)


def parse_ttl(text: str) -> float:
    """Seconds of `3600s`, `90m`, `24h`, `7d` or a plain number of seconds.

    Raises:
        RequestError: none of these.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:].lower() in _UNITS else (text, "s")
    if not (number.isascii() and number.isdigit() and int(number) > 0):
        raise RequestError(f"--ttl {text}: write a time such as 3600s, 24h or 7d")
    return float(int(number) * _UNITS[unit.lower()])


def cluster_key(ctx: Context, option: str | None) -> tuple[bytes, str]:
    """(key, cluster's name) of the configuration.

    Raises:
        Stop: there is no configuration, no key in it, or it cannot be read.
    """
    import tomllib

    from spur_cli.endpoints import config_path
    from spur_core.config.secret import read_key_file
    from spur_core.errors import ConfigError

    path = ctx.path(option) if option else config_path(ctx.env)
    if not path:
        raise ctx.stop("no configuration found; give --config FILE or set SPUR_CONF")
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ctx.stop(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ctx.stop(f"{path}: {error}") from None
    auth = document.get("auth", {})
    cluster = str(document.get("cluster_name", ""))
    if auth.get("jwt_key"):
        return str(auth["jwt_key"]).encode(), cluster
    if not auth.get("jwt_key_file"):
        raise ctx.stop(f"{path}: [auth] has neither jwt_key_file nor jwt_key; make a key with `spur keygen`")
    try:
        return read_key_file(os.path.expanduser(str(auth["jwt_key_file"]))), cluster  # noqa: PTH111
    except ConfigError as error:
        raise ctx.stop(error.text) from None
