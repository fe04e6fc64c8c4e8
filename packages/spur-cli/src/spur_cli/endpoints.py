"""Where the controller is: option, environment, configuration file, default."""

import os
from collections.abc import Mapping

from spur_core.config.client import (
    DEFAULT_PATH,
    DEFAULTS,
    ClientSettings,
    controller_addresses,
    load_client,
)
from spur_core.errors import ConfigError

#: How long a call goes on to look for a controller that can serve it, seconds; a variable says otherwise.
RETRY_SECS, RETRY_NAME = 15.0, "SPUR_RETRY_SECS"
#: The one-machine cluster of `spur up`, below the caller's home.
LOCAL_CLUSTER = ".local/state/spur/up/spur.conf"


class Endpoints:
    """Where a command calls.

    addresses: `host:port`, tried in this order.
    config: the configuration file that was used, "" for none.
    client: what that file says.
    """

    __slots__ = ("addresses", "client", "config")

    def __init__(self, addresses: tuple[str, ...], config: str, client: ClientSettings) -> None:
        self.addresses = addresses
        self.config = config
        self.client = client


def home(env: Mapping[str, str]) -> str:
    """The caller's home directory."""
    found = env.get("HOME")
    if found and found.startswith("/"):
        return found.rstrip("/")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def config_path(env: Mapping[str, str], system: str = DEFAULT_PATH) -> str:
    """The configuration file of this call: `SPUR_CONF`, the system's, `spur up`'s; "" when there is none."""
    named = env.get("SPUR_CONF", "")
    if named:
        return named
    if os.path.exists(system):  # noqa: PTH110 - pathlib costs start-up time
        return system
    mine = f"{home(env)}/{LOCAL_CLUSTER}"
    return mine if os.access(mine, os.R_OK) else ""


def find(option: str | None, env: Mapping[str, str]) -> Endpoints:
    """Where to call.

    Args:
        option: the value of `--controller`, None when not given.

    Raises:
        ConfigError: the configuration file cannot be used, or an address is none.
    """
    path = config_path(env)
    client = load_client({"SPUR_CONF": path}) if path else DEFAULTS
    return Endpoints(controller_addresses(option, env, client), path, client)


def retry_secs(env: Mapping[str, str]) -> float:
    """How long a call may go on to look for a controller that can serve it.

    Raises:
        ConfigError: the variable is no number of seconds.
    """
    text = env.get(RETRY_NAME, "")
    if not text:
        return RETRY_SECS
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ConfigError(f"{RETRY_NAME}: {text} is not a number of seconds")
    return found
