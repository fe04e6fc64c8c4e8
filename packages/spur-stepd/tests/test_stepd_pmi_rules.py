"""The PMI exchange as bytes: what ranks send, what they are answered."""

import pytest

from spur_stepd import pmi

INIT_1 = b"cmd=init pmi_version=1 pmi_subversion=1\n"
INIT_2 = b"cmd=init pmi_version=2 pmi_subversion=0\n"
MAPPING = "(vector,(0,1,2))"


def framed(body: str) -> bytes:
    """As MPICH sends it: the length on the left, then blanks."""
    raw = body.encode()
    return f"{len(raw):<6}".encode() + raw


def body(reply: bytes) -> str:
    """The text of one answer of PMI-2, whose length is checked."""
    assert int(reply[:6]) == len(reply) - 6
    return reply[6:].decode()


def one(ranks: int = 1, version: int = 1) -> pmi.Exchange:
    """An exchange whose ranks have all begun."""
    found = pmi.Exchange(tuple(range(ranks)), "12.0")
    for rank in range(ranks):
        found.heard(rank, INIT_1 if version == 1 else INIT_2)
    return found


def test_a_rank_says_which_version_it_goes_on_with() -> None:
    exchange = pmi.Exchange((0, 1), "12.0")
    assert exchange.heard(0, INIT_1).replies == [
        (0, b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n")
    ]
    assert exchange.heard(1, INIT_2).replies == [
        (1, b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n")
    ]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("cmd=get_appnum", "cmd=appnum appnum=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=12.0"),
        ("cmd=get_universe_size", "cmd=universe_size size=2"),
        (
            "cmd=get kvsname=12.0 key=PMI_process_mapping",
            f"cmd=get_result rc=0 msg=success value={MAPPING}",
        ),
        ("cmd=get kvsname=12.0 key=other", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        ("cmd=put kvsname=12.0 key=a value=b c=d", "cmd=put_result rc=0 msg=success"),
        (f"cmd=put kvsname=12.0 key={'k' * 65} value=1", "cmd=put_result rc=-1 msg=key_is_too_long"),
        ("cmd=put kvsname=12.0 value=1", "cmd=put_result rc=-1 msg=no_key"),
        (f"cmd=put kvsname=12.0 key=k value={'v' * 1025}", "cmd=put_result rc=-1 msg=value_is_too_long"),
        ("cmd=finalize", "cmd=finalize_ack"),
        ("cmd=lookup_name service=x", "cmd=lookup_result rc=-1 info=fail msg=not_supported"),
        ("cmd=spawn nprocs=1", "cmd=spawn_result rc=-1 info=fail msg=not_supported"),
    ],
)
def test_pmi_1_answers(sent: str, answer: str) -> None:
    assert one(2).heard(0, f"{sent}\n".encode()).replies == [(0, f"{answer}\n".encode())]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (
            "cmd=fullinit;pmijobid=12.0;pmirank=1;threaded=FALSE;",
            "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;"
            "debugged=FALSE;pmiverbose=FALSE;",
        ),
        ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=12.0;"),
        (
            "cmd=info-getjobattr;key=PMI_process_mapping;",
            f"cmd=info-getjobattr-response;rc=0;found=TRUE;value={MAPPING};",
        ),
        (
            "cmd=info-getjobattr;key=universeSize;",
            "cmd=info-getjobattr-response;rc=0;found=TRUE;value=2;",
        ),
        ("cmd=info-getjobattr;key=x;", "cmd=info-getjobattr-response;rc=0;found=FALSE;"),
        ("cmd=info-getnodeattr;key=x;wait=FALSE;", "cmd=info-getnodeattr-response;rc=0;found=FALSE;"),
        ("cmd=kvs-put;key=a;value=b;;c;", "cmd=kvs-put-response;rc=0;"),
        ("cmd=kvs-put;key=;value=1;", "cmd=kvs-put-response;rc=1;errmsg=no_key;"),
        ("cmd=kvs-get;jobid=12.0;srcid=-1;key=a;", "cmd=kvs-get-response;rc=0;found=FALSE;"),
        (
            "cmd=kvs-get;jobid=13.0;srcid=-1;key=PMI_process_mapping;",
            "cmd=kvs-get-response;rc=0;found=FALSE;",
        ),
        ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
        ("cmd=spawn;thrid=7;ncmds=1;", "cmd=spawn-response;thrid=7;rc=1;errmsg=not supported;"),
    ],
)
def test_pmi_2_answers(sent: str, answer: str) -> None:
    replies = one(2, version=2).heard(1, framed(sent)).replies
    assert [(rank, body(raw)) for rank, raw in replies] == [(1, answer)]


def test_what_is_put_is_seen_after_the_barrier() -> None:
    exchange = one(2)
    exchange.heard(0, b"cmd=put kvsname=12.0 key=a value=x y\n")
    ask = b"cmd=get kvsname=12.0 key=a\n"
    assert b"key_not_found" in exchange.heard(1, ask).replies[0][1]
    assert exchange.heard(1, b"cmd=barrier_in\n").replies == []
    assert exchange.heard(0, b"cmd=barrier_in\n").replies == [
        (0, b"cmd=barrier_out\n"),
        (1, b"cmd=barrier_out\n"),
    ]
    assert exchange.heard(1, ask).replies == [(1, b"cmd=get_result rc=0 msg=success value=x y\n")]


