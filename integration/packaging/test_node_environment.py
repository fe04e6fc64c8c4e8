"""An empty compute node: `pip install spur-agent` brings what a node needs and no control plane."""

import re

import pytest

#: No node may have these: SQL, REST, scheduler, controller, command line.
CONTROL_PLANE = (
    "sqlalchemy",
    "alembic",
    "asyncpg",
    "aiosqlite",
    "litestar",
    "uvicorn",
    "numpy",
    "msgspec",
    "prometheus_client",
    "click",
    "spur_ctld",
    "spur_sched",
    "spur_cli",
)


@pytest.fixture(scope="module")
def node(environment):
    return environment("spur-agent")


@pytest.mark.slow
def test_the_daemon_and_its_supervisor_run(node):
    for program in ("spurd", "spurstepd"):
        said = node.run(node.program(program), "--version").stdout
        assert re.fullmatch(rf"{program} \d+\.\d+\.\d+\n", said)


@pytest.mark.slow
def test_nothing_of_the_control_plane(node):
    assert node.can_import(*CONTROL_PLANE) == set()
    ours = {name for name in node.distributions() if name.startswith("spur-")}
    assert ours == {"spur-agent", "spur-auth", "spur-core", "spur-proto", "spur-proto-lite", "spur-stepd"}


@pytest.mark.slow
def test_a_bad_configuration_is_one_line(node, tmp_path):
    config = tmp_path / "spur.conf"
    config.write_text("nonsense_key = 1\n")
    done = node.run(node.program("spurd"), "-D", "--config", config, "--state-dir", tmp_path, check=False)
    assert done.returncode != 0
    assert "nonsense_key" in done.stderr
    assert "Traceback" not in done.stderr
