"""Finding the controller, failing over, and the caller's credential."""

import os
import time

import grpc
import pytest

from spur_cli import credentials, endpoints
from spur_proto import controller_pb2 as pb

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def listing(peer):
    peer.answers["GetJobs"] = pb.GetJobsResponse()
    return peer


def write_config(folder, address, *, plugin="jwt", extra="", key_mode=0o600):
    key = folder / "key"
    key.write_text(KEY + "\n")
    key.chmod(key_mode)
    port = address.rpartition(":")[2]
    config = folder / "spur.conf"
    config.write_text(
        f"""
cluster_name = "alpha"
[controller]
listen_addr = "127.0.0.1:{port}"
hosts = ["127.0.0.1"]
[auth]
plugin = "{plugin}"
jwt_key_file = "{key}"
{extra}
"""
    )
    return config


def bearer(peer):
    return peer.metadata("GetJobs").get("authorization", "").removeprefix("Bearer ")


def test_failover_in_order(cli, listing, free_port):
    env = {"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}, ,http://{listing.address}/"}
    assert cli("squeue", "-h", env=env) == (0, "", "")


def test_failover_of_a_controller_that_answers_nothing(cli, listing):
    """A port that accepts and then says nothing useful is passed over."""
    import socket
    import threading

    with socket.socket() as wrong:
        wrong.bind(("127.0.0.1", 0))
        wrong.listen()

        def serve():
            while True:
                try:
                    wrong.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        env = {"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{wrong.getsockname()[1]},{listing.address}"}
        assert cli("squeue", "-h", env=env) == (0, "", "")
        wrong.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_option_before_variable_before_file(cli, listing, free_port, tmp_path):
    config = write_config(tmp_path, listing.address, plugin="none")
    none = {"SPUR_CONTROLLER_ADDR": ""}
    assert cli("squeue", "-h", env={"SPUR_CONF": str(config), **none}).code == 0
    dead = {"SPUR_CONTROLLER_ADDR": f"127.0.0.1:{free_port}"}
    assert cli("squeue", "-h", env={"SPUR_CONF": str(config), **dead}).code == 1
    assert cli("squeue", "-h", "--controller", listing.address, env=dead).code == 0


def test_the_one_machine_cluster_is_the_last_resort(tmp_path):
    env = {"HOME": str(tmp_path)}
    nowhere = str(tmp_path / "system.conf")
    assert endpoints.config_path(env, nowhere) == ""
    mine = tmp_path / ".local/state/spur/up/spur.conf"
    mine.parent.mkdir(parents=True)
    mine.write_text('cluster_name = "local"\n')
    assert endpoints.config_path(env, nowhere) == str(mine)
    (tmp_path / "system.conf").write_text("")
    assert endpoints.config_path(env, nowhere) == nowhere
    assert endpoints.config_path({"SPUR_CONF": "/x", **env}, nowhere) == "/x"


@pytest.mark.parametrize("command", ["squeue", "sinfo", "sacct", "scancel", "scontrol", "sbatch", "srun"])
def test_a_bad_configuration_is_one_line(cli, tmp_path, command):
    words = {
        "scancel": ["1"],
        "scontrol": ["show", "job"],
        "sbatch": ["--wrap", "x"],
        "srun": ["x"],
    }.get(command, [])
    for env in (
        {"SPUR_CONF": str(tmp_path / "missing.conf")},
        {"SPUR_CONTROLLER_ADDR": "https://h:1"},
        {"SPUR_CONTROLLER_ADDR": "h:port"},
    ):
        result = cli(command, *words, env=env)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"{command}: fatal: ")
        assert result.err.count("\n") == 1


def test_plugin_none_says_who_calls(cli, listing, tmp_path):
    config = write_config(tmp_path, listing.address, plugin="none")
    cli("squeue", env={"SPUR_CONF": str(config)})
    assert listing.metadata("GetJobs")["x-spur-user"] == credentials.user_name()
    assert bearer(listing) == ""


@pytest.mark.parametrize(
    ("env", "token"),
    [
        ({"SPUR_AUTH_TOKEN": " aaa ", "SLURM_JWT": "bbb"}, "aaa"),
        ({"SPUR_AUTH_TOKEN": "", "SLURM_JWT": "bbb"}, "bbb"),
        ({}, "from-file"),
    ],
)
def test_tokens_that_are_given(cli, listing, tmp_path, env, token):
    folder = tmp_path / ".spur"
    folder.mkdir()
    (folder / "token").write_text("from-file\n")
    (folder / "token").chmod(0o600)
    assert cli("squeue", "-h", env=env) == (0, "", "")
    assert bearer(listing) == token


def test_an_open_token_file_is_not_used(cli, listing, tmp_path):
    path = tmp_path / ".spur/token"
    path.parent.mkdir()
    path.write_text("from-file\n")
    path.chmod(0o644)
    result = cli("squeue", "-h")
    assert result.code == 0
    assert result.err == f"squeue: warning: {path} is open to others and not used; run chmod 600 {path}\n"
    assert bearer(listing) == ""


def test_minting_for_who_can_read_the_key(cli, listing, tmp_path):
    """The token is the caller's own, names this cluster, is kept, and is renewed at half its life."""
    from spur_auth.kinds import USER
    from spur_auth.verify import verify

    kept = tmp_path / "kept"
    config = write_config(tmp_path, listing.address, extra=f'[client]\ntoken_file = "{kept}"')
    env = {"SPUR_CONF": str(config)}
    begin = time.time()
    cli("squeue", env=env, clock=begin)
    first = bearer(listing)
    found = verify((KEY.encode(),), first, frozenset({USER}), begin, cluster="alpha")
    assert (found.name, found.uid) == (credentials.user_name(), os.getuid())
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text() == first + "\n"
    cli("squeue", env=env, clock=begin + 60)
    assert bearer(listing) == first
    cli("squeue", env=env, clock=begin + credentials.MINT_TTL * 0.6)
    assert bearer(listing) != first


def test_no_key_no_token(cli, listing, tmp_path):
    """A key that is open to others is no key for us, and not being allowed to read it is no error."""
    config = write_config(tmp_path, listing.address, key_mode=0o644)
    assert cli("squeue", "-h", env={"SPUR_CONF": str(config)}) == (0, "", "")
    assert bearer(listing) == ""


def test_a_refused_credential_is_told(cli, peer, refuse):
    def answer(request):
        raise refuse(grpc.StatusCode.UNAUTHENTICATED, "the token is expired", "token_expired")

    peer.answers["SubmitJob"] = answer
    assert cli("sbatch", "--wrap", "x", env={"SPUR_AUTH_TOKEN": "old"}) == (
        1,
        "",
        "sbatch: error: Batch job submission failed: Protocol authentication error: the token is expired\n",
    )


def test_freshness_of_garbage():
    assert not credentials.fresh("no.token.here", 0)
    assert not credentials.fresh("", 0)
