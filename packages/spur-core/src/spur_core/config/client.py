"""What a command needs of `spur.conf`, at the price of parsing it: no schema, no rules.

Daemons check the whole file; here only the few keys that are used are looked at.  A file that cannot be
parsed is an error and never replaced by defaults, for then a command could talk to the wrong cluster.
"""

from collections import namedtuple

from spur_core.config.address import split_address, with_port
from spur_core.errors import ConfigError, GrammarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    class ClientSettings(NamedTuple):
        """`addresses`: HOST:PORT of the controllers in order; `token_file` may begin with `~/`."""

        cluster_name: str
        addresses: tuple[str, ...]
        auth_plugin: str
        token_file: str
        slurm_file_names: bool
else:
    ClientSettings = namedtuple(
        "ClientSettings", ("cluster_name", "addresses", "auth_plugin", "token_file", "slurm_file_names")
    )

DEFAULT_PATH = "/etc/spur/spur.conf"
DEFAULTS = ClientSettings("spur", ("localhost:6817",), "jwt", "~/.spur/token", True)
_PLUGINS = ("none", "jwt", "spur")


def load_client(env: "Mapping[str, str]") -> ClientSettings:
    """The settings of the file that `SPUR_CONF` names, else of the default one.

    Only the default file may be missing; then the defaults hold.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    # Imported here: a command that is told its controller pays 6 ms less.
    import tomllib

    chosen = env.get("SPUR_CONF") or DEFAULT_PATH
    try:
        with open(chosen, "rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        if env.get("SPUR_CONF"):
            raise ConfigError(f"{chosen}: no such file (named by SPUR_CONF)") from None
        return DEFAULTS
    except OSError as error:
        raise ConfigError(f"{chosen}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{chosen}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{chosen}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{chosen}: nested too deeply") from None
    problems: list[str] = []
    settings = _settings(document, problems)
    if problems:
        raise ConfigError([f"{chosen}: {problem}" for problem in problems])
    return settings


def controller_addresses(
    option: str | None, env: "Mapping[str, str]", settings: "ClientSettings | None" = None
) -> tuple[str, ...]:
    """HOST:PORT of the controllers to try, in order: `--controller`, SPUR_CONTROLLER_ADDR, the file.

    Args:
        settings: what `load_client` gave, read by this function when None and needed.

    Raises:
        ConfigError: an address that cannot be used, or the file cannot.
    """
    for source, text in (("--controller", option), ("SPUR_CONTROLLER_ADDR", env.get("SPUR_CONTROLLER_ADDR"))):
        entries = [entry.strip() for entry in (text or "").split(",") if entry.strip()]
        if entries:
            return tuple(_entry(entry, source) for entry in entries)
    if settings is None:
        settings = load_client(env)
    return settings.addresses


def _entry(text: str, source: str) -> str:
    """An address with or without `http://` and port; `https` comes with TLS."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "http":
        raise ConfigError(f"{source}: {text}: only http:// addresses are supported by this release")
    try:
        return with_port((rest if separator else text).rstrip("/"), 6817)
    except GrammarError as error:
        raise ConfigError(f"{source}: {error.text}") from None


def _settings(document: dict[str, object], problems: list[str]) -> ClientSettings:
    controller = _table(document, "controller", problems)
    auth = _table(document, "auth", problems)
    client = _table(document, "client", problems)
    addresses = _addresses(controller, problems)
    plugin = auth.get("plugin", DEFAULTS.auth_plugin)
    if plugin not in _PLUGINS:
        problems.append(f"[auth] plugin must be one of {', '.join(_PLUGINS)}")
    token_file = client.get("token_file", DEFAULTS.token_file)
    if not isinstance(token_file, str):
        problems.append("[client] token_file must be a text in quotes")
    names = client.get("slurm_file_names", True)
    if not isinstance(names, bool):
        problems.append("[client] slurm_file_names must be true or false")
    cluster = document.get("cluster_name", DEFAULTS.cluster_name)
    return ClientSettings(str(cluster), tuple(addresses), str(plugin), str(token_file), bool(names))


def _addresses(controller: dict[str, object], problems: list[str]) -> list[str]:
    """`client_addrs` as they stand, else `hosts` with the port of `listen_addr`."""
    listen = controller.get("listen_addr", "[::]:6817")
    hosts = controller.get("hosts", ["localhost"])
    told = controller.get("client_addrs", [])
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        problems.append("[controller] client_addrs must be a list of HOST:PORT in quotes")
        return []
    for one in told:
        try:
            reachable = all(split_address(one))
        except GrammarError:
            reachable = False
        if not reachable:
            problems.append(f"[controller] client_addrs: {one!r} is not HOST:PORT")
    if told:
        return told
    try:
        port = split_address(listen if isinstance(listen, str) else "")[1]
        if not isinstance(hosts, list) or not hosts:
            problems.append("[controller] hosts must be a list of controllers in quotes")
            return []
        return [with_port(host if isinstance(host, str) else "", port) for host in hosts]
    except GrammarError as error:
        problems.append(f"[controller] listen_addr, hosts: {error.text}")
        return []


def _table(document: dict[str, object], name: str, problems: list[str]) -> dict[str, object]:
    found = document.get(name, {})
    if isinstance(found, dict):
        return found
    problems.append(f"{name} must be a table: write [{name}]")
    return {}
