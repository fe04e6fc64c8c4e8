"""The option parser: GNU getopt_long's rules over a table.

Long names may be cut to an unambiguous prefix, short ones cluster, an optional value comes only glued or
after `=`, values may begin with a dash, `--` ends options.  Tables either permute (options after operands
still count) or stop at the first operand (sbatch, srun, salloc: the rest belongs to the script).
"""

from collections.abc import Iterable, Mapping, Sequence

from spur_cli.printable import is_text, not_text
from spur_core.errors import RequestError

#: Value forms.
FLAG, REQUIRED, OPTIONAL = 0, 1, 2


class Option:
    """One row of a table.

    name: long name.  short: its letters, "" for none.  form: FLAG, REQUIRED or OPTIONAL.
    env: variables that set it when the command line does not, first set one wins.
    metavar, help: for `--help`.
    refuse: "" = it acts; "*" = it cannot be used in this release; otherwise a blank-separated list of
        the values that ask for nothing and are therefore accepted ("none 0"), all others being refused.
    idle: why accepting it without an effect is right; "" for options that act.
    raw: its value may hold any bytes, because no message carries it as text.
    """

    __slots__ = ("env", "form", "help", "idle", "metavar", "name", "raw", "refuse", "short")

    def __init__(
        self,
        name: str,
        short: str = "",
        form: int = FLAG,
        help: str = "",
        *,
        metavar: str = "",
        env: Sequence[str] = (),
        refuse: str = "",
        idle: str = "",
        raw: bool = False,
    ) -> None:
        self.name = name
        self.short = short
        self.form = form
        self.help = help
        self.metavar = metavar or ("VALUE" if form else "")
        self.env = tuple(env)
        self.refuse = refuse
        self.idle = idle
        self.raw = raw

    def refuses(self, value: str | None) -> bool:
        """Whether this release cannot do what the option asks for with `value`."""
        if not self.refuse:
            return False
        return self.refuse == "*" or (value or "").lower() not in self.refuse.split(" ")


class UsageError(RequestError):
    """The words cannot be parsed; `lines` are complete lines without the program's name."""

    code = "usage"

    def __init__(self, text: str, *, hint: bool = False) -> None:
        super().__init__(text)
        #: Whether `Try "X --help" for more information` follows.
        self.hint = hint


class NotTextError(UsageError):
    """A value is not UTF-8, so that no controller can be told of it."""


class Table:
    """The options of one command.

    synonyms: other long names, name -> canonical name.
    in_order: stop at the first operand.
    """

    def __init__(
        self,
        options: Iterable[Option],
        *,
        synonyms: Mapping[str, str] | None = None,
        in_order: bool = False,
        synopsis: str = "[OPTIONS]",
    ) -> None:
        self.options = list(options)
        self.in_order = in_order
        self.synopsis = synopsis
        self.by_name = {option.name: option for option in self.options}
        self.by_short: dict[str, Option] = {}
        for option in self.options:
            for letter in option.short:
                self.by_short[letter] = option
        self.long: dict[str, Option] = dict(self.by_name)
        for name, canonical in (synonyms or {}).items():
            self.long[name] = self.by_name[canonical]

    def find_long(self, text: str) -> Option:
        """The option of that long name or unambiguous prefix."""
        exact = self.long.get(text)
        if exact is not None:
            return exact
        found = {name: option for name, option in self.long.items() if name.startswith(text)}
        kinds = {option.name for option in found.values()}
        if len(kinds) == 1:
            return next(iter(found.values()))
        if not kinds:
            raise UsageError(f"unrecognized option '--{text}'", hint=True)
        listed = " ".join(f"'--{name}'" for name in sorted(found))
        raise UsageError(f"option '--{text}' is ambiguous; possibilities: {listed}", hint=True)


class Parsed:
    """What was given.  Values are None for a flag and for an optional value that is absent."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str | None]] = []
        self.values: dict[str, str | None] = {}
        self.operands: list[str] = []

    def add(self, name: str, value: str | None) -> None:
        """Record one occurrence; the last one is what `get` answers."""
        self.given.append((name, value))
        self.values.pop(name, None)
        self.values[name] = value

    def has(self, name: str) -> bool:
        """Whether the option was given at all."""
        return name in self.values

    def get(self, name: str) -> str | None:
        """Its last value; None when not given (or given without a value)."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        """Its last value, "" when there is none."""
        return self.values.get(name) or ""

    def every(self, name: str) -> list[str]:
        """Every value of it, in order."""
        return [value for given, value in self.given if given == name and value is not None]

    def count(self, name: str) -> int:
        """How often it was given."""
        return sum(1 for given, _ in self.given if given == name)

    def items(self, name: str) -> list[str]:
        """The items of its last value, a comma list; blanks around and empty items are dropped."""
        return split_list(self.text(name))


def split_list(text: str) -> list[str]:
    """The items of a comma list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def parse(table: Table, words: Sequence[str]) -> Parsed:
    """Parse `words` by `table`.

    Raises:
        UsageError: an option that is unknown, ambiguous, refused, or whose value is missing or too much.
    """
    out = Parsed()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            out.operands.extend(words[at:])
            break
        if word.startswith("--"):
            at = _long(table, word[2:], words, at, out)
        elif word.startswith("-") and len(word) > 1:
            at = _cluster(table, word[1:], words, at, out)
        elif table.in_order:
            out.operands.extend(words[at - 1 :])
            break
        else:
            out.operands.append(word)
    return out