def test_a_fence_joins_both_versions_and_texts_keep_their_semicolons() -> None:
    exchange = pmi.Exchange((0, 1), "12.0")
    exchange.heard(0, INIT_2)
    exchange.heard(1, INIT_1)
    exchange.heard(0, framed("cmd=kvs-put;key=a;value=1;;2;;;;3;"))
    exchange.heard(0, framed("cmd=kvs-fence;"))
    replies = exchange.heard(1, b"cmd=barrier_in\n").replies
    assert body(replies[0][1]) == "cmd=kvs-fence-response;rc=0;"
    assert replies[1] == (1, b"cmd=barrier_out\n")
    found = exchange.heard(1, b"cmd=get kvsname=12.0 key=a\n").replies
    assert found == [(1, b"cmd=get_result rc=0 msg=success value=1;2;;3\n")]
    again = exchange.heard(0, framed("cmd=kvs-get;jobid=12.0;srcid=-1;key=a;")).replies
    assert body(again[0][1]) == "cmd=kvs-get-response;rc=0;found=TRUE;value=1;;2;;;;3;"


def test_who_waits_for_a_fact_of_the_node_gets_it_with_his_own_thread() -> None:
    exchange = one(2, version=2)
    assert exchange.heard(0, framed("cmd=info-getnodeattr;thrid=5;key=shm;wait=TRUE;")).replies == []
    replies = exchange.heard(1, framed("cmd=info-putnodeattr;thrid=6;key=shm;value=/dev/shm/x;")).replies
    assert [(rank, body(raw)) for rank, raw in replies] == [
        (1, "cmd=info-putnodeattr-response;thrid=6;rc=0;"),
        (0, "cmd=info-getnodeattr-response;thrid=5;rc=0;found=TRUE;value=/dev/shm/x;"),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_messages_may_come_byte_by_byte(version: int) -> None:
    exchange = one(1, version)
    sent = b"cmd=finalize\n" if version == 1 else framed("cmd=finalize;")
    outcomes = [exchange.heard(0, bytes([byte])) for byte in sent]
    assert [len(outcome.replies) for outcome in outcomes] == [0] * (len(sent) - 1) + [1]


@pytest.mark.parametrize(
    ("version", "sent", "expected"),
    [
        (1, "cmd=abort exitcode=7\n", (7, "")),
        (1, "cmd=abort\n", (1, "")),
        (1, "cmd=abort exitcode=-9999999999999\n", (1, "")),
        (2, "cmd=abort;isworld=TRUE;msg=no; mem;", None),
        (2, "cmd=abort;isworld=TRUE;msg=no;; mem;", (1, "no; mem")),
    ],
)
def test_a_rank_calls_for_the_end(version: int, sent: str, expected: tuple[int, str] | None) -> None:
    exchange = one(1, version)
    data = sent.encode() if version == 1 else framed(sent)
    outcome = exchange.heard(0, data)
    assert (outcome.abort, bool(outcome.broken)) == (expected, expected is None)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, b"cmd=get_maxes\n"),
        (0, b"\n"),
        (1, INIT_1),
        (1, b"cmd=dance\n"),
        (1, b"nonsense\n"),
        (1, b"x" * (pmi.MAX_MESSAGE + 1)),
        (1, b"cmd=barrier_in\ncmd=barrier_in\n"),
        (2, b"-1    x"),
        (2, b"999999x"),
        (2, b"abcdefg"),
        (2, b"3     ab;"),
        (2, b"4     cmd="),
        (2, b"6     key=a;"),
    ],
)
def test_what_is_no_pmi_ends_the_ranks_connection(version: int, data: bytes) -> None:
    exchange = pmi.Exchange((0, 1), "12.0")
    if version:
        exchange.heard(0, INIT_1 if version == 1 else INIT_2)
    assert exchange.heard(0, data).broken


def test_what_came_before_nonsense_is_answered() -> None:
    """The last one to enter a barrier lets the others out, whatever it says next."""
    exchange = one(2)
    exchange.heard(0, b"cmd=barrier_in\n")
    outcome = exchange.heard(1, b"cmd=barrier_in\nnonsense\n")
    assert outcome.replies == [(0, b"cmd=barrier_out\n"), (1, b"cmd=barrier_out\n")]
    assert outcome.broken


def test_one_rank_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi, "MAX_STORE", 100)
    exchange = one(1)
    put = b"cmd=put kvsname=12.0 key=k value=" + b"v" * 49 + b"\n"
    answers = [exchange.heard(0, put).replies[0][1] for _ in range(3)]
    assert answers == [
        b"cmd=put_result rc=0 msg=success\n",
        b"cmd=put_result rc=0 msg=success\n",
        b"cmd=put_result rc=-1 msg=no_room_left\n",
    ]
    asks = one(1, version=2)
    for number in range(17):
        asks.heard(0, framed(f"cmd=info-getnodeattr;key=k{number};wait=TRUE;"))
    assert "nobody answers" in asks.heard(0, framed("cmd=info-getnodeattr;key=k17;wait=TRUE;")).broken


def test_who_goes_without_a_word_is_noticed() -> None:
    exchange = one(3)
    exchange.heard(1, b"cmd=finalize\n")
    silent = pmi.Exchange((0,), "12.0")
    assert [exchange.left(0), exchange.left(1), silent.left(0)] == [True, False, False]
