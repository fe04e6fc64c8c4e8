"""What a command must not import before it needs it, and the launch scripts."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from spur_cli import dispatch
from spur_cli.spur import VERBS

PACKAGE = Path(__file__).parent.parent
SCRIPTS = PACKAGE / "scripts"
HEAVY = (
    "grpc",
    "google.protobuf",
    "spur_proto",
    "asyncio",
    "click",
    "dataclasses",
    "jwt",
    "cryptography",
    "tomllib",
)
NAMES = [*dispatch.SLURM_NAMES, "spur"]


def modules_after(name, words, env=None):
    code = (
        "import sys; from spur_cli import dispatch;"
        f"rc = dispatch.run({name!r}, {words!r}, {env or {}!r}, '/', 0, 1, 2);"
        "print('\\n'.join(['MODULES', *sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.partition("MODULES\n")[2].split())


@pytest.mark.parametrize("name", [n for n in dispatch.COMMANDS if n != "spur"])
@pytest.mark.parametrize("words", [["--help"], ["--usage"], ["-V"], ["--bogus"]])
def test_nothing_heavy_for_words_alone(name, words):
    loaded = modules_after(name, words)
    assert not [heavy for heavy in HEAVY if heavy in loaded]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sbatch", ["-t", "x", "--wrap", "true"]),
        ("sbatch", ["/nowhere.sh"]),
        ("srun", ["--mem=x", "true"]),
        ("squeue", ["-o", "x", "-O", "y"]),
        ("squeue", ["-j", "bogus"]),
        ("sinfo", ["-t", "bogus"]),
        ("sacct", ["-o", "bogus"]),
        ("sacct", ["--helpformat"]),
        ("scancel", ["bogus"]),
        ("scontrol", ["show", "hostnames", "n[1-4]"]),
        ("scontrol", ["version"]),
        ("spur", ["help"]),
        ("salloc", ["-t", "x"]),
    ],
)
def test_nothing_heavy_before_the_first_call(name, words):
    loaded = modules_after(name, words)
    assert not [heavy for heavy in HEAVY if heavy in loaded]


def test_the_slurm_names_are_scripts_of_the_wheel():
    scripts = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    listed = scripts["shared-scripts"]
    assert set(listed.values()) == set(NAMES)
    for source, name in listed.items():
        path = PACKAGE / source
        assert os.access(path, os.X_OK)
        assert f'main("{name}", sys.argv[1:])' in path.read_text()


def test_scripts_differ_in_the_name_alone():
    texts = {re.sub(r'main\("\w+"', "main(NAME", path.read_text()) for path in SCRIPTS.iterdir()}
    assert len(texts) == 1


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder like an environment's bin, with this interpreter and this environment's packages."""
    root = tmp_path_factory.mktemp("env")
    (root / "bin").mkdir()
    (root / "bin/python").symlink_to(sys.executable)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (root / "lib" / version).mkdir(parents=True)
    (root / "lib" / version / "site-packages").symlink_to(sysconfig.get_path("purelib"))
    for path in SCRIPTS.iterdir():
        shutil.copy2(path, root / "bin" / path.name)
    return root


@pytest.mark.parametrize("name", [n for n in dispatch.COMMANDS if n != "spur"])
def test_scripts_run(installed, name):
    done = subprocess.run([installed / "bin" / name, "-V"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "slurm 25.11.0\n", "")


def test_scripts_run_through_a_link_and_by_name(installed, tmp_path):
    (tmp_path / "squeue").symlink_to(installed / "bin/squeue")
    for env in ({"PATH": "/usr/bin:/bin"}, {"PATH": f"{tmp_path}:/usr/bin:/bin"}):
        word = str(tmp_path / "squeue") if str(tmp_path) not in env["PATH"] else "squeue"
        done = subprocess.run(
            ["sh", "-c", f"{word} -V"], env=env, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("slurm 25.11.0\n", "")


def test_a_reader_that_goes_away_ends_the_command_silently(installed):
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [installed / "bin/sacct", "--helpformat"], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert done.returncode == -13
    assert done.stderr == b""


@pytest.mark.parametrize("name", dispatch.LATER)
def test_later_commands_say_so(cli, name):
    refused = cli(name, "x")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"{name}: error: not available in this release (")
    assert refused.err.count("\n") == 1
    for word in ("-V", "--version"):
        assert cli(name, word) == (0, "slurm 25.11.0\n", "")


def test_the_version_of_sacctmgr_needs_no_accounting(cli):
    assert cli("sacctmgr", "version") == (0, "slurm 25.11.0\n", "")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_verbs_are_their_commands(cli, verb):
    name = VERBS[verb]
    if name in dispatch.LATER:
        assert cli("spur", verb).err.startswith(f"{name}: error: not available in this release (")
    elif verb != "show":
        assert cli("spur", verb, "-V") == (0, "slurm 25.11.0\n", "")
    assert cli("spur", "show", "hostnames", "a[1-2]").out == "a1\na2\n"


def test_spur_itself(cli):
    from spur_cli import __version__

    assert cli("spur").code == 1
    assert cli("spur").out == ""
    assert cli("spur").err.startswith("Usage: spur")
    assert cli("spur", "help").out.startswith("Usage: spur")
    assert cli("spur", "-V") == (0, f"spur {__version__}\n", "")
    assert cli("spur", "squeue", "-V").out == "slurm 25.11.0\n"
    bad = cli("spur", "frobnicate")
    assert bad.code == 1
    assert bad.err.startswith("spur: unknown command 'frobnicate'\n\nUsage: spur")
    assert cli("spur", "k8s").err == "spur k8s: not supported by this release\n"


def test_an_internal_error_is_one_line(cli, monkeypatch):
    from spur_cli.queue import squeue

    def broken(ctx):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr(squeue, "run", broken)
    result = cli("squeue")
    assert result.code == 1
    assert result.err == (
        "squeue: error: internal error: ZeroDivisionError: by design (SPUR_TRACEBACK=1 shows where)\n"
    )
    assert "Traceback" in cli("squeue", env={"SPUR_TRACEBACK": "1"}).err
