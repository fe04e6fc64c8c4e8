"""The same command lines for Debian's C clients (22.05) and for ours, where no controller is asked.

What differs is a row of its own, with our answer and the reason.  A row that no longer differs is a failure.
"""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import debian_slurm

OURS = Path(sys.executable).parent

HOST_LISTS = (
    """
n[01-03,7]|n[08-11]|n[1-2]-[3-4]|rack[0-1]node[0-1]|a,b,a|n[1,1]|n1 n2|10.0.0.[1-2]|n1|n1,n2,n3,n5|n3,n1,n2
n9,n10,n11|n09,n10|n01,n1|n9,n010,n011|a1b,a2b|r0n0,r0n1,r1n0,r1n1|n1,m1,n2|n[1-2],,n3|,n1|n001,n002,n0003|x
n[0-9],n[10-12]|n[1-2,2-3]|n 1|n[1-3],n[2-5]|host-1,host-2|n1-ib,n2-ib|1,2,3|[1-3]|n[009-011]|n[1-5,7,9-10]
b1,a1,b2,a2|n[1,3-4,2]|n099,n100,n101
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

#: Fail before a controller is asked, with the same text, stream and exit code.
REFUSED = [
    *(["sbatch", f"--time={t}", "--wrap", "true"] for t in ("x", "5.5", "", "1:2:3:4", "abc", "1-x")),
    *(["srun", "-t", t, "true"] for t in ("x", "1:2:3:4")),
    *(["salloc", "-t", t, "true"] for t in ("x", "1:2:3:4")),
    *(["sbatch", f"--time-min={t}", "--wrap", "true"] for t in ("x", "1:2:3:4")),
    *(["sbatch", o, "--wrap", "true"] for o in ("-N4-2", "--mem=x", "--mem=1.5G", "--mem-per-cpu=x")),
    *(["sbatch", o, "--wrap", "true"] for o in ("--tmp=x", "--begin=nonsense", "--deadline=nonsense")),
    *(["sbatch", o, "--wrap", "true"] for o in ("--distribution=nope", "--open-mode=x", "--bogus", "-Z")),
    *(["sbatch", o, "--wrap", "true"] for o in ("--no", "--requeue=1", "--hold=1", "--quiet=1")),
    *(["sbatch", o] for o in ("--wrap", "--nodelist", "-n", "--array", "-B")),
    ["sbatch", "/nonexistent/script"],
    *([c, o] for c in ("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel") for o in ("--bogus", "-!")),
    *([c, "--bogus"] for c in ("scontrol", "sprio", "sdiag", "sattach")),
    ["squeue", "--us"],
    *(["scontrol", "show", form, h] for form in ("hostlist", "hostlistsorted") for h in ("n[1-3]x",)),
    ["squeue", "-o"],
    ["squeue", "--noh=1"],
]


class Differs(NamedTuple):
    """A row in which we do not answer as 22.05 does: our answer, and why."""

    argv: list[str]
    status: int
    stderr: str
    why: str
    stdout: str = ""


SORTED_IS_A_SET = "the sorted form names each host once, as NodeList fields do"
EXIT_OF_NUMBERS = "every mistake in a value ends sbatch with 255; 22.05 has 1 for whole numbers"
RANGE_TEXT = "22.05 names a function of its source and goes on with status 0 for `hostnames`"
OPEN_BRACKET = "22.05 takes an open bracket for a part of the name"
VERSION_TEXT = "Debian's package says slurm-wlm; launchers ask for `slurm MAJOR.MINOR`"

BROKEN_RANGE = "scontrol: error: Invalid range: {}\nInvalid hostlist: n[{}]\n"
NAMES = ("--ntasks", "--cpus-per-task", "--ntasks-per-node", "--mincpus", "--threads-per-core")
DIFFERENT = [
    *(
        Differs(["scontrol", "show", form, f"n[{text}]"], 1, BROKEN_RANGE.format(text, text), RANGE_TEXT)
        for form in ("hostnames", "hostlist", "hostlistsorted")
        for text in ("3-1", "a-b", "-1", "1-")
    ),
    *(
        Differs(["scontrol", "show", form, text], 1, f"Invalid hostlist: {text}\n", OPEN_BRACKET)
        for form in ("hostnames", "hostlist")
        for text in ("n[1-3", "n1]")
    ),
    Differs(["scontrol", "show", "hostnames", "n[1-3]x"], 1, "Invalid hostlist: n[1-3]x\n", RANGE_TEXT),
    Differs(["scontrol", "show", "hostlistsorted", "n[1,1,2]"], 0, "", SORTED_IS_A_SET, "n[1-2]\n"),
    Differs(["scontrol", "show", "hostlistsorted", "a,b,a"], 0, "", SORTED_IS_A_SET, "a,b\n"),
    *(
        Differs([c, "--version"], 0, "", VERSION_TEXT, "slurm 25.11.0\n")
        for c in ("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel", "sacct", "scontrol", "sdiag")
    ),
    Differs(["scontrol", "version"], 0, "", VERSION_TEXT, "slurm 25.11.0\n"),
    Differs(["squeue", "--vers"], 0, "", VERSION_TEXT, "slurm 25.11.0\n"),
    *(
        Differs(
            ["sbatch", f"{name}={value}", "--wrap", "true"],
            255,
            f'sbatch: error: Invalid numeric value "{value}" for {name}.\n',
            EXIT_OF_NUMBERS,
        )
        for name in NAMES
        for value in ("0", "x")
        if (name, value) not in {("--mincpus", "0"), ("--threads-per-core", "0")}
    ),
    Differs(
        ["sbatch", "-Nx", "--wrap", "true"],
        255,
        'sbatch: error: invalid number of nodes (-N "x")\n',
        "as later versions say it",
    ),
]


class Answer(NamedTuple):
    """What a command line came to."""

    status: int
    stdout: str
    stderr: str


def answers(argv: list[str], root: Path) -> tuple[Answer, Answer]:
    """Of 22.05 and of us."""
    ours = {"PATH": f"{OURS}:/usr/bin:/bin", "HOME": "/", "SPUR_CONF": "/nonexistent/spur.conf"}
    programs = (root / "usr/bin" / argv[0], debian_slurm.environment(root)), (OURS / argv[0], ours)
    both = [
        subprocess.run(
            argv,
            executable=program,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for program, env in programs
    ]
    theirs, mine = (Answer(done.returncode, done.stdout, done.stderr) for done in both)
    return theirs, mine


@pytest.fixture(scope="module")
def debian() -> Path:
    """The C clients."""
    root = debian_slurm.unpacked()
    theirs, _ = answers(["sbatch", "--version"], root)
    assert theirs.stdout.startswith("slurm-wlm 22.05."), f"the tables are those of 22.05, this is {theirs}"
    return root


def differences(rows: list[list[str]], root: Path) -> list[tuple[list[str], Answer, Answer]]:
    """The rows in which we answer otherwise."""
    found = [(argv, *answers(argv, root)) for argv in rows]
    return [row for row in found if row[1] != row[2]]


@pytest.mark.parametrize("verb", ["hostnames", "hostlist", "hostlistsorted"])
def test_host_lists_are_written_and_read_alike(verb: str, debian: Path) -> None:
    twice = {"a,b,a", "n[1,1]", "n[1-2,2-3]", "n[1-3],n[2-5]", "n[01-03,7]"}
    lists = [h for h in HOST_LISTS if verb != "hostlistsorted" or h not in twice]
    assert not differences([["scontrol", "show", verb, h] for h in lists], debian)


def test_command_lines_are_refused_alike(debian: Path) -> None:
    assert not differences(REFUSED, debian)


def test_help_and_usage_leave_with_the_same_status(debian: Path) -> None:
    commands = (
        "sbatch",
        "srun",
        "salloc",
        "squeue",
        "sinfo",
        "scancel",
        "scontrol",
        "sprio",
        "sdiag",
        "sattach",
    )
    for command in commands:
        for option in ("--usage", "--help"):
            theirs, ours = answers([command, option], debian)
            assert (ours.status, ours.stderr, bool(ours.stdout)) == (theirs.status, theirs.stderr, True), (
                command
            )


@pytest.mark.parametrize("row", DIFFERENT, ids=lambda row: " ".join(row.argv))
def test_a_known_difference_is_still_one(row: Differs, debian: Path) -> None:
    theirs, ours = answers(row.argv, debian)
    assert ours == Answer(row.status, row.stdout, row.stderr), row.why
    assert ours != theirs, f"no difference any more: {row.why}"
