"""Job dependencies: `afterok:85:86,afterany:90_4`, `?` for any, `singleton`.

Parsing is strict; evaluating is pure: the caller looks jobs up.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING

from spur_core.errors import GrammarError

TYPES = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
SATISFIED = "satisfied"
WAITING = "unfulfilled"
NEVER = "failed"

if TYPE_CHECKING:
    from typing import NamedTuple

    class Term(NamedTuple):
        """One condition.  `task` None = the whole job, "*" = every task; `delay` in seconds."""

        kind: str
        job_id: int
        task: str | None
        delay: int

    class Target(NamedTuple):
        """What a lookup answers.

        `ended`: it is over; `ok`: and every part ended COMPLETED; `started_at`: when the last of its
        parts started, None while one has not.
        """

        ended: bool
        ok: bool
        started_at: float | None

    class Dependency(NamedTuple):
        """`terms`, all to hold (`any_of` False) or one of them."""

        terms: tuple[Term, ...]
        any_of: bool
else:
    Term = namedtuple("Term", ("kind", "job_id", "task", "delay"))
    Target = namedtuple("Target", ("ended", "ok", "started_at"))
    Dependency = namedtuple("Dependency", ("terms", "any_of"))

#: (kind, job_id, task) -> Target, or None when no such job is known.  For "aftercorr" without a task the
#: caller answers for the task with the asking job's own index.  For "singleton" job_id is 0 and `ended`
#: tells whether no other job of that name and user is left.
Lookup = Callable[[Term], "Target | None"]


def parse(text: str) -> Dependency:
    """The structure of `text`; an empty text has no terms.

    Raises:
        GrammarError: "Job dependency problem".
    """
    if not text or text.lower() == "(null)":
        return Dependency((), False)
    if "," in text and "?" in text:
        raise _bad()
    any_of = "?" in text
    terms: list[Term] = []
    for item in text.split("?" if any_of else ","):
        terms.extend(_parse_item(item))
    return Dependency(tuple(terms), any_of)


def _parse_item(item: str) -> list[Term]:
    kind, *ids = item.strip().split(":")
    if kind and kind[0].isdigit():
        ids, kind = [kind, *ids], "afterany"
    kind = kind.lower().replace("_", "")
    if kind not in TYPES or (kind == "singleton") == bool(ids):
        raise _bad()
    if kind == "singleton":
        return [Term(kind, 0, None, 0)]
    return [_parse_id(kind, one) for one in ids]


def _parse_id(kind: str, text: str) -> Term:
    body, plus, delay_text = text.partition("+")
    delay = 0
    if plus:
        if kind != "after" or not (delay_text.isascii() and delay_text.isdigit()):
            raise _bad()
        delay = int(delay_text) * 60
    head, underscore, task = body.partition("_")
    if not (head.isascii() and head.isdigit()) or int(head) == 0 or int(head) > 0xFFFFFFFF:
        raise _bad()
    if underscore and task != "*" and not (task.isascii() and task.isdigit()):
        raise _bad()
    return Term(kind, int(head), task if underscore else None, delay)


def term_state(term: Term, lookup: Lookup, now: float) -> str:
    """SATISFIED, WAITING or NEVER for one term.

    A job that nobody knows counts as over for `after` and `afterany`, and as never to be for the rest.
    """
    found = lookup(term)
    kind = term.kind
    if found is None:
        return SATISFIED if kind in ("after", "afterany", "singleton") else NEVER
    if kind == "after":
        if found.started_at is not None and now >= found.started_at + term.delay:
            return SATISFIED
        return SATISFIED if found.ended and found.started_at is None else WAITING
    if not found.ended:
        return WAITING
    if kind in ("afterany", "singleton"):
        return SATISFIED
    wanted_ok = kind != "afternotok"
    return SATISFIED if found.ok == wanted_ok else NEVER


def evaluate(dependency: Dependency, lookup: Lookup, now: float) -> str:
    """SATISFIED, WAITING or NEVER for the whole."""
    states = [term_state(term, lookup, now) for term in dependency.terms]
    if not states:
        return SATISFIED
    if dependency.any_of:
        if SATISFIED in states:
            return SATISFIED
        return WAITING if WAITING in states else NEVER
    if NEVER in states:
        return NEVER
    return WAITING if WAITING in states else SATISFIED


def display(dependency: Dependency, lookup: Lookup, now: float) -> str:
    """`afterok:85(unfulfilled),afterok:86(failed)`; satisfied terms vanish, nothing left is empty."""
    parts = []
    for term in dependency.terms:
        state = term_state(term, lookup, now)
        if state == SATISFIED:
            continue
        if term.kind == "singleton":
            parts.append(f"singleton({state})")
            continue
        task = "" if term.task is None else f"_{term.task}"
        delay = f"+{term.delay // 60}" if term.delay else ""
        parts.append(f"{term.kind}:{term.job_id}{task}{delay}({state})")
    return ("?" if dependency.any_of else ",").join(parts)


def job_ids(dependency: Dependency) -> set[int]:
    """Every job that the dependency names."""
    return {term.job_id for term in dependency.terms if term.job_id}


def _bad() -> GrammarError:
    return GrammarError("Job dependency problem")
