"""Job array specifications: `0-99%10`, `1,3,5`, `0-10:2`.

An index set is a sorted tuple of arithmetic runs (first, last inclusive, step), so ten thousand tasks
cost as much as one.
"""

from collections.abc import Iterable, Iterator

from spur_core.errors import GrammarError

Range = tuple[int, int, int]
#: Shown characters of a bracket unless SLURM_BITSTR_LEN says otherwise.
BITSTR_LEN = 64


class IndexSet:
    """An immutable set of array indices."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[Range]) -> None:
        """`ranges` must be sorted and disjoint; use `of` for anything else."""
        self.ranges: tuple[Range, ...] = tuple(ranges)

    @classmethod
    def of(cls, indices: Iterable[int]) -> "IndexSet":
        """The set of any indices, in any order."""
        return cls(_runs(sorted(set(indices))))

    def __iter__(self) -> Iterator[int]:
        if _disjoint(self.ranges):
            for first, last, step in self.ranges:
                yield from range(first, last + 1, step)
        else:  # interleaved runs such as 0-10:5 with 3-8:5
            yield from sorted(
                index for first, last, step in self.ranges for index in range(first, last + 1, step)
            )

    def __len__(self) -> int:
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(
            first <= index <= last and (index - first) % step == 0 for first, last, step in self.ranges
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and (self.ranges == other.ranges or list(self) == list(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"IndexSet({self.text()!r})"

    @property
    def first(self) -> int:
        """The lowest index.  The set must not be empty."""
        return min(first for first, _, _ in self.ranges)

    @property
    def last(self) -> int:
        """The highest index.  The set must not be empty."""
        return max(last for _, last, _ in self.ranges)

    @property
    def step(self) -> int:
        """The step of a set that is one run, else 1."""
        return self.ranges[0][2] if len(self.ranges) == 1 else 1

    def lowest(self, count: int) -> list[int]:
        """The `count` lowest indices, fewer when there are fewer."""
        out: list[int] = []
        for index in self:
            if len(out) == count:
                break
            out.append(index)
        return out

    def without(self, index: int) -> "IndexSet":
        """The set less one index (itself when the index is not in it)."""
        out: list[Range] = []
        for first, last, step in self.ranges:
            if not (first <= index <= last and (index - first) % step == 0):
                out.append((first, last, step))
                continue
            for part_first, part_last in ((first, index - step), (index + step, last)):
                if part_first == part_last:
                    out.append((part_first, part_last, 1))
                elif part_first < part_last:
                    out.append((part_first, part_last, step))
        return IndexSet(out)

    def intersection(self, other: "IndexSet") -> "IndexSet":
        """Indices in both."""
        return IndexSet.of(index for index in self if index in other)

    def text(self) -> str:
        """`0-9`, `1,3`, `0-10:2`: the form that users type."""
        parts = []
        for first, last, step in self.ranges:
            if first == last:
                parts.append(str(first))
            elif step == 1:
                parts.append(f"{first}-{last}")
            elif first + step == last:
                parts.append(f"{first},{last}")
            else:
                parts.append(f"{first}-{last}:{step}")
        return ",".join(parts)


def _disjoint(ranges: tuple[Range, ...]) -> bool:
    return all(ranges[at][1] < ranges[at + 1][0] for at in range(len(ranges) - 1))


def _runs(indices: list[int]) -> list[Range]:
    """Fold sorted unique indices: neighbours first, then equal steps of three and more."""
    out: list[Range] = []
    at = 0
    while at < len(indices):
        end = at
        if at + 1 < len(indices):
            step = indices[at + 1] - indices[at]
            while end + 1 < len(indices) and indices[end + 1] - indices[end] == step:
                end += 1
            if step > 1 and end - at < 2:
                end = at
        if end == at:
            out.append((indices[at], indices[at], 1))
        else:
            out.append((indices[at], indices[end], indices[at + 1] - indices[at]))
        at = end + 1
    return out


class ArraySpec:
    """A parsed `-a` value: the indices and the throttle (0 = none)."""

    __slots__ = ("indices", "throttle")

    def __init__(self, indices: IndexSet, throttle: int) -> None:
        self.indices = indices
        self.throttle = throttle

    @property
    def ranges(self) -> tuple[Range, ...]:
        return self.indices.ranges


def parse_array(text: str, max_size: int = 4_000_001) -> ArraySpec:
    """The tasks that `text` names; duplicates collapse.

    Args:
        max_size: MaxArraySize; indices must be below it.

    Raises:
        GrammarError: "Invalid job array specification".
    """
    body, percent, limit = text.partition("%")
    throttle = 0
    if percent and limit:
        throttle = _number(limit)
    ranges: list[Range] = []
    for item in body.split(","):
        span, colon, step_text = item.partition(":")
        low, dash, high = span.partition("-")
        first = _number(low)
        last = _number(high) if dash else first
        step = _number(step_text) if colon else 1
        if (colon and not dash) or step == 0 or last < first or last >= max_size:
            raise _bad()
        last -= (last - first) % step
        ranges.append((first, last, 1 if first == last else step))
    ranges.sort()
    if len(ranges) == 1 or _disjoint(tuple(ranges)):
        return ArraySpec(IndexSet(ranges), throttle)
    if sum((last - first) // step + 1 for first, last, step in ranges) > 10 * max(max_size, 100_000):
        raise _bad()
    return ArraySpec(
        IndexSet.of(index for first, last, step in ranges for index in range(first, last + 1, step)), throttle
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise _bad()
    return int(text)


def _bad() -> GrammarError:
    return GrammarError("Invalid job array specification")


def bracket(indices_text: str, throttle: int, length: int = BITSTR_LEN) -> str:
    """`[4-9%2]`, cut to `length` characters of list text followed by `...`; 0 = never cut."""
    if length and len(indices_text) > length:
        indices_text = indices_text[:length].rpartition(",")[0] + ",..."
    return f"[{indices_text}%{throttle}]" if throttle else f"[{indices_text}]"
