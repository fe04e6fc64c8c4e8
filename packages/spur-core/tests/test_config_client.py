"""What a command reads of the file, and where it finds its controllers."""

import pytest

from spur_core.config.client import DEFAULTS, ClientSettings, controller_addresses, load_client
from spur_core.errors import ConfigError


@pytest.fixture
def conf(tmp_path):
    """Writes a file and gives the environment that names it."""

    def write(text: str) -> dict[str, str]:
        path = tmp_path / "spur.conf"
        path.write_text(text)
        return {"SPUR_CONF": str(path)}

    return write


def test_the_file_named_by_the_environment(conf):
    """The five things a command needs."""
    env = conf(
        'cluster_name = "c1"\n[controller]\nlisten_addr = "[::]:7000"\nhosts = ["a", "fe80::1", "c:1"]\n'
        '[auth]\nplugin = "none"\n[client]\ntoken_file = "/t"\nslurm_file_names = false\n'
    )
    assert load_client(env) == ClientSettings("c1", ("a:7000", "[fe80::1]:7000", "c:1"), "none", "/t", False)


def test_a_group_is_reached_at_its_client_addresses(conf):
    """Members may listen on ports of their own; what the hosts say does not count then."""
    env = conf('[controller]\nhosts = ["x"]\npeers = ["a:1", "b:1"]\nclient_addrs = ["a:7", "[::1]:8"]\n')
    assert load_client(env).addresses == ("a:7", "[::1]:8")


def test_keys_of_the_daemons_are_no_business_of_commands(conf):
    """A command works although a daemon would refuse the file."""
    assert (
        load_client(conf('cluster_name = "c1"\n[scheduler]\nnonsense = 1\n'))._replace(cluster_name="spur")
        == DEFAULTS
    )


def test_a_named_file_must_exist(tmp_path):
    """A typo in SPUR_CONF must not lead to another cluster."""
    with pytest.raises(ConfigError, match=r"none: no such file \(named by SPUR_CONF\)"):
        load_client({"SPUR_CONF": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = ", "Invalid value"),
        ("controller = 1", r"controller must be a table: write \[controller\]"),
        ('[controller]\nlisten_addr = "x"', r"\[controller\] listen_addr, hosts: not an address: 'x'"),
        ("[controller]\nlisten_addr = 1", r"\[controller\] listen_addr, hosts: not an address"),
        ("[controller]\nhosts = []", r"\[controller\] hosts must be a list"),
        ('[controller]\nclient_addrs = "a:1"', r"\[controller\] client_addrs must be a list"),
        ('[controller]\nclient_addrs = ["a"]', r"\[controller\] client_addrs: 'a' is not HOST:PORT"),
        ('[controller]\nclient_addrs = ["a:0"]', r"\[controller\] client_addrs: 'a:0' is not HOST:PORT"),
        ('[auth]\nplugin = "munge"', r"\[auth\] plugin must be one of none, jwt, spur"),
        ("[client]\ntoken_file = 1", r"\[client\] token_file must be a text"),
        ("[client]\nslurm_file_names = 1", r"\[client\] slurm_file_names must be true or false"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(conf, text, problem):
    """Never silently replaced by defaults."""
    with pytest.raises(ConfigError, match=problem):
        load_client(conf(text))


def test_bytes_that_are_no_text(tmp_path):
    """Named, not a traceback."""
    path = tmp_path / "f"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_client({"SPUR_CONF": str(path)})


@pytest.mark.parametrize(
    ("option", "variable", "addresses"),
    [
        ("a", "b", ("a:6817",)),
        (None, "b", ("b:6817",)),
        (" , ", " b:1 ,, http://c:2/ ", ("b:1", "c:2")),
        ("http://[::1]:5", None, ("[::1]:5",)),
        ("::1", None, ("[::1]:6817",)),
        (None, None, ("file:6817",)),
        (None, "", ("file:6817",)),
    ],
)
def test_the_order_of_places(option, variable, addresses):
    """--controller, then SPUR_CONTROLLER_ADDR, then the file; empty entries are dropped."""
    env = {} if variable is None else {"SPUR_CONTROLLER_ADDR": variable}
    settings = DEFAULTS._replace(addresses=("file:6817",))
    assert controller_addresses(option, env, settings) == addresses


@pytest.mark.parametrize(
    ("text", "why"), [("a b", "not an address"), ("https://a", "only http://"), ("a:x", "not an")]
)
def test_a_bad_address_names_its_source(text, why):
    """The user sees which setting is wrong."""
    with pytest.raises(ConfigError, match=f"SPUR_CONTROLLER_ADDR: .*{why}"):
        controller_addresses(None, {"SPUR_CONTROLLER_ADDR": text}, DEFAULTS)


def test_the_file_is_not_read_when_the_address_is_known(tmp_path):
    """A broken file does not matter to a command that needs nothing of it."""
    env = {"SPUR_CONF": str(tmp_path / "none"), "SPUR_CONTROLLER_ADDR": "a"}
    assert controller_addresses(None, env) == ("a:6817",)
