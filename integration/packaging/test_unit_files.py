"""The units in deploy/systemd parse, and keep the promises that running work depends on."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
NAMES = ["spurd.service", "spurctld.service"]


def parse(name: str) -> dict[str, dict[str, list[str]]]:
    """Section -> key -> values; comments and blank lines dropped, anything else is an error."""
    found: dict[str, dict[str, list[str]]] = {}
    section = None
    for line in (UNITS / name).read_text().splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = found.setdefault(heading[1], {})
            continue
        setting = re.fullmatch(r"([A-Za-z]+)=(.*)", line)
        assert setting, f"{name}: {line}"
        assert section is not None
        section.setdefault(setting[1], []).append(setting[2])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_service(name):
    unit = parse(name)
    service = unit["Service"]
    program = name.removesuffix(".service")
    assert set(unit) == {"Unit", "Service", "Install"}
    assert all(len(values) == 1 for section in unit.values() for values in section.values())
    (start,) = service["ExecStart"]
    assert start.split()[0].endswith(f"/{program}")
    assert "--config /etc/spur/spur.conf" in start
    assert "--state-dir /var/lib/spur/" in start
    assert service["Type"] == ["notify"]
    assert service["Restart"] == ["on-failure"]
    assert service["RestartSec"] == ["3"]
    assert service["LimitNOFILE"] == ["65536"]
    assert "network-online.target" in unit["Unit"]["After"][0]
    assert unit["Unit"]["Wants"] == ["network-online.target"]


def test_v25_stopping_the_agent_leaves_jobs_alone():
    service = parse("spurd.service")["Service"]
    assert service["KillMode"] == ["process"]
    assert service["Delegate"] == ["yes"]
    assert service["User"] == ["root"]


def test_jobs_inherit_no_sandbox():
    """Whatever confines the agent confines every job below it."""
    confining = re.compile(
        r"Protect|Private|Restrict|SystemCall|NoNewPriv|Capability|MemoryDeny|OOMScore|Nice|UMask"
    )
    assert not [key for key in parse("spurd.service")["Service"] if confining.match(key)]


def test_the_controller_needs_no_privilege():
    service = parse("spurctld.service")["Service"]
    assert service["User"] == ["spur"]
    assert service["CapabilityBoundingSet"] == [""]
    assert "u spur " in (UNITS / "spur.sysusers.conf").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_accepts_it(name, tmp_path):
    """Unknown keys and values are warnings of systemd's: none is allowed."""
    text = (UNITS / name).read_text()
    copy = tmp_path / name
    # The programs are not installed on this machine, and the controller's user does not exist on it.
    copy.write_text(re.sub(r"/opt/spur/bin/\w+", "/bin/true", text).replace("=spur\n", "=root\n"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if name in line]
    assert not complaints
