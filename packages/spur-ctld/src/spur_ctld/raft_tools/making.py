"""`spurctld raft init` and `spurctld raft gen-certs`."""

from collections.abc import Callable
from pathlib import Path

from spur_core.config.model import Config
from spur_core.errors import ConfigError, StateError
from spur_ctld.raft_tools.place import Place
from spur_ctld.raft_tools.seeding import ask, certificate_problems
from spur_ctld.replication import certs
from spur_ctld.replication.files import Files
from spur_ctld.replication.recovery import init_directory

Say = Callable[[str], None]
#: Seconds that another member may take to answer.
_SECS = 2.0


def init(place: Place, say: Say) -> None:
    """Make the directory of one member of a new cluster.

    Raises:
        StateError: there is anything already, the certificates are missing, or the group is at work.
    """
    cluster_id = place.cluster_id()
    certs.own_folder(place.state_dir)
    if cluster_id is not None and not (place.state_dir / "raft" / "meta").exists():
        _refuse_if_at_work(place, cluster_id)
    meta = init_directory(place.state_dir, place.member_id, place.members, Files(), cluster_id)
    say(
        f"{place.state_dir / 'raft'}: controller {place.member_id} of {len(place.members)}"
        f" of the new cluster {meta.cluster_id}"
    )


def _refuse_if_at_work(place: Place, cluster_id: str) -> None:
    """A member that served before and begins anew forgets its promises; whether it did, nobody can tell here.

    Raises:
        StateError: another member has entries of the group's log.
    """
    if certificate_problems(place):
        return  # nobody would answer; a start names them
    for member, told in ask(place, cluster_id, _SECS):
        if not isinstance(told, str) and told.last_index:
            raise StateError(
                f"{place.state_dir / 'raft'}: the group is at work already, controller {member.id}"
                f" ({member.address}) holds its log; fill this controller with `spurctld raft seed`"
            )


def gen_certs(config: Config, out: Path, say: Say) -> None:
    """Make the CA, unless it is there, and the certificates of the members that have none.

    Raises:
        ConfigError: the configuration names no group.
        StateError: nothing is missing, or the directory cannot be used.
    """
    count = len(config.controller.peers)
    if count <= 1:
        raise ConfigError(
            "[controller] peers: a single controller needs no certificates; name all members of the group"
        )
    # Before a CA in it is believed: it may be somebody else's.
    certs.own_folder(out)
    ca = out / certs.CA_CERT
    new = not ca.exists()
    if new:
        certs.make_ca(out)
        say(f"{ca}: the CA of cluster {certs.cluster_id(ca)}; keep {out / certs.CA_KEY} in a safe place")
    missing = [at for at in range(1, count + 1) if not certs.member_dir(out, at).exists()]
    if not missing:
        raise StateError(
            f"{out}: every controller has a certificate already; to replace one, move its directory away"
        )
    for at in missing:
        folder = certs.make_member(out, at)
        say(f"{folder}: copy to raft_tls_dir of controller {at} ({config.controller.peers[at - 1]})")
