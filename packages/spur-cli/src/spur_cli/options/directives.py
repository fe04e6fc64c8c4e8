"""`#SBATCH` lines of a batch script: the words that they add to the options.

Only lines that begin in column 0 with `#SBATCH` count, up to the first line that holds something other than
blanks or a comment.  Words are split at blanks; quotes group, a backslash escapes, an unquoted `#` begins a
trailing comment.
"""

from spur_core.errors import RequestError

MARK = "#SBATCH"
OLD_MARK = "#SLURM"
OTHER_MARKS = ("#PBS", "#BSUB")


class DirectiveError(RequestError):
    """A directive line cannot be split into words; the text names line and file."""

    code = "bad_directive"


class Directives:
    """What the lines of a script say.

    words: per line, its words.
    old: numbers of the lines that begin with `#SLURM`.
    foreign: `#PBS` or `#BSUB` when the script has such lines, else "".
    """

    def __init__(self) -> None:
        self.words: list[list[str]] = []
        self.old: list[int] = []
        self.foreign = ""


def read(script: str, file: str) -> Directives:
    """The directives of `script`.

    Args:
        file: the script's name for messages.

    Raises:
        DirectiveError: a quote that is not closed.
    """
    found = Directives()
    for number, line in enumerate(script.split("\n"), 1):
        stripped = line.strip(" \t\r")
        if stripped and not stripped.startswith("#"):
            break
        mark = _mark(line)
        if mark == OLD_MARK:
            found.old.append(number)
        elif mark in OTHER_MARKS:
            found.foreign = mark
        if mark in (MARK, OLD_MARK):
            words = split(line[len(mark) :], file, number)
            if words:
                found.words.append(words)
    return found


def _mark(line: str) -> str:
    for mark in (MARK, OLD_MARK, *OTHER_MARKS):
        # "#SBATCHES" is a comment; so is "##SBATCH".
        if line.startswith(mark) and line[len(mark) : len(mark) + 1] in ("", " ", "\t"):
            return mark
    return ""


def split(text: str, file: str, number: int) -> list[str]:
    """The words of one line.

    Raises:
        DirectiveError: a quote that is not closed.
    """
    words: list[str] = []
    current: str | None = None
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and quote != "'" and at < len(text):
            current = (current or "") + text[at]
            at += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                current = (current or "") + char
        elif char in "'\"":
            quote, current = char, current or ""
        elif char in " \t\r":
            if current is not None:
                words.append(current)
            current = None
        elif char == "#":
            break
        else:
            current = (current or "") + char
    if quote:
        raise DirectiveError(f"{file}: line {number}: Unmatched `{quote}` in [{text.strip()}]")
    if current is not None:
        words.append(current)
    return words