def _long(table: Table, body: str, words: Sequence[str], at: int, out: Parsed) -> int:
    name, equals, glued = body.partition("=")
    option = table.find_long(name)
    value: str | None = glued if equals else None
    if option.form == FLAG and equals:
        raise UsageError(f"option '--{option.name}' doesn't allow an argument", hint=True)
    if option.form == REQUIRED and not equals:
        if at >= len(words):
            raise UsageError(f"option '--{option.name}' requires an argument", hint=True)
        value = words[at]
        at += 1
    _take(option, value, out)
    return at


def _cluster(table: Table, letters: str, words: Sequence[str], at: int, out: Parsed) -> int:
    while letters:
        letter, letters = letters[0], letters[1:]
        option = table.by_short.get(letter)
        if option is None:
            raise UsageError(f"invalid option -- '{letter}'", hint=True)
        if option.form == FLAG:
            _take(option, None, out)
            continue
        value: str | None = letters or None
        if option.form == REQUIRED and value is None:
            if at >= len(words):
                raise UsageError(f"option requires an argument -- '{letter}'", hint=True)
            value = words[at]
            at += 1
        _take(option, value, out)
        break
    return at


def _take(option: Option, value: str | None, out: Parsed) -> None:
    if option.refuses(value):
        raise refusal(option, value)
    _check_text(option, value)
    out.add(option.name, value)


def _check_text(option: Option, value: str | None, source: str = "") -> None:
    if value and not option.raw and not is_text(value):
        shown = f"--{option.name}"
        raise NotTextError(not_text(f"{source} ({shown})" if source else shown, value))


def check_operands(words: Iterable[str]) -> None:
    """Operands that a message carries as text.

    Raises:
        NotTextError: one is not UTF-8.
    """
    for word in words:
        if not is_text(word):
            name, equals, value = word.partition("=")
            named = bool(equals) and name.isascii() and name.isprintable()
            raise NotTextError(not_text(name, value) if named else not_text("argument", word))


def refusal(option: Option, value: str | None, source: str = "") -> UsageError:
    """The error for an option that this release cannot serve.

    Args:
        source: where it came from when that was not the command line, e.g. a variable's name.
    """
    shown = f"--{option.name}"
    if option.refuse != "*" and value:
        shown += f"={value}"
    if source:
        shown = f"{source} ({shown})"
    return UsageError(f"{shown} is not supported by this release")


def from_environment(table: Table, env: Mapping[str, str]) -> dict[str, str | None]:
    """What variables set, by option name.

    A flag's variable: empty, `yes` or a number other than 0 is on, `0` and `no` are off.

    Raises:
        UsageError: a variable asks for what this release cannot do.
    """
    found: dict[str, str | None] = {}
    for option in table.options:
        for variable in option.env:
            text = env.get(variable)
            if text is None:
                continue
            value: str | None = text
            if option.form == FLAG:
                if text.lower() in ("0", "no"):
                    break
                value = None
            elif option.form == OPTIONAL and text.lower() in ("", "yes"):
                value = None
            if option.refuses(value):
                raise refusal(option, value, variable)
            _check_text(option, value, variable)
            found[option.name] = value
            break
    return found


def help_text(command: str, table: Table) -> str:
    """The long text of `--help`."""
    lines = [f"Usage: {command} {table.synopsis}", ""]
    for option in table.options:
        if option.refuse == "*":
            continue
        left = f"  -{option.short[0]}, " if option.short else "      "
        left += f"--{option.name}"
        if option.form == REQUIRED:
            left += f"={option.metavar}"
        elif option.form == OPTIONAL:
            left += f"[={option.metavar}]"
        lines.append(f"{left:<34} {option.help or option.idle}".rstrip())
    return "\n".join(lines) + "\n"


def usage_text(command: str, table: Table) -> str:
    """The short text of `--usage`."""
    words = []
    for option in table.options:
        if option.refuse != "*":
            shown = f"-{option.short[0]}" if option.short else f"--{option.name}"
            words.append(f"[{shown}]" if option.form != REQUIRED else f"[{shown} {option.metavar}]")
    lines, current = [], f"Usage: {command}"
    for word in [*words, table.synopsis.replace("[OPTIONS]", "").strip()]:
        if len(current) + len(word) > 78:
            lines.append(current)
            current = " " * (8 + len(command))
        current += f" {word}" if word else ""
    return "\n".join([*lines, current]) + "\n"
