"""The controllers of the cluster, each asked by itself: who is there, who leads."""

from typing import TYPE_CHECKING, NamedTuple

from spur_cli.cli_errors import CallFailed

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_proto import controller_pb2

#: For each controller.
ASK_SECS = 3.0


class Member(NamedTuple):
    """One controller.

    address: `host:port` where it was asked.
    number: its place in the group from 1, 0 when not known.
    answer: of its Ping, None when it gave none.
    up: something answers there.
    """

    address: str
    number: int
    answer: "controller_pb2.PingResponse | None"
    up: bool

    @property
    def host(self) -> str:
        """The name to show."""
        named = self.answer.hostname if self.answer is not None else ""
        return named or self.address.rpartition(":")[0].strip("[]")


class Group(NamedTuple):
    """Every controller, in the group's order, and what the best informed one says of its leader.

    told: the answer that `leader` and the term are from, None when nobody answered.
    """

    members: list[Member]
    told: "controller_pb2.PingResponse | None"

    @property
    def leader(self) -> int:
        """The number of the one that leads, 0 for none."""
        return self.told.leader_id if self.told is not None else 0

    @property
    def several(self) -> bool:
        """Whether it is a group at all."""
        return self.told is not None and len(self.told.members) > 1


def ask(transport: "Transport", address: str) -> Member:
    """One controller's own answer."""
    from spur_proto import controller_pb2 as pb

    try:
        answer = transport.only(address).call("Ping", pb.PingRequest(), pb.PingResponse, timeout=ASK_SECS)
    except CallFailed as failure:
        return Member(address, 0, None, failure.reached and failure.status != "DEADLINE_EXCEEDED")
    return Member(address, answer.member_id, answer, up=True)


def gather(transport: "Transport") -> Group:
    """Ask those that are configured, then those that they tell of."""
    found = [ask(transport, address) for address in transport.where.addresses]
    told = _best(found)
    if told is not None and len(told.members) > 1:
        by_number = {one.number: one for one in found if one.number}
        by_address = {one.address: one for one in found}
        members = []
        for one in told.members:
            known = by_number.get(one.id) or by_address.get(one.client_address)
            known = known or ask(transport, one.client_address)
            members.append(known._replace(number=one.id))
        found = members
        told = _best(found) or told
    return Group(found, told)


def _best(found: list[Member]) -> "controller_pb2.PingResponse | None":
    """Of the highest term, one that knows a leader, the leader itself first."""
    answers = [one.answer for one in found if one.answer is not None]
    return max(
        answers,
        key=lambda answer: (answer.term, answer.leader_id != 0, answer.leader_id == answer.member_id),
        default=None,
    )
