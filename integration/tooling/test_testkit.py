"""The test kit itself: skips fail in CI, leftovers fail a session, PostgreSQL comes and goes."""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def inner(tmp_path):
    """inner(SOURCE, ci=...): run one test file in a session of its own, with the kit's plug-ins."""

    def run(source: str, *, ci: bool) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_inner.py").write_text(source)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    root: needs root\n")
        env = {k: v for k, v in os.environ.items() if k not in ("SPUR_TEST_SESSION", "CI", "SPUR_FAILED_TO")}
        env["SPUR_TEST_PATIENCE"] = "0.3"
        env |= {"PYTHONPATH": str(TOOLS), "CI": "true"} if ci else {"PYTHONPATH": str(TOOLS)}
        plugins = [word for name in ("skips", "leaks") for word in ("-p", f"testkit.{name}")]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "test_inner.py"]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return run


SKIP = "import pytest\n\n@pytest.mark.skip(reason='no such tool')\ndef test_it(): pass\n"
MODULE_SKIP = "import pytest\npytest.skip('no such tool', allow_module_level=True)\n"
FIXTURE_SKIP = (
    "import pytest\n\n@pytest.fixture\ndef tool(): pytest.skip('no such tool')\n\ndef test_it(tool): pass\n"
)


@pytest.mark.parametrize("source", [SKIP, FIXTURE_SKIP, MODULE_SKIP])
def test_a_skip_is_a_failure_in_ci(source, inner):
    done = inner(source, ci=True)
    assert done.returncode not in (0, 5), done.stdout
    assert "in CI nothing may be" in done.stdout
    assert "no such tool" in done.stdout


@pytest.mark.parametrize("source", [SKIP, FIXTURE_SKIP])
def test_a_skip_is_listed_elsewhere(source, inner):
    done = inner(source, ci=False)
    assert done.returncode == 0, done.stdout
    assert "not run here" in done.stdout
    assert "no such tool" in done.stdout


def test_an_expected_failure_is_no_skip(inner):
    done = inner("import pytest\n\n@pytest.mark.xfail\ndef test_it(): assert False\n", ci=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "how",
    [
        "subprocess.Popen(['sleep', '600'])",
        "subprocess.Popen(['sleep', '600'], start_new_session=True)",
        "subprocess.Popen(['sleep', '600'], env={}, cwd=tmp_path, start_new_session=True)",
        "subprocess.Popen(['sh', '-c', 'sleep 600; : ' + str(tmp_path)], env={}, cwd='/')",
    ],
)
def test_a_process_left_behind_fails_the_session(how, inner):
    """Children, daemons, and jobs with an environment of their own; named, then ended."""
    source = (
        "import subprocess\n\n"
        "def test_it(tmp_path):\n"
        f"    child = {how}\n"
        "    child.returncode = 0  # so that Popen's destructor says nothing\n"
    )
    done = inner(source, ci=False)
    assert done.returncode == 1, done.stdout
    assert "left behind" in done.stdout
    left = [int(pid) for pid in re.findall(r"^process (\d+): ", done.stdout, re.MULTILINE)]
    assert "sleep 600" in done.stdout
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in left if Path(f"/proc/{pid}").exists()]


def test_a_clean_session_passes(inner):
    done = inner("import subprocess\n\ndef test_it(): subprocess.run(['true'], check=True)\n", ci=True)
    assert done.returncode == 0, done.stdout


def test_postgres_answers(pg_url):
    assert asyncio.run(_select(pg_url)) == 1


def test_a_private_postgres_comes_and_goes(pg_private):
    assert not pg_private.running()
    pg_private.start()
    assert pg_private.running()
    assert asyncio.run(_select(pg_private.url)) == 1
    pg_private.stop()
    assert not pg_private.running()
    with pytest.raises(OSError):
        asyncio.run(_select(pg_private.url))
    pg_private.start()
    assert asyncio.run(_select(pg_private.url)) == 1


async def _select(url: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return await connection.fetchval("select 1")
    finally:
        await connection.close()
