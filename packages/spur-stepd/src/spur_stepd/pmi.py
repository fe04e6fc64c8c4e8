"""The process-management interface of MPI programs (PMI-1 and PMI-2), as the tasks of one step see it.  Pure.

Bytes of each rank go in, bytes for ranks and wishes of theirs come out.  MPICH's documents of the two wire
protocols are the source of the rules:

    PMI-1   a line a message: `cmd=put kvsname=K key=A value=text to the end\n`
    PMI-2   six characters of decimal length, then `cmd=kvs-put;key=A;value=text;`, a `;` in a text doubled

A rank begins with a line of PMI-1 that names the version it goes on with.  A key that is put is seen by the
others after the next barrier (PMI-1) or fence (PMI-2), which all ranks of the step take part in.
"""

from __future__ import annotations

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What the variables of a task must not bring along from elsewhere.
FOREIGN = ("PMI_", "PMI2_", "PMIX_", "OMPI_MCA_ess")
MAX_KEY = 64
MAX_VALUE = 1024
MAX_NAME = 256
#: A message, its length field not counted.
MAX_MESSAGE = 32_768
#: Names and values of one step together; what is beyond is refused.
MAX_STORE = 16 << 20
_DIGITS = 6
_PROCESS_MAPPING = "PMI_process_mapping"
_NOT_HERE = "not supported"


class Broken(Exception):
    """What a rank sends is no PMI; its connection is closed."""


class Outcome:
    """What one piece of input led to.

    replies: (rank, bytes) in order.
    abort: (exit code, text) when the rank wants the step to end, else None.
    broken: why the rank's connection is to be closed, "" = it goes on.
    """

    __slots__ = ("abort", "broken", "replies")

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes]] = []
        self.abort: tuple[int, str] | None = None
        self.broken = ""


class _Rank:
    __slots__ = ("buffer", "done", "in_fence", "thread", "version")

    def __init__(self) -> None:
        self.buffer = bytearray()
        #: 0 = has not said yet.
        self.version = 0
        self.in_fence = False
        #: What a program with threads wants back with an answer, "" = nothing.
        self.thread = ""
        self.done = False


