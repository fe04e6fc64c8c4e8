"""Counts and small words of the submit options."""

import signal

import pytest

from spur_core.errors import GrammarError
from spur_core.grammar import counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", (1, 1, ())),
        ("0", (0, 0, ())),
        ("2-4", (2, 4, ())),
        ("1k", (1024, 1024, ())),
        ("1K-2k", (1024, 2048, ())),
        ("1m", (1048576, 1048576, ())),
        ("2,4-8:2", (2, 8, ((2, 2, 1), (4, 8, 2)))),
        ("4-9:2", (4, 8, ((4, 8, 2),))),
        ("8,2", (2, 8, ((2, 2, 1), (8, 8, 1)))),
    ],
)
def test_node_counts(text, expected):
    """min[-max] with multipliers, and lists of allowed sizes."""
    assert counts.parse_node_sizes(text) == expected
    assert counts.parse_node_count(text) == expected[:2]


def test_max_below_min():
    """Slurm's sentence."""
    with pytest.raises(GrammarError, match=r"^Maximum node count 2 is less than minimum node count 4$"):
        counts.parse_node_count("4-2")


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1-", "1--2", "1.5", "1,", "1:2", "2-4:0", "2-4:", "1g", "9" * 5000, "٥", "k", "999999m"],
)
def test_bad_node_counts(text):
    """The value is named."""
    with pytest.raises(GrammarError) as caught:
        counts.parse_node_count(text)
    assert caught.value.text == f'invalid number of nodes (-N "{text}")'


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("007", 7), ("999999999", 999999999)])
def test_positive(text, number):
    """Plain digits."""
    assert counts.parse_positive(text, "--ntasks") == number


@pytest.mark.parametrize("text", ["0", "-1", "", "x", "1.0", "+1", "1k", "9" * 5000])
def test_not_positive(text):
    """Slurm's sentence names value and option."""
    with pytest.raises(GrammarError) as caught:
        counts.parse_positive(text, "--cpus-per-task")
    assert caught.value.text == f'Invalid numeric value "{text}" for --cpus-per-task.'


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("2", (2, None, None)),
        ("2:4", (2, 4, None)),
        ("2:4:1", (2, 4, 1)),
        ("*:4", (None, 4, None)),
        ("*:*:2", (None, None, 2)),
        ("*", (None, None, None)),
    ],
)
def test_shapes(text, shape):
    """-B with stars."""
    assert counts.parse_shape(text) == shape


@pytest.mark.parametrize("text", ["", "0", "x", "1:2:3:4", "1:", ":1", "1:0", "-1"])
def test_bad_shapes(text):
    """The value is named."""
    with pytest.raises(GrammarError, match=r"^invalid resource allocation -B `"):
        counts.parse_shape(text)


@pytest.mark.parametrize(
    ("text", "nice"),
    [
        (None, 100),
        ("", 100),
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("0", 0),
        ("2147483645", 2147483645),
        ("-2147483645", -2147483645),
    ],
)
def test_nice(text, nice):
    """Default 100, and Slurm's limits."""
    assert counts.parse_nice(text) == nice


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2147483646", "must be between -2147483645 and 2147483645"),
        ("-2147483646", "must be between"),
        ("x", 'Invalid numeric value "x" for --nice'),
        ("1_0", "Invalid numeric value"),
        (" 1", "Invalid numeric value"),
        ("-", "Invalid numeric value"),
    ],
)
def test_bad_nice(text, why):
    """Neither Python's spellings nor numbers out of range."""
    with pytest.raises(GrammarError, match=why):
        counts.parse_nice(text)


@pytest.mark.parametrize(
    ("text", "priority"), [("0", 0), ("100", 100), ("4294967293", 4294967293), ("TOP", "TOP"), ("top", "TOP")]
)
def test_priority(text, priority):
    """A number or TOP."""
    assert counts.parse_priority(text) == priority


@pytest.mark.parametrize("text", ["", "-1", "x", "4294967294", "1.5"])
def test_bad_priority(text):
    """The two highest numbers mean something else."""
    with pytest.raises(GrammarError, match=r"^Invalid --priority specification$"):
        counts.parse_priority(text)


@pytest.mark.parametrize("number", [int(s) for s in signal.Signals if s < 32])
def test_signal_names_are_those_of_the_system(number):
    """The table here agrees with the platform's, with and without SIG, in any case."""
    name = signal.Signals(number).name.removeprefix("SIG")
    assert counts.signal_name(number) == name
    for text in (name, f"SIG{name}", name.lower(), f"sig{name.lower()}", str(number)):
        assert counts.parse_signal(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("RTMIN", 34), ("64", 64), ("IOT", 6), ("POLL", 29), ("CLD", 17)]
)
def test_other_signal_names(text, number):
    """Aliases and real-time signals."""
    assert counts.parse_signal(text) == number


