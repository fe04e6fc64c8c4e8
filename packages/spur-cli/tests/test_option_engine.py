"""GNU getopt_long's rules, row by row of the specification's table."""

import pytest

from spur_cli.options import submit_table
from spur_cli.options.engine import (
    FLAG,
    OPTIONAL,
    REQUIRED,
    Option,
    Table,
    UsageError,
    from_environment,
    help_text,
    parse,
    usage_text,
)

OPTIONS = [
    Option("noheader", "h", FLAG),
    Option("format", "o", REQUIRED, env=("X_FORMAT", "X_OLD_FORMAT")),
    Option("Format", "O", REQUIRED),
    Option("user", "u", REQUIRED),
    Option("immediate", "I", OPTIONAL, env=("X_IMMEDIATE",)),
    Option("hold", "H", FLAG, env=("X_HOLD",)),
    Option("ntasks", "n", REQUIRED),
    Option("ntasks-per-node", "", REQUIRED),
    Option("verbose", "v", FLAG),
    Option("later", "L", REQUIRED, refuse="*", env=("X_LATER",)),
    Option("mpi", "", REQUIRED, refuse="none"),
    Option("exclusive", "", OPTIONAL, refuse=" no"),
]
TABLE = Table(OPTIONS, synonyms={"users": "user"})
IN_ORDER = Table(OPTIONS, in_order=True)


@pytest.mark.parametrize(
    ("words", "values", "operands"),
    [
        (["-h", "12"], {"noheader": None}, ["12"]),
        (["12", "-h"], {"noheader": None}, ["12"]),
        (["--format=%i"], {"format": "%i"}, []),
        (["--format", "%i"], {"format": "%i"}, []),
        (["--format="], {"format": ""}, []),
        (["-o%i"], {"format": "%i"}, []),
        (["-o", "%i"], {"format": "%i"}, []),
        (["-ho", "%i"], {"noheader": None, "format": "%i"}, []),
        (["-hHo%i"], {"noheader": None, "hold": None, "format": "%i"}, []),
        (["--noh"], {"noheader": None}, []),
        (["--form", "x"], {"format": "x"}, []),
        (["--Form", "x"], {"Format": "x"}, []),
        (["--ntasks", "2"], {"ntasks": "2"}, []),
        (["--ntasks-p=2"], {"ntasks-per-node": "2"}, []),
        (["--users=a"], {"user": "a"}, []),
        (["--use=a"], {"user": "a"}, []),
        (["-I", "30"], {"immediate": None}, ["30"]),
        (["-I30"], {"immediate": "30"}, []),
        (["--immediate", "30"], {"immediate": None}, ["30"]),
        (["--immediate=30"], {"immediate": "30"}, []),
        (["-n1", "-n2"], {"ntasks": "2"}, []),
        (["-o", "-x"], {"format": "-x"}, []),
        (["-u", "--", "x"], {"user": "--"}, ["x"]),
        (["-h", "--", "-o", "x"], {"noheader": None}, ["-o", "x"]),
        (["-", "-h"], {"noheader": None}, ["-"]),
        (["--mpi=none"], {"mpi": "none"}, []),
        (["--exclusive"], {"exclusive": None}, []),
    ],
)
def test_words(words, values, operands):
    found = parse(TABLE, words)
    assert found.values == values
    assert found.operands == operands


def test_stops_at_the_first_operand():
    """Everything behind the script's name is the script's."""
    found = parse(IN_ORDER, ["-h", "a.sh", "-o", "x", "--", "-h"])
    assert found.values == {"noheader": None}
    assert found.operands == ["a.sh", "-o", "x", "--", "-h"]
    assert parse(IN_ORDER, ["-h", "--", "prog", "-x"]).operands == ["prog", "-x"]


@pytest.mark.parametrize(
    ("words", "text", "hint"),
    [
        (["--bogus"], "unrecognized option '--bogus'", True),
        (["--bogus=3"], "unrecognized option '--bogus'", True),
        (["-Z"], "invalid option -- 'Z'", True),
        (["-hZ"], "invalid option -- 'Z'", True),
        (["-o"], "option requires an argument -- 'o'", True),
        (["--format"], "option '--format' requires an argument", True),
        (["--hold=1"], "option '--hold' doesn't allow an argument", True),
        (["--no"], None, None),
        (["--nt", "1"], "option '--nt' is ambiguous; possibilities: '--ntasks' '--ntasks-per-node'", True),
        (["--FORMAT=x"], "unrecognized option '--FORMAT'", True),
        (["--later=1"], "--later is not supported by this release", False),
        (["-L1"], "--later is not supported by this release", False),
        (["--mpi=pmix"], "--mpi=pmix is not supported by this release", False),
        (["--exclusive=user"], "--exclusive=user is not supported by this release", False),
    ],
)
def test_errors(words, text, hint):
    if text is None:
        assert parse(TABLE, words).has("noheader")
        return
    with pytest.raises(UsageError) as caught:
        parse(TABLE, words)
    assert (caught.value.text, caught.value.hint) == (text, hint)


def test_every_value_is_kept_for_lists_that_add_up():
    found = parse(TABLE, ["-u", "a,b", "--user=c", "-vv"])
    assert found.every("user") == ["a,b", "c"]
    assert found.get("user") == "c"
    assert found.count("verbose") == 2


@pytest.mark.parametrize(
    ("env", "values"),
    [
        ({}, {}),
        ({"X_FORMAT": "%i"}, {"format": "%i"}),
        ({"X_OLD_FORMAT": "old", "X_FORMAT": "new"}, {"format": "new"}),
        ({"X_HOLD": ""}, {"hold": None}),
        ({"X_HOLD": "yes"}, {"hold": None}),
        ({"X_HOLD": "3"}, {"hold": None}),
        ({"X_HOLD": "0"}, {}),
        ({"X_IMMEDIATE": ""}, {"immediate": None}),
        ({"X_IMMEDIATE": "5"}, {"immediate": "5"}),
    ],
)
def test_variables(env, values):
    assert from_environment(TABLE, env) == values


def test_a_variable_for_what_is_not_served_is_refused_by_both_names():
    with pytest.raises(UsageError, match=r"X_LATER \(--later\) is not supported"):
        from_environment(TABLE, {"X_LATER": "1"})


def test_help_lists_what_acts_and_nothing_else():
    text = help_text("prog", TABLE)
    assert "--format=VALUE" in text
    assert "later" not in text
    assert "later" not in usage_text("prog", TABLE)


@pytest.mark.parametrize("letter", ["B", "R", "A"])
def test_submit_tables_are_consistent(letter):
    """No letter or name twice, and whatever is accepted without an effect says why."""
    table = submit_table.table(letter)
    names = [option.name for option in table.options]
    letters = "".join(option.short for option in table.options)
    assert len(set(names)) == len(names)
    assert len(set(letters)) == len(letters)
    assert {row[0] for row in submit_table.ROWS} & {
        w.split(":")[0] for w in submit_table.REFUSED.split()
    } <= {"overcommit"}
    for option in table.options:
        assert option.help or option.idle or option.refuse, option.name


def test_sbatch_does_not_take_the_enclosing_jobs_shape():
    names = {variable for option in submit_table.table("B").options for variable in option.env}
    assert not names & {"SLURM_JOB_NAME", "SLURM_NTASKS", "SLURM_NODELIST", "SPUR_JOB_NAME", "SPUR_NODELIST"}
    assert {"SBATCH_ACCOUNT", "SBATCH_TIMELIMIT", "SBATCH_ARRAY_INX", "SBATCH_WAIT"} <= names