class Exchange:
    """What the ranks of a step tell each other.

    Args:
        ranks: those of this node, which are all of the step's.
        job: the name of the exchange, of which there is no other on this machine.
    """

    def __init__(self, ranks: tuple[int, ...], job: str) -> None:
        self.job = job
        self.size = len(ranks)
        self._ranks = {rank: _Rank() for rank in ranks}
        mapping = f"(vector,(0,1,{self.size}))"
        self._attributes = {_PROCESS_MAPPING: mapping, "universeSize": str(self.size), "hasNameServ": "FALSE"}
        #: What every rank sees, and what is put and waits for the next fence.
        self._store: dict[str, str] = {_PROCESS_MAPPING: mapping}
        self._pending: dict[str, str] = {}
        self._stored = 0
        #: Facts of the node, at once seen by its ranks: key -> value, and who waits for one.
        self._node: dict[str, str] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}
        self._lines: dict[str, Callable[[int, Mapping[str, str], Outcome], None]] = {
            "init": self._init,
            "get_maxes": self._maxes,
            "get_appnum": lambda rank, _, out: self._line(out, rank, "appnum", appnum=0),
            "get_my_kvsname": lambda rank, _, out: self._line(out, rank, "my_kvsname", kvsname=self.job),
            "get_universe_size": lambda rank, _, out: self._line(out, rank, "universe_size", size=self.size),
            "put": self._line_put,
            "get": self._line_get,
            "barrier_in": self._fence,
            "finalize": self._finalize,
            "abort": self._abort,
        }
        self._frames: dict[str, Callable[[int, Mapping[str, str], Outcome], None]] = {
            "fullinit": self._full_init,
            "job-getid": lambda rank, _, out: self._frame(out, rank, "job-getid", jobid=self.job),
            "info-getjobattr": self._job_attribute,
            "info-putnodeattr": self._put_node,
            "info-getnodeattr": self._get_node,
            "kvs-put": self._frame_put,
            "kvs-get": self._frame_get,
            "kvs-fence": self._fence,
            "finalize": self._finalize,
            "abort": self._abort,
        }

    # -- bytes

    def heard(self, rank: int, data: bytes) -> Outcome:
        """Take what a rank has sent.  What came before nonsense counts: others may have waited for it."""
        out = Outcome()
        self._ranks[rank].buffer += data
        try:
            self._serve(rank, out)
        except Broken as error:
            out.broken = str(error)
        return out

    def _serve(self, rank: int, out: Outcome) -> None:
        """Every whole message that is there.

        Raises:
            Broken: one makes no sense.
        """
        state = self._ranks[rank]
        while (message := self._next(state)) is not None:
            table = self._frames if state.version == 2 else self._lines
            command = message.get("cmd", "")
            if not state.version and command != "init":
                raise Broken(f"{command[:40]!r} comes before init")
            serve = table.get(command)
            state.thread = message.get("thrid", "")
            if serve is not None:
                serve(rank, message, out)
            else:
                self._refuse(rank, command, out)

    def _next(self, state: _Rank) -> dict[str, str] | None:
        buffer = state.buffer
        if state.version != 2:
            end = buffer.find(b"\n")
            if end < 0:
                if len(buffer) > MAX_MESSAGE:
                    raise Broken("a line without an end")
                return None
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            return parse_line(line)
        if len(buffer) < _DIGITS:
            return None
        length = bytes(buffer[:_DIGITS]).strip(b" ")
        if not length.isdigit() or int(length) > MAX_MESSAGE:
            raise Broken(f"a message of the length {length[:_DIGITS]!r}")
        whole = _DIGITS + int(length)
        if len(buffer) < whole:
            return None
        body = bytes(buffer[_DIGITS:whole])
        del buffer[:whole]
        return parse_frame(body)

    def _line(self, out: Outcome, rank: int, command: str, /, **values: object) -> None:
        text = "".join(f" {name}={value}" for name, value in values.items())
        out.replies.append((rank, f"cmd={command}{text}\n".encode("utf-8", "surrogateescape")))

    def _frame(
        self,
        out: Outcome,
        rank: int,
        command: str,
        /,
        rc: int = 0,
        thread: str | None = None,
        **values: object,
    ) -> None:
        thread = self._ranks[rank].thread if thread is None else thread
        fields: list[tuple[str, object]] = [("cmd", f"{command}-response")]
        if thread:
            fields.append(("thrid", thread))
        fields += [("rc", rc), *values.items()]
        body = "".join(f"{name.replace('_', '-')}={escape(str(value))};" for name, value in fields)
        raw = body.encode("utf-8", "surrogateescape")
        out.replies.append((rank, b"%6d%s" % (len(raw), raw)))

    def _refuse(self, rank: int, command: str, out: Outcome) -> None:
        """Spawning, names of services: a program is told that there is none of it."""
        if self._ranks[rank].version == 2:
            if not command:
                raise Broken("a message without a command")
            self._frame(out, rank, command[:40], rc=1, errmsg=_NOT_HERE)
            return
        answers = {
            "spawn": "spawn_result",
            "publish_name": "publish_result",
            "unpublish_name": "unpublish_result",
            "lookup_name": "lookup_result",
        }
        answer = answers.get(command)
        if answer is None:
            raise Broken(f"there is no command {command[:40]!r}")
        self._line(out, rank, answer, rc=-1, info="fail", msg="not_supported")

    # -- beginning and end

    def _init(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        state = self._ranks[rank]
        if state.version:
            raise Broken("a second init")
        version = 2 if message.get("pmi_version") == "2" else 1
        subversion = 0 if version == 2 else 1
        self._line(out, rank, "response_to_init", pmi_version=version, pmi_subversion=subversion, rc=0)
        state.version = version

    def _full_init(self, rank: int, _message: Mapping[str, str], out: Outcome) -> None:
        self._frame(
            out,
            rank,
            "fullinit",
            pmi_version=2,
            pmi_subversion=0,
            rank=rank,
            size=self.size,
            appnum=0,
            debugged="FALSE",
            pmiverbose="FALSE",
        )

    def _maxes(self, rank: int, _message: Mapping[str, str], out: Outcome) -> None:
        self._line(out, rank, "maxes", kvsname_max=MAX_NAME, keylen_max=MAX_KEY, vallen_max=MAX_VALUE)

    def _finalize(self, rank: int, _message: Mapping[str, str], out: Outcome) -> None:
        self._ranks[rank].done = True
        if self._ranks[rank].version == 2:
            self._frame(out, rank, "finalize")
        else:
            self._line(out, rank, "finalize_ack")

    def _abort(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        code = message.get("exitcode", "")
        number = int(code) if code.isascii() and code.isdigit() and len(code) < 10 else 1
        if out.abort is None:
            out.abort = (number, message.get("msg", ""))

    def left(self, rank: int) -> bool:
        """A rank's connection has ended; whether it went without saying so, in the middle of the exchange."""
        state = self._ranks[rank]
        return bool(state.version) and not state.done

    # -- keys and values

    def _keep(self, store: dict[str, str], key: str, value: str) -> str:
        """Put a value; why not, "" when it is there."""
        if not key or len(key) > MAX_KEY:
            return "key_is_too_long" if key else "no_key"
        if len(value) > MAX_VALUE:
            return "value_is_too_long"
        more = len(key) + len(value)
        if self._stored + more > MAX_STORE:
            return "no_room_left"
        self._stored += more
        store[key] = value
        return ""

    def _line_put(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        why = self._keep(self._pending, message.get("key", ""), message.get("value", ""))
        self._line(out, rank, "put_result", rc=-1 if why else 0, msg=why or "success")

    def _line_get(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        value = self._store.get(message.get("key", ""))
        if value is None:
            self._line(out, rank, "get_result", rc=-1, msg="key_not_found", value="unknown")
        else:
            self._line(out, rank, "get_result", rc=0, msg="success", value=value)

    def _frame_put(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        why = self._keep(self._pending, message.get("key", ""), message.get("value", ""))
        if why:
            self._frame(out, rank, "kvs-put", rc=1, errmsg=why)
        else:
            self._frame(out, rank, "kvs-put")

    def _frame_get(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        value = self._store.get(message.get("key", ""))
        if message.get("jobid", self.job) != self.job:
            value = None
        self._answer_found(out, rank, "kvs-get", value)

    def _answer_found(
        self, out: Outcome, rank: int, command: str, value: str | None, thread: str | None = None
    ) -> None:
        if value is None:
            self._frame(out, rank, command, thread=thread, found="FALSE")
        else:
            self._frame(out, rank, command, thread=thread, found="TRUE", value=value)

    def _job_attribute(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        self._answer_found(out, rank, "info-getjobattr", self._attributes.get(message.get("key", "")))

    def _put_node(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        key, value = message.get("key", ""), message.get("value", "")
        why = self._keep(self._node, key, value)
        if why:
            self._frame(out, rank, "info-putnodeattr", rc=1, errmsg=why)
            return
        self._frame(out, rank, "info-putnodeattr")
        for other, thread in self._waiting.pop(key, ()):
            self._answer_found(out, other, "info-getnodeattr", value, thread)

    def _get_node(self, rank: int, message: Mapping[str, str], out: Outcome) -> None:
        key = message.get("key", "")
        value = self._node.get(key)
        if value is None and message.get("wait", "").upper() == "TRUE":
            waiting = self._waiting.setdefault(key, [])
            if sum(map(len, self._waiting.values())) > 16 * self.size:
                raise Broken("too many questions that nobody answers")
            waiting.append((rank, self._ranks[rank].thread))
            return
        self._answer_found(out, rank, "info-getnodeattr", value)

    def _fence(self, rank: int, _message: Mapping[str, str], out: Outcome) -> None:
        state = self._ranks[rank]
        if state.in_fence:
            raise Broken("a second barrier before the first has ended")
        state.in_fence = True
        if not all(one.in_fence for one in self._ranks.values()):
            return
        self._store.update(self._pending)
        self._pending.clear()
        for other, one in self._ranks.items():
            one.in_fence = False
            if one.version == 2:
                self._frame(out, other, "kvs-fence")
            else:
                self._line(out, other, "barrier_out")


def parse_line(line: bytes) -> dict[str, str]:
    """A message of PMI-1: words `name=value`; the text after `value=` goes on to the end.

    Raises:
        Broken: a word is no `name=value`.
    """
    text = line.decode("utf-8", "surrogateescape").strip(" \r")
    found: dict[str, str] = {}
    while text:
        name, equals, rest = text.partition("=")
        if not equals or " " in name:
            raise Broken(f"no name=value: {text[:40]!r}")
        if name == "value":
            found[name] = rest
            break
        value, _, text = rest.partition(" ")
        found[name] = value
        text = text.lstrip(" ")
    return found


def parse_frame(body: bytes) -> dict[str, str]:
    """The body of a message of PMI-2: `name=value;`, where `;;` in a value is one `;`.

    Raises:
        Broken: a part is no `name=value`.
    """
    text = body.decode("utf-8", "surrogateescape")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        equals = text.find("=", at)
        if equals < 0:
            raise Broken(f"no name=value;: {text[at : at + 40]!r}")
        name = text[at:equals]
        value = []
        at = equals + 1
        while True:
            end = text.find(";", at)
            if end < 0:
                raise Broken(f"no ; after {name[:40]!r}")
            value.append(text[at:end])
            at = end + 1
            if text[at : at + 1] != ";":
                break
            value.append(";")
            at += 1
        found[name] = "".join(value)
    return found


def escape(value: str) -> str:
    """A value as it stands in a message of PMI-2."""
    return value.replace(";", ";;")
