"""Job dependencies: `afterok:85:86,afterany:90_4`, `?` for any, `singleton`.

Parsing is strict; evaluating is pure: the caller looks jobs up.
"""

from collections import namedtuple

from spur_core.errors import GrammarError
from spur_core.grammar._scan import digits

TYPE_CHECKING = False

TYPES = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "singleton")
SATISFIED = "satisfied"
WAITING = "unfulfilled"
NEVER = "failed"

#: What the outcome of a job that nobody knows any more counts as.
_UNKNOWN_IS_OVER = ("after", "afterany", "afterburstbuffer", "singleton")

if TYPE_CHECKING:
    from collections.abc import Callable
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

    #: The job a term speaks of, or None when no such job is known.  For "aftercorr" without a task the
    #: caller answers for the task with the asking job's own index.  For "singleton" job_id is 0 and `ended`
    #: tells whether no other job of that name and user is left.
    Lookup = Callable[[Term], Target | None]
else:
    Term = namedtuple("Term", ("kind", "job_id", "task", "delay"))
    Target = namedtuple("Target", ("ended", "ok", "started_at"))
    Dependency = namedtuple("Dependency", ("terms", "any_of"))
    Lookup = object


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
    if "0" <= kind[:1] <= "9":
        ids, kind = [kind, *ids], "afterany"
    kind = kind.lower().replace("_", "")
    if kind not in TYPES or (kind == "singleton") == bool(ids):
        raise _bad()
    if kind == "singleton":
        return [Term(kind, 0, None, 0)]
    return [_parse_id(kind, one) for one in ids]


def _parse_id(kind: str, text: str) -> Term:
    body, plus, delay_text = text.partition("+")
    head, underscore, task = body.partition("_")
    job_id = digits(head, 10)
    minutes = digits(delay_text, 8) if plus and kind == "after" else None if plus else 0
    if not job_id or job_id > 0xFFFFFFFF or minutes is None:
        raise _bad()
    if not underscore:
        return Term(kind, job_id, None, minutes * 60)
    if task != "*":
        index = digits(task, 9)
        if index is None:
            raise _bad()
        task = str(index)
    return Term(kind, job_id, task, minutes * 60)


def term_text(term: Term) -> str:
    """`after:85_4+10`, as it is typed."""
    if term.kind == "singleton":
        return term.kind
    task = "" if term.task is None else f"_{term.task}"
    delay = f"+{term.delay // 60}" if term.delay else ""
    return f"{term.kind}:{term.job_id}{task}{delay}"


def text_of(dependency: Dependency) -> str:
    """The text that parses to `dependency`; each term with its own type."""
    return ("?" if dependency.any_of else ",").join(term_text(term) for term in dependency.terms)


def term_state(term: Term, lookup: "Lookup", now: float) -> str:
    """SATISFIED, WAITING or NEVER for one term.

    A job that nobody knows counts as over for `after` and `afterany`, and as never to be for the rest.
    """
    found = lookup(term)
    kind = term.kind
    if found is None:
        return SATISFIED if kind in _UNKNOWN_IS_OVER else NEVER
    if kind == "after":
        if found.started_at is not None:
            return SATISFIED if now >= found.started_at + term.delay else WAITING
        # Over and never started: it was cancelled, which also lets its followers go.
        return SATISFIED if found.ended else WAITING
    if not found.ended:
        return WAITING
    if kind in _UNKNOWN_IS_OVER:
        return SATISFIED
    wanted_ok = kind != "afternotok"
    return SATISFIED if found.ok == wanted_ok else NEVER


def evaluate(dependency: Dependency, lookup: "Lookup", now: float) -> str:
    """SATISFIED, WAITING or NEVER for the whole."""
    states = {term_state(term, lookup, now) for term in dependency.terms}
    if not states:
        return SATISFIED
    # The best state decides when one term is enough, the worst when all must hold.
    order = (SATISFIED, WAITING, NEVER) if dependency.any_of else (NEVER, WAITING, SATISFIED)
    return next(state for state in order if state in states)


def display(dependency: Dependency, lookup: "Lookup", now: float) -> str:
    """`afterok:85(unfulfilled),afterok:86(failed)`; satisfied terms vanish, nothing left is empty."""
    if dependency.any_of and evaluate(dependency, lookup, now) == SATISFIED:
        return ""
    parts = []
    for term in dependency.terms:
        state = term_state(term, lookup, now)
        if state != SATISFIED:
            parts.append(f"{term_text(term)}({state})")
    return ("?" if dependency.any_of else ",").join(parts)


def job_ids(dependency: Dependency) -> set[int]:
    """Every job that the dependency names."""
    return {term.job_id for term in dependency.terms if term.job_id}


def _bad() -> GrammarError:
    return GrammarError("Job dependency problem")
