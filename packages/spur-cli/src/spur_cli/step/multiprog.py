"""`srun --multi-prog FILE`: which program each task runs.  Pure.

A line is `RANKS COMMAND [ARGUMENTS]`; ranks are `0`, `1-3`, `0,2` or `*` (every rank not named before).
`%t` is the task's rank, `%o` its place within the line's ranks, `%%` one percent sign.  Quotes group words,
and between single quotes nothing is replaced.  A `#` where a word would begin starts a comment; a backslash
at the end of a line goes on in the next.
"""

from collections.abc import Iterator, Sequence

from spur_core.errors import GrammarError

#: Ranks beyond this are a typing error, not a step.
MAX_RANK = 1 << 20
#: A word: pieces of (text, whether codes in it are replaced).
_Word = list[tuple[str, bool]]


class Plan:
    """The programs of a step.

    commands: (ranks, argv) in the order of the file; every rank is in exactly one.
    tasks: how many ranks there are.
    """

    def __init__(self, commands: list[tuple[list[int], list[str]]], tasks: int) -> None:
        self.commands = commands
        self.tasks = tasks


def parse(text: str, file: str, tasks: int | None, extra: Sequence[str] = ()) -> Plan:
    """The plan in the text of a file.

    Args:
        file: its name, for errors.
        tasks: ranks of the step; None = as many as the file names.
        extra: arguments put behind those of each line.

    Raises:
        GrammarError: a line that is none, a rank named twice, beyond the step's or not at all.
    """
    lines: list[tuple[int, str, list[_Word]]] = []
    for number, words in _lines(text, file):
        if len(words) < 2:
            raise GrammarError(f"{file}: line {number}: a task range and a program are needed")
        lines.append((number, "".join(piece for piece, _ in words[0]), words[1:]))
    if tasks is None:
        tasks = 1 + max(
            (max(_ranks(spec, file, number), default=-1) for number, spec, _ in lines), default=-1
        )
        if not tasks:
            raise GrammarError(f"{file}: no task rank is named; give their number with -n")
    owner: dict[int, int] = {}
    commands: list[tuple[list[int], list[str]]] = []
    for number, spec, words in lines:
        ranks = _ranks(spec, file, number) if spec != "*" else [r for r in range(tasks) if r not in owner]
        for rank in ranks:
            if rank >= tasks:
                raise GrammarError(f"{file}: line {number}: there is no task {rank} in a step of {tasks}")
            if owner.setdefault(rank, number) != number:
                raise GrammarError(f"{file}: line {number}: task {rank} is named in line {owner[rank]} too")
        commands += _commands(ranks, words, extra)
    missing = [rank for rank in range(tasks) if rank not in owner]
    if missing:
        from spur_core.grammar.array import IndexSet

        raise GrammarError(f"{file}: no program for task rank {IndexSet.of(missing).text()}")
    return Plan(commands, tasks)


def _commands(
    ranks: list[int], words: list[_Word], extra: Sequence[str]
) -> Iterator[tuple[list[int], list[str]]]:
    """One command for all ranks of a line, or one each when it names its rank."""
    if not ranks:
        return
    if any("%t" in text or "%o" in text for word in words for text, live in word if live):
        for offset, rank in enumerate(ranks):
            yield [rank], [_expand(word, rank, offset) for word in words] + list(extra)
    else:
        yield ranks, [_expand(word, 0, 0) for word in words] + list(extra)


def _expand(word: _Word, rank: int, offset: int) -> str:
    out = []
    for text, live in word:
        if live:
            parts = text.split("%%")
            text = "%".join(part.replace("%t", str(rank)).replace("%o", str(offset)) for part in parts)
        out.append(text)
    return "".join(out)


def _ranks(spec: str, file: str, line: int) -> list[int]:
    """The ranks of `0,2-3` in that order; none for `*`."""
    if spec == "*":
        return []
    found: list[int] = []
    for item in spec.split(","):
        low_text, dash, high_text = item.partition("-")
        ends = [low_text, high_text if dash else low_text]
        if not all(end.isascii() and end.isdigit() and len(end) < 9 for end in ends):
            raise GrammarError(f"{file}: line {line}: invalid task range {spec}")
        low, high = int(ends[0]), int(ends[1])
        if high < low or high > MAX_RANK:
            raise GrammarError(f"{file}: line {line}: invalid task range {spec}")
        found.extend(range(low, high + 1))
    if len(set(found)) != len(found):
        raise GrammarError(f"{file}: line {line}: a task is named twice in {spec}")
    return found


def _lines(text: str, file: str) -> Iterator[tuple[int, list[_Word]]]:
    """(number of its first line, words) of each line that says something."""
    pending, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first or number
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1] + " "
            continue
        words = _split(pending + line, file, first)
        if words:
            yield first, words
        pending, first = "", 0
    words = _split(pending, file, first)
    if words:
        yield first, words


def _split(line: str, file: str, number: int) -> list[_Word]:
    words: list[_Word] = []
    current: _Word | None = None
    quote = ""
    at = 0
    while at < len(line):
        char = line[at]
        at += 1
        if char == "\\" and quote != "'" and at < len(line):
            current = [*(current or []), (line[at], False)]
            at += 1
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote, current = char, current or []
        elif not quote and char in " \t\r":
            if current is not None:
                words.append(current)
            current = None
        elif not quote and char == "#" and current is None:
            break
        else:
            current = _add(current or [], char, quote != "'")
    if quote:
        raise GrammarError(f"{file}: line {number}: Unmatched `{quote}` in [{line.strip()}]")
    return words if current is None else [*words, current]


def _add(word: _Word, char: str, live: bool) -> _Word:
    """`word` with one more character; neighbours of one kind stay one piece, so that `%t` stays whole."""
    if word and word[-1][1] is live:
        return [*word[:-1], (word[-1][0] + char, live)]
    return [*word, (char, live)]
