"""Files that load, and what they mean."""

from pathlib import Path

import pytest

from spur_core import config as config_package
from spur_core.config import Config, ConfigMissing, default_config, load_config, parse_config
from spur_core.errors import ConfigError

BASE = 'cluster_name = "c1"\n'


def test_only_the_cluster_name_is_required():
    """A one-line file is a configuration with every default."""
    config = parse_config(BASE)
    assert config == Config(cluster_name="c1")
    assert config.controller.listen_addr == "[::]:6817"
    assert config.controller_addresses == ("localhost:6817",)
    assert config.agent_listen_addr == "[::]:6818"
    assert config.agent_state_dir == "/var/spool/spur"
    assert config.job_retention_secs == 3600


def test_without_a_file_there_is_one_partition_with_every_node():
    """The default configuration can run a job on any node that registers."""
    config = default_config()
    assert config.cluster_name == "spur"
    assert [one.name for one in config.partitions if one.default] == ["default"]
    partition = config.partition("default")
    assert partition is not None
    assert partition.all_nodes
    assert partition.node_names == ()
    assert partition.priority_tier == 1


FULL = """\
cluster_name = "c1"
[controller]
listen_addr = "0.0.0.0:7000"
hosts = ["ctl1", "fd00::1", "ctl3:7100"]
state_dir = "/srv/spur"
peers = ["ctl1:6821"]
node_id = 1
[accounting]
database_url = "postgresql+asyncpg://spur@db/spur"
[scheduler]
enforce_part_limits = "yes"
min_job_age_secs = 30
kill_wait_secs = 5
over_time_limit = "2:30"
[auth]
mode = "Required"
jwt_key_file = "/etc/spur/jwt.key"
[agent]
spawn = "exec"
cgroup_root = "/sys/fs/cgroup/spur"
state_dir = "/srv/spurd"
[network]
agent_port = 7001
[client]
slurm_file_names = false
[[partitions]]
name = "gpu"
default = true
nodes = "g[01-03]"
max_time = "1-12"
default_time = 90
min_nodes = 1
max_nodes = 2
over_time_limit = "UNLIMITED"
def_mem_per_cpu = "2G"
max_mem_per_node = 4096
priority_tier = 7
[[partitions]]
name = "all"
state = "drain"
nodes = "ALL"
max_time = "unlimited"
selector = { rack = "r1" }
[[nodes]]
names = "g01"
features = ["big"]
cpus = 8
memory_mb = 16000
gres = ["gpu:h100:2"]
weight = 5
[[nodes]]
selector = { rack = "r1" }
features = ["r1"]
[[nodes]]
names = "ALL"
[[devices.gres]]
name = "gpu"
type = "h100"
file = "/dev/nvidia[0-1]"
[[devices.gres]]
name = "shard"
count = 4
flags = ["count_only"]
"""


def test_every_section_reaches_its_place(tmp_path):
    """A long file loads from disk, and values are converted to their units."""
    path = tmp_path / "spur.conf"
    path.write_text(FULL)
    config = load_config(path)
    assert config.controller_addresses == ("ctl1:7000", "[fd00::1]:7000", "ctl3:7100")
    assert config.scheduler.enforce_part_limits == "ALL"
    assert config.scheduler.over_time_limit == 180  # 2:30 rounds up to whole minutes
    assert config.job_retention_secs == 120  # the floor
    assert config.auth.mode == "required"
    assert config.agent_listen_addr == "[::]:7001"
    assert config.agent_state_dir == "/srv/spurd"
    gpu = config.partition("gpu")
    assert gpu is not None
    assert gpu.node_names == ("g01", "g02", "g03")
    assert (gpu.max_time, gpu.default_time) == (36 * 3600, 5400)
    assert (gpu.def_mem_per_cpu, gpu.max_mem_per_node) == (2048, 4096)
    assert gpu.over_time_limit == 100 * 365 * 86400
    everything = config.partition("all")
    assert everything is not None
    assert (everything.state, everything.max_time, everything.all_nodes) == ("DRAIN", None, True)
    assert config.partition("none") is None
    assert [entry.name for entry in config.devices.gres] == ["gpu", "shard"]


