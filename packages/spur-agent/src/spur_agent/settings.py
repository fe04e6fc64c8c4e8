"""Flags, environment and configuration put together: what one agent works with."""

import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spur_agent.logs import LEVELS
from spur_agent.options import DEFAULT_CONFIG, Options, UsageError
from spur_auth.posture import posture
from spur_core.config import Config, ConfigMissing, default_config, load_config, resolve_jwt_key
from spur_core.config.address import join_address, split_address, with_port
from spur_core.errors import ConfigError, GrammarError
from spur_proto_lite.paths import resolve_state_dir

DEFAULT_CONTROLLER_PORT = 6817
_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound


class Settings(NamedTuple):
    """One agent.

    config_path: the file that was read, None without one.
    controllers: HOST:PORT each, in the order in which they are tried.
    listen: HOST:PORT of the gRPC service; port 0 = any free one.
    key: the cluster key, None on a cluster without one.
    warnings: what an administrator should hear at start, one line each.
    """

    config: Config
    config_path: Path | None
    node: str
    controllers: tuple[str, ...]
    listen: str
    address: str
    state_dir: str
    labels: dict[str, str]
    log_level: str
    key: bytes | None
    warnings: tuple[str, ...]


def resolve(options: Options, environ: Mapping[str, str]) -> Settings:
    """Put everything together.

    Raises:
        UsageError: a flag or variable has a value that cannot be used.
        ConfigError: the configuration file cannot be used, or its `[auth]` must not be served with.
    """
    warnings: list[str] = []
    config, path = _config(options.config, warnings)
    if environ.get("SPUR_STEPD", "1") != "1":
        raise UsageError("SPUR_STEPD: steps always run under supervisors; unset it")
    listen = options.listen or config.agent_listen_addr
    try:
        split_address(listen)
    except GrammarError as error:
        raise UsageError(f"--listen: {error.text}") from None
    key = resolve_jwt_key(config)
    found = posture(
        config.auth.plugin, config.auth.mode, key, listen, forced=config.auth.allow_none_off_loopback
    )
    if found.refusals:
        raise ConfigError(list(found.refusals))
    warnings.extend(found.warnings)
    if config.auth.allow_root_jobs and os.geteuid() == 0:
        warnings.append("[auth] allow_root_jobs lets jobs run as root on this node")
    level = options.log_level or environ.get("SPUR_LOG") or config.logging.level
    if level not in LEVELS:
        raise UsageError(f"SPUR_LOG: {level!r} is not one of {', '.join(LEVELS)}")
    return Settings(
        config=config,
        config_path=path,
        node=options.node or socket.gethostname().partition(".")[0],
        controllers=_controllers(options.controller or environ.get("SPUR_CONTROLLER_ADDR"), config),
        listen=listen,
        address=options.address or environ.get("SPUR_NODE_ADDRESS") or "",
        state_dir=resolve_state_dir(
            str(options.state_dir) if options.state_dir else None, environ, config.agent_state_dir
        ),
        labels=_labels(options.labels or tuple(filter(None, environ.get("SPUR_NODE_LABELS", "").split(",")))),
        log_level=level,
        key=key if config.auth.plugin != "none" else None,
        warnings=tuple(warnings),
    )


def _config(given: Path | None, warnings: list[str]) -> tuple[Config, Path | None]:
    """The configuration; only the default file may be missing."""
    path = given or DEFAULT_CONFIG
    try:
        return load_config(path), path.absolute()
    except ConfigMissing:
        if given is not None:
            raise
        warnings.append(f"{path} is not there; defaults apply")
        return default_config(), None


def _controllers(text: str | None, config: Config) -> tuple[str, ...]:
    if text is None:
        return config.controller_addresses
    found = []
    for part in text.split(","):
        bare = part.strip().removeprefix("http://").rstrip("/")
        if not bare:
            continue
        try:
            found.append(with_port(bare, DEFAULT_CONTROLLER_PORT))
        except GrammarError as error:
            raise UsageError(f"--controller: {error.text}") from None
    if not found:
        raise UsageError("--controller: no address in it")
    return tuple(found)


def _labels(items: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise UsageError(f"--label {item!r}: write NAME=VALUE")
        labels[name] = value
    return labels


def advertised_address(explicit: str, listen: str) -> str:
    """The address others reach this agent by: as told, else the one it listens on, else the host's.

    A name is resolved to its first address that another host can use, else to its first one.
    """
    host = explicit
    if not host:
        bound = split_address(listen)[0]
        host = socket.gethostname() if bound in _EVERY_ADDRESS else bound
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return explicit or "127.0.0.1"
    addresses = [str(info[4][0]) for info in infos]
    return next((a for a in addresses if _usable(a)), addresses[0])


def _usable(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return not (address.is_loopback or address.is_unspecified or address.is_link_local)


def bound_address(listen: str, port: int) -> str:
    """`listen` with the port that was really bound."""
    return join_address(split_address(listen)[0] or "::", port)
