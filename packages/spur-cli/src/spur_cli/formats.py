"""Format strings of squeue and sinfo: `-o "text%[[.]width]LETTER"` and `-O name[:[.]width[suffix]],...`.

A width is both least and most.  Without a dot a field stands left, with one right.  Two extensions are kept:
`%-N` also stands left, `%#` is natural width.
"""

from collections.abc import Callable, Container, Iterable

from spur_cli.printable import printable, unescape

#: Default width of a name of -O.
NAME_WIDTH = 20


class Cell:
    """One field of a format.

    before: literal text in front.  key: letter or lower-case name, "" for literal text alone.
    width: None = natural.  after: literal text behind.
    """

    __slots__ = ("after", "before", "key", "right", "width")

    def __init__(
        self, before: str, key: str, width: int | None = None, right: bool = False, after: str = ""
    ) -> None:
        self.before = before
        self.key = key
        self.width = width
        self.right = right
        self.after = after

    def fit(self, text: str, *, cut_right: bool = True) -> str:
        """`text` in this field's width.

        Args:
            cut_right: False for columns that overflow when they stand right.
        """
        if self.width is None:
            return text
        if self.right:
            text = text.rjust(self.width)
            return text[: self.width] if cut_right else text
        return text.ljust(self.width)[: self.width]


class Format:
    """A parsed format: its cells, literal text at the end, and the letters nobody knows."""

    def __init__(self, cells: list[Cell], tail: str, unknown: list[str]) -> None:
        self.cells = cells
        self.tail = tail
        self.unknown = unknown


def parse_letters(text: str, known: Container[str]) -> Format:
    """Parse an `-o` format; an unknown letter leaves its token as literal text."""
    text = unescape(text)
    cells: list[Cell] = []
    unknown: list[str] = []
    literal = ""
    at = 0
    while at < len(text):
        if text[at] != "%":
            literal += text[at]
            at += 1
            continue
        start = at
        at += 1
        right = natural = False
        while at < len(text) and text[at] in ".-#":
            right = right or text[at] == "."
            natural = natural or text[at] == "#"
            at += 1
        digits = at
        while at < len(text) and text[at].isascii() and text[at].isdigit():
            at += 1
        width = int(text[digits:at]) if at > digits and not natural else None
        letter = text[at : at + 1]
        at += 1
        if letter and letter in known:
            cells.append(Cell(literal, letter, width, right))
            literal = ""
        else:
            literal += text[start:at]
            unknown.append(letter)
    return Format(cells, literal, unknown)


def parse_names(text: str, known: Container[str]) -> Format:
    """Parse an `-O` list; names are lower-cased."""
    text = unescape(text)
    cells: list[Cell] = []
    unknown: list[str] = []
    for item in text.split(","):
        if not item.strip():
            continue
        name, colon, rest = item.strip(" ").partition(":")
        right = rest.startswith(".")
        if right:
            rest = rest[1:]
        at = 0
        while at < len(rest) and rest[at].isascii() and rest[at].isdigit():
            at += 1
        width: int | None = NAME_WIDTH
        if colon:
            width = int(rest[:at]) if at else None
        key = name.lower()
        if key in known:
            cells.append(Cell("", key, width, right, rest[at:] if colon else ""))
        else:
            unknown.append(name)
    return Format(cells, "", unknown)


def render(form: Format, values: Callable[[str], str], overflow: Container[str]) -> str:
    """One line, newline included.

    Args:
        values: the text of a key.
        overflow: keys that are not cut when they stand right.
    """
    out = [
        cell.before + cell.fit(printable(values(cell.key)), cut_right=cell.key not in overflow) + cell.after
        for cell in form.cells
    ]
    return "".join(out) + form.tail + "\n"


def line_maker(
    form: Format, text_of: Callable[[str], Callable[..., str]], overflow: Container[str]
) -> Callable[..., str]:
    """`render` for many rows: a function of a row (and whatever else the texts take) that makes its line.

    Args:
        text_of: the function that gives the text of a key.
    """
    parts = [
        (c.before, text_of(c.key), c.width, c.right, c.width if c.key not in overflow else None, c.after)
        for c in form.cells
    ]
    tail = form.tail + "\n"

    def line(*row: object) -> str:
        out = []
        for before, text, width, right, cut_right, after in parts:
            value = printable(text(*row))
            if width is not None:
                if right:
                    value = value.rjust(width)[:cut_right]
                else:
                    value = value.ljust(width)[:width]
            out.append(before + value + after)
        return "".join(out) + tail

    return line


def date_line(now: float) -> str:
    """The first line of the long layouts: `Mon Nov 30 01:52:48 2026`."""
    import time

    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(now)) + "\n"


def every_letter(letters: Iterable[str]) -> str:
    """What `%all` stands for."""
    return "|".join(f"%{letter}" for letter in letters)
