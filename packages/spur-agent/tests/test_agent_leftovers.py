"""What is deleted with a session: its script with all that lies beside it, an empty scratch directory."""

import os
from pathlib import Path

import pytest

from spur_agent import leftovers
from spur_core.ids import RuntimeId
from spur_proto_lite import paths
from spur_proto_lite.paths import StatePaths

pytestmark = pytest.mark.node

RID = RuntimeId(7, 2, 4294967291)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatePaths:
    """A state directory, with a temporary directory of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(leftovers, "TMP_DIR", str(tmp_path / "tmp"))
    found = StatePaths(str(tmp_path / "state"))
    Path(found.session(RID).dir).mkdir(parents=True)
    return found


@pytest.mark.parametrize("place", [0, 1], ids=["own spool", "spare spool"])
def test_a_script_directory_goes_with_what_the_job_has_put_there(state: StatePaths, place: int) -> None:
    scripts = leftovers.script_dirs(state, RID)
    elsewhere = Path(state.state_dir, "elsewhere")
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    folder = Path(scripts[place])
    folder.mkdir(parents=True)
    (folder / "slurm_script").touch()
    (folder / "below").mkdir()
    (folder / "link").symlink_to(elsewhere)
    leftovers.remove_session(state.session(RID).dir, scripts)
    assert not folder.exists()
    assert (elsewhere / "kept").exists()
    assert os.listdir(state.sessions) == []


def test_spare_directories_of_two_state_directories_are_apart() -> None:
    """Two clusters on one host may have the same identity at once."""
    one, two = (paths.spare_script_dir("/tmp", 0, f"/state{n}/spool", RID) for n in (1, 2))
    assert one != two
    assert one == paths.spare_script_dir("/tmp", 0, "/state1/spool", RID)
    assert Path(one).parent == Path(two).parent == Path(paths.spare_spool("/tmp", 0))


@pytest.mark.parametrize(("content", "left"), [((), []), (("result",), ["7.2"])])
def test_scratch_goes_when_it_is_empty(state: StatePaths, content: tuple[str, ...], left: list[str]) -> None:
    top, name = leftovers.scratch_of(1234, RID)
    Path(top, name).mkdir(parents=True)
    for file in content:
        Path(top, name, file).touch()
    leftovers.remove_session(state.session(RID).dir, (), None, (top, name))
    assert os.listdir(top) == left


def test_scratch_that_the_user_has_replaced_by_a_link_is_not_followed(state: StatePaths) -> None:
    victim = Path(state.state_dir, "victim")
    (victim / "7.2").mkdir(parents=True)
    top, name = leftovers.scratch_of(1234, RID)
    Path(top).symlink_to(victim)
    leftovers.remove_session(state.session(RID).dir, (), None, (top, name))
    assert (victim / "7.2").is_dir()


def test_a_half_deleted_session_is_deleted_to_the_end(state: StatePaths) -> None:
    """The crash came between the renaming and the rest; its script is still there."""
    session = Path(state.session(RID).dir)
    hidden = session.rename(session.with_name(f".gone-{session.name}"))
    (hidden / "journal").touch()
    gone = leftovers.half_deleted(hidden.name)
    assert gone == RID
    scripts = leftovers.script_dirs(state, RID)
    Path(scripts[0]).mkdir(parents=True)
    leftovers.remove_session(str(hidden), scripts)
    assert os.listdir(state.sessions) == os.listdir(state.spool) == []
    assert leftovers.half_deleted(session.name) is None
    assert leftovers.half_deleted(".gone-x") is None
