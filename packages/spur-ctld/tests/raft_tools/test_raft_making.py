"""`spurctld raft init` and `gen-certs`: a group's first hour."""

import os

import pytest

from spur_core.errors import StateError
from spur_ctld.replication.certs import cluster_id
from spur_ctld.replication.files import Files
from spur_ctld.replication.meta import Member, read_meta
from spur_ctld.replication.recovery import open_directory

GROUP = tuple(Member(at, f"127.0.0.1:700{at}", f"spur-controller-{at}") for at in (1, 2, 3))


def opening(tools, member, identity=None):
    opened = open_directory(tools.state(member), member, GROUP, Files(), schema=1, cluster_id=identity)
    opened.log.close()
    opened.lock.release()
    return opened


def test_certificates_then_directories(tools):
    tools.make_certs(1, 2, 3)
    ids = set()
    for member in (1, 2, 3):
        done = tools.member("init", member)
        assert (done.code, done.err) == (0, [])
        meta = read_meta(tools.state(member) / "raft" / "meta")
        assert meta.member_id == member
        assert done.out == [
            f"{tools.state(member)}/raft: controller {member} of 3 of the new cluster {meta.cluster_id}"
        ]
        ids.add(meta.cluster_id)
        assert opening(tools, member, meta.cluster_id).meta == meta
    assert ids == {cluster_id(tools.state(1) / "tls" / "ca.pem")}


def test_a_directory_is_made_once(tools):
    tools.make_certs(1)
    assert tools.member("init", 1).code == 0
    before = (tools.state(1) / "raft" / "meta").read_bytes()
    done = tools.member("init", 1)
    assert (done.code, done.err) == (
        1,
        [
            f"spurctld: error: {tools.state(1)}/raft: belongs to a controller already; a new cluster needs an"
            " empty directory"
        ],
    )
    assert (tools.state(1) / "raft" / "meta").read_bytes() == before


def test_a_log_without_meta_is_not_started_over(tools):
    tools.make_certs(1)
    tools.member("init", 1)
    opened = open_directory(tools.state(1), 1, GROUP, Files(), schema=1)
    opened.log.write(None, 1, [])
    from spur_ctld.replication.types import Entry, HardState

    opened.log.write(HardState(1, 1), 1, [Entry(1, 1, None)])
    opened.log.close()
    opened.lock.release()
    (tools.state(1) / "raft" / "meta").unlink()
    done = tools.member("init", 1)
    assert done.code == 1
    assert "raft/meta: missing, but the directory holds a log" in done.err[0]


def test_a_member_of_a_group_does_not_make_its_directory_by_starting(tools):
    with pytest.raises(StateError) as caught:
        opening(tools, 1)
    assert str(caught.value) == (
        f"{tools.state(1)}/raft: is empty; run `spurctld raft init` for a new cluster, "
        "`spurctld raft seed` for a lost directory"
    )
    tools.make_certs(1)
    assert tools.member("init", 1).code == 0, "what the refused start left is no obstacle"


def test_init_needs_the_certificates(tools):
    done = tools.member("init", 1)
    assert (done.code, len(done.err)) == (1, 1)
    assert f"{tools.state(1)}/tls/ca.pem: No such file or directory" in done.err[0]
    assert "gen-certs" in done.err[0]


def test_another_groups_certificates_are_noticed(tools):
    tools.make_certs(1)
    tools.member("init", 1)
    with pytest.raises(StateError, match=r"belongs to cluster .*, the group's CA says ffff"):
        opening(tools, 1, "f" * 32)
    opening(tools, 1)


def test_a_single_controller_needs_none_of_it(tools):
    tools.group("")
    done = tools.run("gen-certs", "--config", str(tools.config), "--out", str(tools.folder / "c"))
    assert done.code == 1
    assert "a single controller needs no certificates" in done.err[0]
    assert not (tools.folder / "c").exists()
    assert tools.member("init", 1).code == 0
    with pytest.raises(StateError, match=r"another list of controllers.*raft reconfigure"):
        opening(tools, 1)


def test_more_members_get_certificates_of_the_same_ca(tools):
    tools.make_certs()
    out = tools.folder / "certs"
    words = ("gen-certs", "--config", str(tools.config), "--out", str(out))
    done = tools.run(*words)
    assert done.code == 1
    assert "every controller has a certificate already" in done.err[0]
    before = cluster_id(out / "ca.pem")
    tools.group('peers = ["a:1", "b:1", "c:1", "d:1", "e:1"]\n')
    assert [line.partition(":")[0] for line in tools.run(*words).out] == [
        f"{out}/member-4",
        f"{out}/member-5",
    ]
    assert cluster_id(out / "member-5" / "ca.pem") == before


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "the following arguments are required: TOOL"),
        (("frob",), "invalid choice: 'frob'"),
        (("init", "--frob"), "unrecognized arguments: --frob"),
        (("gen-certs",), "the following arguments are required: --out"),
        (("init", "--config", "/nonexistent"), "/nonexistent: no such file"),
        (("inspect", "--state-dir", "/nonexistent"), "/nonexistent/raft: no such directory"),
    ],
)
def test_mistakes_are_one_line(tools, words, text):
    done = tools.run(*words)
    assert (done.code, len(done.err), done.out) == (1, 1, [])
    assert text in done.err[0]


@pytest.mark.root
@pytest.mark.parametrize("tool", ["init", "seed", "reconfigure"])
def test_root_leaves_nothing_in_another_users_directory(tools, tool):
    tools.make_certs(1)
    if tool == "reconfigure":
        assert tools.member("init", 1).code == 0
    os.chown(tools.state(1), 65534, -1)
    before = sorted(tools.folder.rglob("*"))
    done = tools.member(tool, 1)
    assert (done.code, len(done.err), done.out) == (1, 1, [])
    assert f"{tools.state(1)}: belongs to uid 65534" in done.err[0]
    assert sorted(tools.folder.rglob("*")) == before


@pytest.mark.parametrize("harm", ["a file for the state", "a file for raft", "a directory for meta"])
@pytest.mark.parametrize("tool", ["init", "seed", "reconfigure", "inspect"])
def test_what_is_no_directory_is_named_and_stays(tools, tool, harm):
    tools.make_certs(1)
    state = tools.state(1)
    if harm == "a file for the state":
        (state / "tls").rename(tools.folder / "tls")
        state.rmdir()
        state.write_text("mine")
    elif harm == "a file for raft":
        (state / "raft").write_text("mine")
    else:
        (state / "raft" / "meta").mkdir(parents=True)
    before = sorted(tools.folder.rglob("*"))
    done = tools.inspect(1) if tool == "inspect" else tools.member(tool, 1)
    assert (done.code, len(done.err)) == (1, 1)
    assert str(state) in done.err[0] or tool == "seed"
    assert sorted(tools.folder.rglob("*")) == before


def test_this_hosts_place_must_be_known(tools):
    done = tools.run("init", "--config", str(tools.config), "--state-dir", str(tools.state(1)))
    assert done.code == 1
    assert "set [controller] node_id to the position of this controller, 1 to 3" in done.err[0]
    done = tools.member("init", 4)
    assert "--node-id 4: must be the position of this controller in [controller] peers, 1 to 3" in done.err[0]
