"""`--export`: which of the submitter's variables a job gets.  Bytes in, bytes out."""

from collections import namedtuple
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spur_core.errors import GrammarError

if TYPE_CHECKING:
    from typing import NamedTuple

    class Exported(NamedTuple):
        """`env` goes to the job; `load_user_env` asks the node for the login-like variables."""

        env: dict[bytes, bytes]
        load_user_env: bool
else:
    Exported = namedtuple("Exported", ("env", "load_user_env"))

#: Never leaves the submit host by itself.
_SECRETS = (b"SLURM_JWT", b"SPUR_AUTH_TOKEN")
_KEPT = (b"SLURM_", b"SPANK_", b"SPUR_")
#: These belong to the commands, not to jobs.
_OWN = (b"SPUR_CONF", b"SPUR_CONTROLLER_ADDR")


def select(option: str | None, env: Mapping[bytes, bytes]) -> Exported:
    """Apply `--export=option` (None = not given) to the submitter's `env`.

    Raises:
        GrammarError: a word that is neither a name nor an assignment.
    """
    words = split(option) if option is not None else ["ALL"]
    upper = [word.upper() for word in words]
    if upper == ["ALL"]:
        return Exported({name: value for name, value in env.items() if name not in _SECRETS}, False)
    if upper in (["NONE"], ["NIL"]):
        out = _slurm_only(env)
        out[b"SLURM_EXPORT_ENV"] = upper[0].encode()
        return Exported(out, upper == ["NONE"])
    everything = "ALL" in upper
    out = {n: v for n, v in env.items() if n not in _SECRETS} if everything else _slurm_only(env)
    for word in words:
        if word.upper() == "ALL":
            continue
        name, equals, value = word.partition("=")
        if not name or not _is_name(name):
            raise GrammarError(f"Invalid --export specification: {word}")
        key = name.encode("utf-8", "surrogateescape")
        if equals:
            out[key] = value.encode("utf-8", "surrogateescape")
        elif key in env and key not in _SECRETS:
            out[key] = env[key]
    out[b"SLURM_EXPORT_ENV"] = (option or "").encode("utf-8", "surrogateescape")
    return Exported(out, not everything)


def split(text: str) -> list[str]:
    """Words between commas; quotes keep commas and are removed."""
    words, current, quote = [], "", ""
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                current += char
        elif char in "'\"":
            quote = char
        elif char == ",":
            words.append(current)
            current = ""
        else:
            current += char
    words.append(current)
    return [word for word in words if word]


def parse_file(data: bytes) -> dict[bytes, bytes]:
    """`--export-file`: NUL-separated assignments.

    Raises:
        GrammarError: an entry without a name or an equals sign.
    """
    out: dict[bytes, bytes] = {}
    for entry in data.split(b"\0"):
        if not entry.strip():
            continue
        name, equals, value = entry.partition(b"=")
        if not equals or not name.strip():
            raise GrammarError(f"Invalid --export-file entry: {entry[:40]!r}")
        out[name.lstrip(b"\n")] = value
    return out


def _slurm_only(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_KEPT) and name not in _SECRETS and name not in _OWN
    }


def _is_name(text: str) -> bool:
    return not any(char in "= \t\n\0" for char in text)
