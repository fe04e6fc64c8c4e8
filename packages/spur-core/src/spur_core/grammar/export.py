"""`--export`: which of the submitter's variables a job gets.  Bytes in, bytes out."""

from collections import namedtuple

from spur_core.errors import GrammarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple

    class Exported(NamedTuple):
        """`env` goes to the job; `load_user_env` asks the node for the login-like variables under it."""

        env: dict[bytes, bytes]
        load_user_env: bool
else:
    Exported = namedtuple("Exported", ("env", "load_user_env"))

#: Credentials: they leave the submit host only when the user says ALL or names them.
_SECRETS = (b"SLURM_JWT", b"SPUR_AUTH_TOKEN")
#: What a job gets even of `NONE`.
_KEPT = (b"SLURM_", b"SPANK_", b"SPUR_")


def select(option: str | None, env: "Mapping[bytes, bytes]") -> Exported:
    """Apply `--export=option` (None = not given) to the submitter's `env`.

    | option | env | SLURM_EXPORT_ENV | load_user_env |
    |---|---|---|---|
    | None | everything but credentials | - | no |
    | ALL | everything | - | no |
    | NONE | SLURM_*, SPANK_*, SPUR_* | NONE | yes |
    | NIL | the same | NIL | no |
    | A,B=v | the same, A as it is, B=v | the option | yes |
    | ALL,B=v | everything, B=v | the option | yes |

    Raises:
        GrammarError: a word that is neither a name nor an assignment, or a quote that is not closed.
    """
    if option is None:
        return Exported({name: value for name, value in env.items() if name not in _SECRETS}, False)
    words = split(option)
    upper = [word.upper() for word in words]
    if upper == ["ALL"]:
        return Exported(dict(env), False)
    if upper in (["NONE"], ["NIL"]):
        out = _kept(env)
        out[b"SLURM_EXPORT_ENV"] = upper[0].encode()
        return Exported(out, upper == ["NONE"])
    out = dict(env) if "ALL" in upper else _kept(env)
    for word in words:
        if word.upper() == "ALL":
            continue
        name, equals, value = word.partition("=")
        if not _is_name(name):
            raise GrammarError(f"Invalid --export specification: {word}")
        key = name.encode("utf-8", "surrogateescape")
        if equals:
            out[key] = value.encode("utf-8", "surrogateescape")
        elif key in env:
            out[key] = env[key]
    out[b"SLURM_EXPORT_ENV"] = option.encode("utf-8", "surrogateescape")
    return Exported(out, True)


def step_option(option: str | None, env: "Mapping[bytes, bytes]") -> str | None:
    """The value that srun obeys: its `--export`, else SRUN_EXPORT_ENV, else the job's SLURM_EXPORT_ENV."""
    if option is not None:
        return option
    for name in (b"SRUN_EXPORT_ENV", b"SLURM_EXPORT_ENV"):
        if name in env:
            return env[name].decode("utf-8", "surrogateescape")
    return None


def split(text: str) -> list[str]:
    """Words between commas; quotes keep commas and are removed.

    Raises:
        GrammarError: a quote that is not closed.
    """
    words, current, quote = [], "", ""
    for char in text:
        if char == quote:
            quote = ""
        elif quote:
            current += char
        elif char in "'\"":
            quote = char
        elif char == ",":
            words.append(current)
            current = ""
        else:
            current += char
    if quote:
        raise GrammarError(f"Invalid --export specification: {text}: a quote is not closed")
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
        name, equals, value = entry.lstrip(b"\n").partition(b"=")
        if not equals or not name.strip():
            raise GrammarError(f"Invalid --export-file entry: {entry[:40]!r}")
        out[name] = value
    return out


def _kept(env: "Mapping[bytes, bytes]") -> dict[bytes, bytes]:
    return {name: value for name, value in env.items() if name.startswith(_KEPT) and name not in _SECRETS}


def _is_name(text: str) -> bool:
    return bool(text) and not any(char in " \t\n\0" for char in text)
