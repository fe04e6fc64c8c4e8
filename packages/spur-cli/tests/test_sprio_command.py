"""sprio against a scripted controller: columns, weights, filters, order."""

import pytest

from spur_proto import controller_pb2 as pb

WEIGHTS = pb.PriorityFactors(age=1000, fairshare=100_000, job_size=1000, partition=10_000, qos=1)
EXACT = {
    "age": (0.000718, 0.718),
    "fairshare": (0.516647, 51664.7),
    "job_size": (1.0, 1000.0),
    "partition": (1.0, 10000.0),
}


def row(job_id=65539, priority=62664, **more):
    fields = {"user": "fred", "uid": 1000, "account": "phys", "qos": "normal", "partition": "debug"} | more
    return pb.JobPriority(
        job_id=job_id,
        priority=priority,
        normalized=pb.PriorityFactors(**{name: pair[0] for name, pair in EXACT.items()}),
        weighted=pb.PriorityFactors(**{name: pair[1] for name, pair in EXACT.items()}),
        **fields,
    )


@pytest.fixture
def told(peer):
    """Scripts the answer."""

    def tell(*rows, weights=WEIGHTS):
        peer.answers["GetPriorities"] = pb.GetPrioritiesResponse(
            jobs=rows, weights=weights, priority_type="multifactor"
        )

    tell(row())
    return tell


HEAD = (
    "          JOBID PARTITION   PRIORITY       SITE        AGE  FAIRSHARE    JOBSIZE  PARTITION        QOS\n"
)


class TestColumns:
    def test_weighted(self, cli, told):
        assert cli("sprio").out == (
            HEAD
            + "          65539 debug          62664          0          1      51665       1000      10000"
            "          0\n"
        )

    def test_normalized(self, cli, told):
        """As in the manual: 0.00001459 and seven decimals, standing left."""
        lines = cli("sprio", "-n").out.splitlines()
        assert lines[0].split() == HEAD.split()
        assert lines[1].split()[2:] == [
            "0.00001459",
            "0",
            "0.0007180",
            "0.5166470",
            "1.0000000",
            "1.0000000",
            "0.0000000",
        ]
        assert "0.0007180  0.5166470  1.0000000  1.0000000 " in lines[1]

    def test_factors_without_a_weight_are_left_out(self, cli, told):
        told(row(), weights=pb.PriorityFactors(age=5))
        assert cli("sprio").out.splitlines()[0].split() == ["JOBID", "PARTITION", "PRIORITY", "SITE", "AGE"]

    def test_long_has_all_of_them(self, cli, told):
        told(row(nice=-7, site_factor=3), weights=pb.PriorityFactors())
        head, line = cli("sprio", "--long").out.splitlines()
        assert head == (
            "          JOBID PARTITION     USER  ACCOUNT   PRIORITY       SITE        AGE      ASSOC"
            "  FAIRSHARE    JOBSIZE  PARTITION    QOSNAME        QOS        NICE                 TRES"
        )
        assert line.split() == (
            "65539 debug fred phys 62664 3 1 0 51665 1000 10000 normal 0 -7".split()  # noqa: SIM905
        )
        assert len(line) == len(head)

    def test_tres_by_name(self, cli, told):
        one = row()
        one.weighted.tres.update({"cpu": 20.4, "gres/gpu": 3.0})
        one.normalized.tres.update({"cpu": 0.25, "gres/gpu": 0.5})
        told(one, weights=pb.PriorityFactors(tres={"cpu": 100}))
        assert cli("sprio", "-h").out.split()[-1] == "cpu=20,gres/gpu=3"
        assert cli("sprio", "-ho", "%t").out == "cpu=0.25,gres/gpu=0.50\n"

    @pytest.mark.parametrize(
        ("letters", "expected"),
        [
            ("%i|%r|%u|%o|%n", "65539|debug|fred|phys|normal\n"),
            ("%A %B %F %J %P %Q", "1 0 51665 1000 10000 0\n"),
            ("%a,%y", "0.0007180,0.00001459009946\n"),
            ("%N %S %c%s.", "0 0 .\n"),
            ("%.12Y|%12Y|", "       62664|62664       |\n"),
        ],
    )
    def test_a_format_of_letters(self, cli, told, letters, expected):
        assert cli("sprio", "-h", "-o", letters).out == expected

    def test_the_variable_is_a_format_too(self, cli, told):
        assert cli("sprio", "-h", env={"SPRIO_FORMAT": "%i"}).out == "65539\n"

    def test_an_unknown_letter(self, cli, told):
        found = cli("sprio", "-o", "%Z")
        assert "sprio: error: Invalid job format specification: Z" in found.err

    def test_letters_are_listed(self, cli):
        found = cli("sprio", "--helpformat")
        assert "%A AGE\n%b ASSOC\n" in found.out


