"""Ids of acknowledged sessions, so that a late notification for one is answered "known".

Bounded, and not synced: losing a line costs one more round of "deferred".
"""

import logging
from collections import OrderedDict
from pathlib import Path

from spur_agent.logs import value
from spur_core.errors import GrammarError
from spur_core.ids import RuntimeId

log = logging.getLogger(__name__)

#: Ids kept; the file may hold twice as many lines before it is written anew.
LIMIT = 4096


class Ledger:
    """The last `LIMIT` acknowledged sessions.

    Args:
        path: the file; made when it is not there, damaged lines are passed over.
    """

    def __init__(self, path: str, limit: int = LIMIT) -> None:
        self._path = Path(path)
        self._limit = limit
        self._ids: OrderedDict[RuntimeId, None] = OrderedDict()
        self._lines = 0
        try:
            text = self._path.read_text(errors="replace")
        except OSError:
            text = ""
        for line in text.splitlines():
            self._lines += 1
            try:
                self._remember(RuntimeId.from_dirname(line))
            except GrammarError:
                continue

    def __contains__(self, rid: RuntimeId) -> bool:
        return rid in self._ids

    def add(self, rid: RuntimeId) -> None:
        """Remember one more."""
        self._remember(rid)
        try:
            if self._lines >= 2 * self._limit:
                self._rewrite()
            else:
                with self._path.open("a") as file:
                    file.write(rid.dirname() + "\n")
                self._lines += 1
            self._path.chmod(0o600)
        except OSError as error:
            log.warning("ledger_not_written error=%s", value(error))

    def _remember(self, rid: RuntimeId) -> None:
        self._ids[rid] = None
        self._ids.move_to_end(rid)
        while len(self._ids) > self._limit:
            self._ids.popitem(last=False)

    def _rewrite(self) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text("".join(rid.dirname() + "\n" for rid in self._ids))
        fresh.replace(self._path)
        self._lines = len(self._ids)
