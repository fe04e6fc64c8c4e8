"""The page of options is what the commands read, and no option of Slurm's submitters is missing."""

from pathlib import Path

import pytest

from spur_cli.options import compatibility

PAGE = Path(__file__).parents[3] / "docs" / "slurm-compatibility.md"
#: Options of Slurm 25.11's sbatch as its manual page lists them, without those that only tell something.
SLURM = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container
container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
dependency distribution error exclude exclusive export export-file extra extra-node-info get-user-env
gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint hold ignore-pbs
input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core
ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output overcommit oversubscribe
parsable partition prefer priority profile propagate qos quiet reboot requeue reservation resv-ports segment
signal sockets-per-node spread-job stepmgr switches test-only thread-spec threads-per-core time time-min tmp
tres-bind tres-per-task use-min-nodes verbose wait wait-all-nodes wckey wrap
"""


def test_the_page_is_up_to_date() -> None:
    """Run `python -m spur_cli.options.compatibility > docs/slurm-compatibility.md` when this fails."""
    assert PAGE.read_text() == compatibility.page()


def test_no_option_of_sbatch_is_unknown() -> None:
    assert set(SLURM.split()) <= set(compatibility.TABLES["sbatch"]().long)


@pytest.mark.parametrize("command", compatibility.TABLES)
def test_every_option_says_what_it_does_or_why_not(command: str) -> None:
    for option in compatibility.TABLES[command]().options:
        assert option.refuse == "*" or option.help or option.idle, option.name
