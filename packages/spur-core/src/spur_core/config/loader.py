"""Reading `spur.conf`: syntax, types, unknown keys, rules; all problems at once."""

import tomllib
from pathlib import Path

from spur_core.config import rules, rules_later, unsupported
from spur_core.config.model import Config
from spur_core.config.schema import Reader
from spur_core.config.sections import PartitionEntry
from spur_core.errors import ConfigError


class ConfigMissing(ConfigError):
    """There is no file at that path (callers may go on with `default_config`)."""

    code = "config_missing"


def load_config(path: "str | Path") -> Config:
    """The configuration in the file at `path`.

    Raises:
        ConfigMissing: there is no such file.
        ConfigError: it cannot be used; `problems` has every reason, each naming file, key and value.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigMissing(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}: not UTF-8 (at line {line})") from None
    return parse_config(text, str(path))


def parse_config(text: str, name: str = "spur.conf") -> Config:
    """The configuration that `text` says; `name` stands in front of each problem.

    Raises:
        ConfigError: as for `load_config`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    reader = Reader()
    config = reader.read(Config, document)
    problems = [
        *reader.problems,
        *rules.check(config),
        *rules_later.check(config),
        *unsupported.refused(reader.seen),
    ]
    if problems:
        raise ConfigError([f"{name}: {problem}" for problem in problems])
    return config


def default_config() -> Config:
    """What holds without a file: cluster `spur`, one partition `default` with every node."""
    return Config(partitions=(PartitionEntry(name="default", default=True, nodes="ALL", priority_tier=1),))