@pytest.mark.parametrize("text", ["", "0", "65", "-9", "SIG", "NOPE", "SIGSIGKILL", "9" * 5000, "SIG_DFL"])
def test_unknown_signals(text):
    """The value is named."""
    with pytest.raises(GrammarError, match=rf"^Unknown job signal: {text}$"):
        counts.parse_signal(text)


def test_a_signal_without_a_name_is_its_number():
    """Real-time signals have none here."""
    assert counts.signal_name(40) == "40"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("USR1", ("", 10, 60)),
        ("10@300", ("", 10, 300)),
        ("B:USR1@120", ("B", 10, 120)),
        ("b:SIGTERM", ("B", 15, 60)),
        ("R:INT@0", ("R", 2, 0)),
        ("RB:INT@65535", ("BR", 2, 65535)),
    ],
)
def test_warning_signals(text, expected):
    """[R|B:]sig[@seconds], 60 s unless given."""
    assert counts.parse_warn_signal(text) == expected


@pytest.mark.parametrize(
    "text", ["", "@5", "X:USR1", "USR1@", "USR1@x", "USR1@65536", "B:", "B:B:USR1", "USR1@-1"]
)
def test_bad_warning_signals(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid --signal specification$"):
        counts.parse_warn_signal(text)


@pytest.mark.parametrize(
    ("text", "word"), [(None, "node"), ("", "node"), ("user", "user"), ("MCS", "mcs"), ("topo", "topo")]
)
def test_exclusive(text, word):
    """Bare = whole nodes."""
    assert counts.parse_exclusive(text) == word


def test_bad_exclusive():
    """Anything else."""
    with pytest.raises(GrammarError, match=r"^Invalid --exclusive specification$"):
        counts.parse_exclusive("me")


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("NONE", []),
        ("END,FAIL", ["END", "FAIL"]),
        ("end, fail,end", ["END", "FAIL"]),
        ("ALL", ["BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE", "STAGE_OUT"]),
        ("ALL,TIME_LIMIT_80", [*counts.MAIL_ALL, "TIME_LIMIT_80"]),
        ("BEGIN,NONE", []),
        ("TIME_LIMIT,TIME_LIMIT_90,TIME_LIMIT_50,ARRAY_TASKS", None),
    ],
)
def test_mail_types(text, events):
    """ALL is what the manual lists; NONE takes everything back."""
    assert counts.parse_mail_type(text) == (text.split(",") if events is None else events)


@pytest.mark.parametrize("text", ["", "SOME", "END,", "END;FAIL"])
def test_bad_mail_types(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid --mail-type specification$"):
        counts.parse_mail_type(text)


@pytest.mark.parametrize(
    "text",
    [
        "block",
        "cyclic",
        "arbitrary",
        "*",
        "plane=4",
        "block:cyclic",
        "block:fcyclic:block",
        "*:block",
        "cyclic,Pack",
        "block,NoPack",
        "Block:Cyclic",
    ],
)
def test_distributions(text):
    """Three levels and packing."""
    assert counts.parse_distribution(text) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "plane",
        "plane=0",
        "plane=x",
        "block:x",
        "block:arbitrary",
        "block:block:block:block",
        "fcyclic",
        "block,x",
        "block,pack,nopack",
        "block:",
    ],
)
def test_bad_distributions(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid --distribution specification$"):
        counts.parse_distribution(text)


@pytest.mark.parametrize(("text", "mode"), [("append", "append"), ("TRUNCATE", "truncate"), ("a", "append")])
def test_open_modes(text, mode):
    """A prefix is enough."""
    assert counts.parse_open_mode(text) == mode


@pytest.mark.parametrize("text", ["", "x", "appendix"])
def test_bad_open_modes(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid --open-mode specification$"):
        counts.parse_open_mode(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1", (1, None)), ("2@5", (2, 300)), ("3@1:30:00", (3, 5400)), ("1@UNLIMITED", (1, None))],
)
def test_switches(text, found):
    """How few, and how long to wait for so few."""
    assert counts.parse_switches(text) == found


@pytest.mark.parametrize("text", ["", "0", "x", "-1", "@5", "1@", "1@x", "1.5"])
def test_bad_switches(text):
    with pytest.raises(GrammarError, match="--switches"):
        counts.parse_switches(text)
