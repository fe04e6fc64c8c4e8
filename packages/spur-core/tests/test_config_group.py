"""Who the members of a group of controllers are, and which one this host is."""

from pathlib import Path

import pytest

from spur_core.config import Config, parse_config
from spur_core.config.group import GroupMember, members, tls_dir, warnings
from spur_core.errors import ConfigError


@pytest.fixture
def config():
    """A configuration whose [controller] holds the given lines."""

    def parse(*lines: str) -> Config:
        return parse_config("\n".join(['cluster_name = "c"', "[controller]", *lines]))

    return parse


THREE = 'peers = ["ctl1:6821", "ctl2.site:6821", "[fe80::3]:6821"]'


@pytest.mark.parametrize(
    ("lines", "member"),
    [
        ([], GroupMember(1, "", "", "")),
        (['peers = ["ctl1:6821"]'], GroupMember(1, "ctl1:6821", "", "")),
        (
            ['peers = ["ctl1:6821"]', 'client_addrs = ["ctl1:7"]'],
            GroupMember(1, "ctl1:6821", "", "ctl1:7"),
        ),
    ],
)
def test_alone(config, lines, member):
    """A group of one asks for no name of this host, and has no certificate."""
    assert members(config(*lines), "anything") == (1, (member,))


def test_clients_come_to_the_hosts_of_the_peers_unless_told_otherwise(config):
    """With the port of listen_addr."""
    own, group = members(config(THREE, 'listen_addr = "[::]:7000"', "node_id = 3"), "whatever")
    assert own == 3
    assert group == (
        GroupMember(1, "ctl1:6821", "spur-controller-1", "ctl1:7000"),
        GroupMember(2, "ctl2.site:6821", "spur-controller-2", "ctl2.site:7000"),
        GroupMember(3, "[fe80::3]:6821", "spur-controller-3", "[fe80::3]:7000"),
    )
    clients = 'client_addrs = ["h:1", "h:2", "h:3"]'
    assert [one.client for one in members(config(THREE, clients), "ctl1")[1]] == ["h:1", "h:2", "h:3"]


@pytest.mark.parametrize(
    ("hostname", "own"),
    [
        ("ctl1", 1),
        ("CTL1.", 1),
        ("ctl1.anywhere", 1),
        ("ctl2", 2),
        ("ctl2.site", 2),
        ("ctl2.elsewhere", None),
        ("ctl", None),
        ("", None),
    ],
)
def test_the_host_is_found_by_its_name(config, hostname, own):
    """With or without its domain, but never by another domain's."""
    if own:
        assert members(config(THREE), hostname)[0] == own
    else:
        with pytest.raises(
            ConfigError, match=r"peers: this host, .*is not in ctl1.*set \[controller\] node_id"
        ):
            members(config(THREE), hostname)


def test_several_members_on_a_host_need_their_ids(config):
    """A name that stands twice says nothing."""
    lines = ['peers = ["h:1", "h:2", "k:1"]', 'client_addrs = ["h:3", "h:4", "k:3"]']
    with pytest.raises(ConfigError, match="more than once in h:1, h:2, k:1; set"):
        members(config(*lines), "h")
    assert members(config(*lines), "k")[0] == 3


def test_members_that_clients_could_not_tell_apart_are_refused(config):
    """Two on a host without client_addrs would share one port."""
    with pytest.raises(ConfigError, match="client_addrs"):
        members(config('peers = ["h:1", "h:2", "k:1"]', "node_id = 1"), "h")


@pytest.mark.parametrize(("count", "warned"), [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0)])
def test_even_groups_work_with_a_warning(config, count, warned):
    """They bear no more losses than one member less."""
    peers = ", ".join(f'"h{at}:1"' for at in range(count))
    assert len(warnings(config(f"peers = [{peers}]"))) == warned


def test_certificates_are_in_the_state_directory_unless_told_otherwise(config):
    """raft_tls_dir."""
    assert tls_dir(config(), Path("/s")) == Path("/s/tls")
    assert tls_dir(config(THREE, 'raft_tls_dir = "/t"'), Path("/s")) == Path("/t")