def test_the_first_node_entry_that_fits_counts():
    """By name, by label, then ALL: order of the file decides."""
    config = parse_config(FULL)
    by_name = config.node_entry("g01", {"rack": "r1"})
    by_label = config.node_entry("x", {"rack": "r1", "row": "2"})
    other = config.node_entry("x", {"rack": "r2"})
    assert by_name is not None
    assert by_name.features == ("big",)
    assert by_label is not None
    assert by_label.features == ("r1",)
    assert other is not None
    assert other.names == "ALL"
    assert Config().node_entry("x", {}) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("60", 3600),
        ('"10:30"', 660),
        ('"1:2:3"', 63 * 60),
        ('"1-2"', 26 * 3600),
        ('"1-2:3"', 26 * 3600 + 180),
        ('"90m"', 5400),
        ('"1h40m"', 6000),
        ('"2D12H"', 60 * 3600),
        ('"30s"', 60),
        ('"INFINITE"', None),
        ('"Unlimited"', None),
    ],
)
def test_durations_follow_slurms_grammar_in_whole_minutes(value, seconds):
    """Section 1 of the format: every form of a duration."""
    config = parse_config(f'{BASE}[[partitions]]\nname = "p"\nmax_time = {value}\n')
    assert config.partitions[0].max_time == seconds


def test_a_missing_file_is_told_from_a_bad_one(tmp_path):
    """Callers may go on without the default file, never with a broken one."""
    with pytest.raises(ConfigMissing, match="no such file"):
        load_config(tmp_path / "none.conf")
    bad = tmp_path / "bad.conf"
    bad.write_text("cluster_name = \n")
    with pytest.raises(ConfigError, match=r"bad\.conf: Invalid value \(at line 1") as caught:
        load_config(bad)
    assert not isinstance(caught.value, ConfigMissing)
    bad.write_bytes(b'x = 1\ny = "\xff"\n')
    with pytest.raises(ConfigError, match=r"not UTF-8 \(at line 2\)"):
        load_config(bad)
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)


def test_the_package_names_what_it_offers():
    """Lazy names exist, others do not."""
    for name in config_package.__all__:
        assert getattr(config_package, name) is not None
    with pytest.raises(AttributeError):
        config_package.nothing_of_that_name  # noqa: B018


def test_the_client_loader_costs_no_schema(loaded_modules):
    """A command pays for TOML when it reads the file, and for nothing else."""
    modules = loaded_modules("spur_core.config.client")
    assert not modules & {
        "tomllib",
        "typing",
        "re",
        "dataclasses",
        "asyncio",
        "spur_core.config.schema",
        "spur_core.config.loader",
    }


def test_sample_on_disk_is_the_generated_one():
    """Run `python -m spur_core.config.sample > deploy/spur.conf.sample` when this fails."""
    from spur_core.config.sample import render

    path = Path(__file__).parents[3] / "deploy" / "spur.conf.sample"
    assert path.read_text() == render()


def test_priorities():
    """Weights by canonical names of TRES, flags in their order, durations in seconds."""
    config = parse_config(
        'cluster_name = "c"\n[scheduler]\npriority_type = "Multifactor"\npriority_max_age = "14-0"\n'
        'priority_weight_tres = { CPU = 1, Mem = 2, "GRES/gpu" = 3 }\n'
        'priority_flags = ["small_relative_to_time", "NO_NORMAL_ALL"]\n'
        '[[partitions]]\nname = "p"\npriority_job_factor = 7\n'
    )
    section = config.scheduler
    assert (section.priority_type, section.priority_max_age) == ("multifactor", 14 * 86400)
    assert section.priority_weight_tres == {"cpu": 1, "mem": 2, "gres/gpu": 3}
    assert section.priority_flags == ("NO_NORMAL_ALL", "SMALL_RELATIVE_TO_TIME")
    assert config.partitions[0].priority_job_factor == 7
