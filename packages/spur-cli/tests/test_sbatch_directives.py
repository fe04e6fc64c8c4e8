"""`#SBATCH` lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_cli.options import directives


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#SBATCH -N 2", ["-N", "2"]),
        ("#SBATCH\t--time=5  -n 3", ["--time=5", "-n", "3"]),
        ("#SBATCH --comment='a b' -J \"c d\"", ["--comment=a b", "-J", "c d"]),
        ("#SBATCH --comment=a\\ b", ["--comment=a b"]),
        ('#SBATCH --comment="say \\"hi\\""', ['--comment=say "hi"']),
        ("#SBATCH --comment='a\\b'", ["--comment=a\\b"]),
        ("#SBATCH -N 2 # two nodes", ["-N", "2"]),
        ("#SBATCH -J a'#'b", ["-J", "a#b"]),
        ("#SBATCH --comment=''", ["--comment="]),
        ("#SBATCH -N 2\r", ["-N", "2"]),
    ],
)
def test_words(line, words):
    assert directives.read(f"#!/bin/sh\n{line}\n", "a.sh").words == [words]


@pytest.mark.parametrize(
    "line",
    [
        " #SBATCH -N 2",
        "##SBATCH -N 2",
        "# SBATCH -N 2",
        "#SBATCHES",
        "#SBATCH",
        "#sbatch -N 2",
        "#SBATCH # x",
    ],
)
def test_comments(line):
    assert directives.read(f"#!/bin/sh\n{line}\n", "a.sh").words == []


def test_stops_at_the_first_command():
    script = "#!/bin/sh\n\n# note\n#SBATCH -N 2\n  \n#SBATCH -n 4\ntrue\n#SBATCH -t 5\n"
    assert directives.read(script, "a.sh").words == [["-N", "2"], ["-n", "4"]]


def test_unmatched_quote_names_line_and_text():
    with pytest.raises(directives.DirectiveError) as caught:
        directives.read("#!/bin/sh\n#SBATCH -J 'oops\n", "a.sh")
    assert caught.value.text == "a.sh: line 2: Unmatched `'` in [-J 'oops]"


def test_old_and_foreign_marks():
    found = directives.read("#!/bin/sh\n#SLURM -N 2\n#PBS -l nodes=1\n", "a.sh")
    assert found.old == [2]
    assert found.words == [["-N", "2"]]
    assert found.foreign == "#PBS"


@given(st.lists(st.text(alphabet="ab '\"\\#=-\t", min_size=1), min_size=1, max_size=5))
def test_quoting_round_trip(words):
    """What a shell would quote comes back as it was."""
    line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    assert directives.split(line, "f", 1) == words
