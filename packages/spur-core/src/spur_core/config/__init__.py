"""The configuration file `spur.conf`: one TOML file for controller, agent and command line.

Daemons use `load_config`; the command line uses the much cheaper `spur_core.config.client`.  The names
below are found on first use, so that importing `spur_core.config.client` loads nothing else.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spur_core.config.loader import ConfigMissing, default_config, load_config, parse_config
    from spur_core.config.model import Config
    from spur_core.config.secret import resolve_jwt_key

__all__ = ["Config", "ConfigMissing", "default_config", "load_config", "parse_config", "resolve_jwt_key"]

#: Where the file is when nobody says otherwise.
DEFAULT_PATH = "/etc/spur/spur.conf"

_HOMES = {
    "Config": "model",
    "ConfigMissing": "loader",
    "default_config": "loader",
    "load_config": "loader",
    "parse_config": "loader",
    "resolve_jwt_key": "secret",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
