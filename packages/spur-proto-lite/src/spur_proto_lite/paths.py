"""Where everything below an agent's state directory lies: one accessor each, used by both sides.

STATE/runtime/                     0700, the agent's own
STATE/runtime/agent.lock
STATE/runtime/notify.sock
STATE/runtime/ledger
STATE/runtime/quarantine/
STATE/runtime/sessions/J.A.S/      launch.json descriptor.json journal ctl.sock stepd.log out.N err.N
                                   epilog.started
STATE/spool/J.A.S/                 the batch script, readable by the job's user
/tmp/spur-spool-UID/HASH.J.A.S/    the same where users may not enter STATE
/tmp/spur-scratch-UID/J.A/         work directory of a job without a usable one
"""

from __future__ import annotations

import os

from spur_core.errors import GrammarError
from spur_core.ids import RuntimeId

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_STATE_DIR = "/var/spool/spur"
ENVIRON_NAME = "SPUR_STEPD_STATE_DIR"


def resolve_state_dir(flag: str | None, environ: Mapping[str, str], configured: str | None) -> str:
    """`--state-dir`, else `SPUR_STEPD_STATE_DIR`, else the configuration's, else the default; absolute."""
    return os.path.abspath(flag or environ.get(ENVIRON_NAME) or configured or DEFAULT_STATE_DIR)


class StatePaths:
    """Everything below one state directory.  Pure names: nothing is touched."""

    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir

    @classmethod
    def of_session(cls, session_dir: str) -> StatePaths:
        """The state directory that `session_dir` (absolute) belongs to."""
        sessions = os.path.dirname(session_dir.rstrip("/"))
        return cls(os.path.dirname(os.path.dirname(sessions)))

    @property
    def runtime(self) -> str:
        return f"{self.state_dir}/runtime"

    @property
    def agent_lock(self) -> str:
        return f"{self.runtime}/agent.lock"

    @property
    def notify_sock(self) -> str:
        return f"{self.runtime}/notify.sock"

    @property
    def ledger(self) -> str:
        return f"{self.runtime}/ledger"

    @property
    def quarantine(self) -> str:
        return f"{self.runtime}/quarantine"

    @property
    def sessions(self) -> str:
        return f"{self.runtime}/sessions"

    @property
    def spool(self) -> str:
        """Root of the private script directories; may be entered by everybody (0711)."""
        return f"{self.state_dir}/spool"

    def script_dir(self, rid: RuntimeId) -> str:
        """Where the batch script of a step lies."""
        return f"{self.spool}/{rid.dirname()}"

    def session(self, rid: RuntimeId) -> SessionPaths:
        return SessionPaths(f"{self.sessions}/{rid.dirname()}")


def spare_spool(tmp_dir: str, owner: int) -> str:
    """Root of the script directories of jobs whose users may not enter the spool.

    Args:
        owner: the agent's uid.
    """
    return f"{tmp_dir}/spur-spool-{owner}"


def spare_script_dir(tmp_dir: str, owner: int, spool: str, rid: RuntimeId) -> str:
    """One of them.  Agents with other spools, of other clusters too, may have the same identity at once."""
    mark = 0x811C9DC5  # FNV-1a: only names are to be told apart
    for byte in os.fsencode(spool):
        mark = (mark ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{spare_spool(tmp_dir, owner)}/{mark:08x}.{rid.dirname()}"


def scratch_top(tmp_dir: str, uid: int) -> str:
    """The user's directory of scratch directories."""
    return f"{tmp_dir}/spur-scratch-{uid}"


def scratch_name(rid: RuntimeId) -> str:
    """A job's own in it."""
    return f"{rid.job_id}.{rid.run_attempt}"


class SessionPaths:
    """The files of one session."""

    LAUNCH = "launch.json"
    DESCRIPTOR = "descriptor.json"
    JOURNAL = "journal"
    CONTROL = "ctl.sock"
    LOG = "stepd.log"
    #: There as soon as the epilog has been started.  Without an epilog result it means a failed one.
    EPILOG_STARTED = "epilog.started"

    def __init__(self, session_dir: str) -> None:
        self.dir = session_dir.rstrip("/")

    @property
    def rid(self) -> RuntimeId:
        """The identity in the directory's name.

        Raises:
            GrammarError: the name is not three decimal numbers.
        """
        return RuntimeId.from_dirname(os.path.basename(self.dir))

    @property
    def rid_or_none(self) -> RuntimeId | None:
        try:
            return self.rid
        except GrammarError:
            return None

    @property
    def launch(self) -> str:
        return f"{self.dir}/{self.LAUNCH}"

    @property
    def descriptor(self) -> str:
        return f"{self.dir}/{self.DESCRIPTOR}"

    @property
    def journal(self) -> str:
        return f"{self.dir}/{self.JOURNAL}"

    @property
    def control(self) -> str:
        return f"{self.dir}/{self.CONTROL}"

    @property
    def epilog_started(self) -> str:
        return f"{self.dir}/{self.EPILOG_STARTED}"

    @property
    def log(self) -> str:
        return f"{self.dir}/{self.LOG}"
