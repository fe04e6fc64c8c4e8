"""Job array specifications: `0-99%10`, `1,3,5`, `0-10:2`.

An index set is a sorted tuple of arithmetic runs (first, last inclusive, step), none of which begins
before the one in front has ended, so ten thousand tasks cost as much as one.
"""

from bisect import bisect_left
from itertools import pairwise

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Range = tuple[int, int, int]
#: Shown characters of a bracket unless SLURM_BITSTR_LEN says otherwise.
BITSTR_LEN = 64
#: Slurm's hard ceiling of MaxArraySize.
MAX_SIZE = 4_000_001
#: Slurm writes a set as first-last:step only when it spans more than this.
_STEP_SPAN = 10
#: So many indices are faster sorted than found among all that could be.
_FEW_INDICES = 1 << 16


class IndexSet:
    """An immutable set of array indices; `ranges` is also its stored form."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: "Iterable[Range]") -> None:
        """`ranges` as another set's `ranges` has them; use `of` for anything else."""
        self.ranges: tuple[Range, ...] = tuple(ranges)

    @classmethod
    def of(cls, indices: "Iterable[int]") -> "IndexSet":
        """The set of any indices, in any order."""
        return cls(_runs(sorted(set(indices))))

    def __iter__(self) -> "Iterator[int]":
        for first, last, step in self.ranges:
            yield from range(first, last + 1, step)

    def __len__(self) -> int:
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        at = bisect_left(self.ranges, (index + 1,)) - 1
        if at < 0:
            return False
        first, last, step = self.ranges[at]
        return index <= last and (index - first) % step == 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexSet):
            return NotImplemented
        return self.ranges == other.ranges or (len(self) == len(other) and list(self) == list(other))

    def __hash__(self) -> int:
        # Equal sets may be cut into different runs, so only what all of them share counts.
        return hash((self.first, self.last, len(self))) if self.ranges else 0

    def __repr__(self) -> str:
        return f"IndexSet({self.text()!r})"

    @property
    def first(self) -> int:
        """The lowest index.  The set must not be empty."""
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        """The highest index.  The set must not be empty."""
        return self.ranges[-1][1]

    @property
    def step(self) -> int:
        """The step of a set that is one run, else 1."""
        return self.ranges[0][2] if len(self.ranges) == 1 else 1

    def lowest(self, count: int) -> list[int]:
        """The `count` lowest indices, fewer when there are fewer."""
        out: list[int] = []
        for first, last, step in self.ranges:
            room = count - len(out)
            if room <= 0:
                break
            out += range(first, min(last, first + (room - 1) * step) + 1, step)
        return out

    def pop_lowest(self) -> tuple[int, "IndexSet"]:
        """(the lowest index, the set without it).  The set must not be empty."""
        first, last, step = self.ranges[0]
        rest = _part(first + step, last, step)
        return first, IndexSet(rest + self.ranges[1:])

    def without(self, index: int) -> "IndexSet":
        """The set less one index (itself when the index is not in it)."""
        for at, (first, last, step) in enumerate(self.ranges):
            if first <= index <= last and (index - first) % step == 0:
                parts = _part(first, index - step, step) + _part(index + step, last, step)
                return IndexSet(self.ranges[:at] + parts + self.ranges[at + 1 :])
        return self

    def intersection(self, other: "IndexSet") -> "IndexSet":
        """Indices in both."""
        if self.ranges == other.ranges:
            return self
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        return IndexSet.of(index for index in few if index in many)

    def difference(self, other: "IndexSet") -> "IndexSet":
        """Indices that are not in the other."""
        return IndexSet.of(index for index in self if index not in other)

    def text(self) -> str:
        """`0-9`, `1,3`, `0-10:2`: the form that users type; parses back to the same set."""
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

    def listing(self, length: int = 0) -> str:
        """As Slurm displays it: a step only for one run of more than ten, all else as single indices.

        Args:
            length: about as many characters are made as this and one run need; 0 = all.
        """
        if len(self.ranges) == 1:
            first, last, step = self.ranges[0]
            if step > 1 and last - first > _STEP_SPAN:
                return f"{first}-{last}:{step}"
        parts: list[str] = []
        made = 0
        for first, last, step in self.ranges:
            pieces = (
                [f"{first}-{last}"] if step == 1 and first != last else map(str, range(first, last + 1, step))
            )
            for piece in pieces:
                parts.append(piece)
                made += len(piece) + 1
                if length and made > length + 1:
                    return ",".join(parts)
        return ",".join(parts)


def _part(first: int, last: int, step: int) -> tuple[Range, ...]:
    """The run from first to last as ranges: none when it is empty, and one index has step 1."""
    if first > last:
        return ()
    return ((first, last, 1 if first == last else step),)


def _runs(indices: "list[int]") -> list[Range]:
    """Fold sorted unique indices: neighbours first, then equal steps of three and more."""
    out: list[Range] = []
    at, count = 0, len(indices)
    while at < count:
        end = at
        if at + 1 < count:
            step = indices[at + 1] - indices[at]
            while end + 1 < count and indices[end + 1] - indices[end] == step:
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
        """The stored form of the indices."""
        return self.indices.ranges

    def text(self) -> str:
        """`0-9%2`: the form that users type."""
        return f"{self.indices.text()}%{self.throttle}" if self.throttle else self.indices.text()


def parse_array(text: str, max_size: int = MAX_SIZE) -> ArraySpec:
    """The tasks that `text` names; duplicates collapse.

    Args:
        max_size: MaxArraySize; indices must be below it.

    Raises:
        GrammarError: "Invalid job array specification".
    """
    body, percent, limit = text.partition("%")
    throttle = _number(limit) if percent and limit else 0
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
    if all(left[1] < right[0] for left, right in pairwise(ranges)):
        return ArraySpec(IndexSet(_joined(ranges)), throttle)
    return ArraySpec(_overlapping(ranges), throttle)


def _joined(ranges: list[Range]) -> "Iterable[Range]":
    """Sorted disjoint runs in canonical form, without listing what is one long run."""
    if len(ranges) > 1 and all(first == last for first, last, _ in ranges):
        return _runs([first for first, _, _ in ranges])
    out: list[Range] = []
    for first, last, step in ranges:
        if out and step == 1 and out[-1][2] == 1 and out[-1][1] + 1 == first:
            out[-1] = (out[-1][0], last, 1)
        else:
            out.append((first, last, step))
    return out


def _overlapping(ranges: list[Range]) -> IndexSet:
    """The union of runs that overlap: of few indices by a set, of many by one mark per possible index."""
    total = sum((last - first) // step + 1 for first, last, step in ranges)
    if total <= _FEW_INDICES:
        return IndexSet.of(index for first, last, step in ranges for index in range(first, last + 1, step))
    marks = bytearray(max(last for _, last, _ in ranges) + 1)
    for first, last, step in ranges:
        marks[first : last + 1 : step] = b"\1" * ((last - first) // step + 1)
    return IndexSet(_runs([index for index, mark in enumerate(marks) if mark]))


def _number(text: str) -> int:
    number = digits(text, 9)
    if number is None:
        raise _bad()
    return number


def _bad() -> GrammarError:
    return GrammarError("Invalid job array specification")


def bracket(indices: "IndexSet | str", throttle: int, length: int = BITSTR_LEN) -> str:
    """`[4-9%2]`; the list is cut after `length` characters and ends in `...`; 0 = never cut."""
    text = indices if isinstance(indices, str) else indices.listing(length)
    if length > 0 and len(text) > length:
        text = text[:length] + "..."
    return f"[{text}%{throttle}]" if throttle else f"[{text}]"