class TestWeights:
    def test_one_row(self, cli, told):
        assert cli("sprio", "-w").out == (
            HEAD
            + "        Weights                               1       1000     100000       1000      10000"
            "          1\n"
        )

    def test_of_tres(self, cli, told):
        told(weights=pb.PriorityFactors(tres={"mem": 7, "cpu": 5}))
        assert cli("sprio", "-w", "-ho", "%T").out == "cpu=5,mem=7\n"


class TestWhich:
    def test_filters_go_to_the_controller(self, cli, told, peer):
        assert cli("sprio", "-j", "5,7_3", "-u", "fred,1001", "-p", "debug,batch").code == 0
        asked = peer.last("GetPriorities")
        assert list(asked.job_ids) == [5, 7]
        assert list(asked.users) == ["fred", "1001"]
        assert list(asked.partitions) == ["debug", "batch"]

    def test_a_glued_id(self, cli, told, peer):
        cli("sprio", "-j12")
        assert list(peer.last("GetPriorities").job_ids) == [12]

    @pytest.mark.parametrize("words", [("-j", "99"), ("-u", "nobody")])
    def test_nothing_found(self, cli, told, words):
        told()
        found = cli("sprio", *words)
        assert (found.code, found.out) == (0, HEAD)
        assert found.err == "Unable to find jobs matching user/id(s) specified\n"

    def test_an_empty_queue_says_nothing(self, cli, told):
        told()
        assert cli("sprio") == (0, HEAD, "")

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (("-j", "x"), "Invalid job id: x"),
            (("12",), "Unrecognized option: 12"),
            (("-S", "Z"), "Invalid sort specification: Z"),
        ],
    )
    def test_mistakes(self, cli, told, words, problem):
        found = cli("sprio", *words)
        assert found.code == 1
        assert problem in found.err

    def test_pages_are_put_together(self, cli, peer):
        def answer(request):
            if not request.page_token:
                return pb.GetPrioritiesResponse(jobs=[row(1)], weights=WEIGHTS, next_page_token="1")
            return pb.GetPrioritiesResponse(jobs=[row(2)], weights=WEIGHTS)

        peer.answers["GetPriorities"] = answer
        assert cli("sprio", "-ho", "%i").out == "1\n2\n"

    def test_a_refusal(self, cli, peer, refuse):
        import grpc

        peer.answers["GetPriorities"] = refuse(grpc.StatusCode.PERMISSION_DENIED, "no")
        found = cli("sprio")
        assert (found.code, found.out) == (1, "")
        assert found.err.startswith("sprio: error: ")


class TestOrder:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ("", "1 2 3"),
            ("-i", "3 2 1"),
            ("Y", "3 1 2"),
            ("-y", "2 1 3"),
            ("u,-i", "3 2 1"),
            ("+u-Y", "2 3 1"),
        ],
    )
    def test_by_letters(self, cli, told, spec, expected):
        told(row(3, 5, user="b"), row(1, 20, user="z"), row(2, 30, user="b"))
        words = ["-S", spec] if spec else []
        assert cli("sprio", "-ho", "%i", *words).out.split() == expected.split()
