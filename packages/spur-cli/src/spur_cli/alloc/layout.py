"""Run-length forms of per-node counts: `72(x2),36`.  Pure."""

from collections.abc import Iterable


def runs(counts: Iterable[int], *, always: bool = False) -> str:
    """`counts` with equal neighbours folded.

    Args:
        always: write `1(x1)` for a single one too.
    """
    folded: list[list[int]] = []
    for count in counts:
        if folded and folded[-1][0] == count:
            folded[-1][1] += 1
        else:
            folded.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 or always else str(count) for count, times in folded)
