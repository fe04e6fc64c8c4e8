"""Words that are not UTF-8: refused by name where a message carries text, kept where bytes are meant."""

import importlib
import os

import pytest

from spur_cli.context import Context
from spur_cli.options import submit_table
from spur_cli.options.engine import parse
from spur_cli.printable import is_text, not_text, utf8
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

BAD = os.fsdecode(b"x\xff")
END = "'x\\xff' is not UTF-8 text; write it in UTF-8\n"


_NAMES = (
    "account begin chdir comment constraint dependency distribution exclude gres job-name licenses mem"
    " nodelist nodes partition qos reservation time tmp wckey output error input controller"
)
OPTIONS = _NAMES.split()


@pytest.fixture
def accepting(peer):
    peer.answers["SubmitJob"] = pb.SubmitJobResponse(job_id=123)
    return peer


def test_what_is_text():
    assert [is_text(text) for text in ("a", "Jörg ☃", BAD)] == [True, True, False]
    assert (utf8("Jörg"), utf8(BAD)) == ("Jörg", "x\\xff")
    assert not_text("", BAD + "y" * 999).count("y") < 60
    assert "\n" not in not_text("--name", "a\nb" + BAD)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_text_options_are_refused_by_name(cli, accepting, command, option):
    table = submit_table.table({"sbatch": "B", "salloc": "A", "srun": "R"}[command])
    if option not in table.by_name or table.by_name[option].raw:
        assert (option in ("output", "error", "input"), command != "sbatch") == (True, True)
        return
    rest = ["--wrap", "true"] if command == "sbatch" else ["true"]
    for words in ([f"--{option}", BAD], [f"--{option}={BAD}"]):
        assert cli(command, *words, *rest) == (1, "", f"{command}: error: --{option}: {END}")
    assert not accepting.requests


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["sbatch", f"-J{BAD}", "--wrap", "true"], "--job-name"),
        (["scontrol", "update", "job=1", f"comment={BAD}"], "comment"),
        (["scontrol", "create", "reservation", f"users={BAD}"], "users"),
        (["scontrol", "show", BAD], "argument"),
        (["scancel", BAD], "argument"),
        (["scancel", "-n", BAD], "--jobname"),
        (["squeue", "-u", BAD], "--user"),
        (["sinfo", "-p", BAD], "--partition"),
        (["sacct", "-A", BAD], "--accounts"),
        (["sattach", BAD], "argument"),
    ],
)
def test_other_words_too(cli, accepting, words, named):
    assert cli(*words) == (1, "", f"{words[0]}: error: {named}: {END}")
    assert not accepting.requests


def test_a_variable_is_named(cli, accepting):
    result = cli("sbatch", "--wrap", "true", env={"SBATCH_RESERVATION": BAD})
    assert result == (1, "", f"sbatch: error: SBATCH_RESERVATION (--reservation): {END}")


def test_a_directive_is_named(cli, accepting):
    result = cli("sbatch", stdin=b"#!/bin/sh\n#SBATCH --comment=x\xff\n")
    assert result == (1, "", f"sbatch: error: --comment: {END}")


def test_a_prompt_goes_on(cli, accepting):
    found = cli("scontrol", stdin=b"update job=1 comment=x\xff\nversion\n")
    assert found.err == f"scontrol: error: comment: {END}"
    assert "slurm" in found.out


def test_scripts_arguments_and_environment_keep_their_bytes(cli, accepting, tmp_path):
    name = tmp_path / os.fsdecode(b"job\xff.sh")
    name.write_bytes(b"#!/bin/sh\n# \xfe\n")
    found = cli("sbatch", f"--export=ALL,A={BAD}", name.name, BAD, env={"B": BAD})
    assert found == (0, "Submitted batch job 123\n", "")
    spec = accepting.last("SubmitJob").spec
    assert spec.script == b"#!/bin/sh\n# \xfe\n"
    assert list(spec.script_args) == [b"x\xff"]
    assert {b"A=x\xff", b"B=x\xff"} <= set(spec.environment)
    # What is only shown has escapes in their place.
    assert (spec.name, spec.command) == ("job\\xff.sh", f"{tmp_path}/job\\xff.sh x\\xff")
    assert spec.submit_line.endswith("job\\xff.sh x\\xff")
    assert cli("sbatch", "--wrap", f"echo {BAD}").code == 0
    assert accepting.last("SubmitJob").spec.script.endswith(b"echo x\xff\n")


def test_the_program_of_srun_keeps_its_bytes(cli, peer, refuse):
    import grpc

    def no(request):
        raise refuse(grpc.StatusCode.INVALID_ARGUMENT, "enough")

    peer.answers["SubmitJob"] = no
    found = cli("srun", BAD, "-z", BAD)
    assert (found.code, "internal" in found.err) == (1, False)
    spec: common_pb2.JobSpec = peer.last("SubmitJob").spec
    assert list(spec.argv) == [b"x\xff", b"-z", b"x\xff"]
    assert (spec.name, spec.command) == ("x\\xff", "x\\xff -z x\\xff")


def test_the_directory_is_named(accepting, tmp_path):
    from spur_cli.submit.request import Builder

    folder = f"{tmp_path}/{BAD}"
    env = {"HOME": "/", "PATH": "/bin"}
    ctx = Context("sbatch", [], env, folder)
    with pytest.raises(Exception, match=r"the work directory: .* or name another with --chdir"):
        Builder(ctx, {}).build()
    fields = Builder(ctx, {"chdir": "/tmp"}).build()
    assert (fields["work_dir"], fields["submit_dir"]) == ("/tmp", f"{tmp_path}/x\\xff")


@pytest.mark.parametrize("module", ["queue.squeue", "queue.sprio", "nodes.sinfo"])
def test_a_format_is_only_printed(module):
    table = importlib.import_module(f"spur_cli.{module}").table()
    assert parse(table, ["-o", BAD]).get("format") == BAD


def test_files_of_srun_are_of_this_host():
    assert parse(submit_table.table("R"), ["-o", BAD, "true"]).get("output") == BAD
