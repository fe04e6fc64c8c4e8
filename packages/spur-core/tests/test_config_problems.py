"""Files that are refused: every rule, and all problems at once."""

import pytest

from spur_core.config import parse_config
from spur_core.errors import ConfigError

BASE = 'cluster_name = "c1"\n'
P = '[[partitions]]\nname = "p"\n'
MULTI = '[scheduler]\npriority_type = "multifactor"\n'
TREE = '[topology]\nplugin = "tree"\n'


def problems(text: str) -> list[str]:
    """The problems of a text, without the file's name in front."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f")
    assert all(line.startswith("f: ") and "\n" not in line for line in caught.value.problems)
    return [line.removeprefix("f: ") for line in caught.value.problems]


ONE = [
    # Required and unknown.
    ("", "cluster_name is required"),
    ('cluster_name = ""', 'cluster_name = "": must be a name: not empty, no blanks and none of , ; : / | ='),
    ('clustername = "x"\ncluster_name = "c"', "clustername is an unknown key; did you mean cluster_name?"),
    (BASE + "[controler]\n", "[controler] is an unknown section; did you mean [controller]?"),
    (BASE + "[zzz]\n", "[zzz] is an unknown section"),
    (
        BASE + "[controller]\nlisten_adr = 1",
        "[controller] listen_adr is an unknown key; did you mean listen_addr?",
    ),
    (
        BASE + P + "max_tme = 1",
        '[[partitions]] "p" max_tme is an unknown key; did you mean max_time?',
    ),
    (BASE + "[scheduler]\nqqqq = 1", "[scheduler] qqqq is an unknown key"),
    # Types.
    (BASE + "controller = 1", "controller must be a table: write [controller]"),
    (BASE + "[partitions]\n", "partitions must be a list of tables: write [[partitions]]"),
    (BASE + '[scheduler]\ninterval_secs = "1"', '[scheduler] interval_secs = "1": must be a whole number'),
    (BASE + "[scheduler]\ninterval_secs = true", "[scheduler] interval_secs = true: must be a whole number"),
    (BASE + "[scheduler]\ninterval_secs = 1.5", "[scheduler] interval_secs = 1.5: must be a whole number"),
    (BASE + "[auth]\nallow_root_jobs = 1", "[auth] allow_root_jobs = 1: must be true or false"),
    (BASE + "[auth]\njwt_key = 5", "[auth] jwt_key = (hidden): must be a text in quotes"),
    (BASE + '[controller]\nhosts = "a"', '[controller] hosts = "a": must be a list of texts in quotes'),
    # Section 16 of the format.
    (BASE + "[controller]\nmax_batch_requeue = 0", "[controller] max_batch_requeue = 0: must be at least 1"),
    (
        BASE + "[controller]\nmax_launch_backoff_secs = 0",
        "[controller] max_launch_backoff_secs = 0: must be at least 1",
    ),
    (
        BASE + "[controller]\nmax_launch_backoff_secs = 86401",
        "[controller] max_launch_backoff_secs = 86401: must be at most 86400",
    ),
    (
        BASE + "[controller]\nterminal_job_retention_secs = 31622401",
        "[controller] terminal_job_retention_secs = 31622401: must be at most 31622400",
    ),
    (
        BASE + "[controller]\ndispatch_reject_cooldown_secs = 86401",
        "[controller] dispatch_reject_cooldown_secs = 86401: must be at most 86400",
    ),
    (
        BASE + "[accounting]\ngrp_wall_window_days = 3651",
        "[accounting] grp_wall_window_days = 3651: must be at most 3650",
    ),
    (
        BASE + "[accounting]\ngrp_wall_window_days = 0",
        "[accounting] grp_wall_window_days = 0: must be at least 1",
    ),
    (
        BASE + '[scheduler]\nenforce_part_limits = "some"',
        '[scheduler] enforce_part_limits = "some": must be one of NO, ALL, ANY',
    ),
    (
        BASE + '[scheduler]\npreempt_type = "x"',
        '[scheduler] preempt_type = "x": must be one of none, partition_prio, qos_priority',
    ),
    (
        BASE + '[scheduler]\npriority_type = "x"',
        '[scheduler] priority_type = "x": must be one of basic, multifactor',
    ),
    (BASE + MULTI + "priority_weight_age = -1", "[scheduler] priority_weight_age = -1: must be at least 0"),
    (
        BASE + MULTI + "priority_weight_job_size = 4294967296",
        "[scheduler] priority_weight_job_size = 4294967296: must be at most 4294967295",
    ),
    (
        BASE + "[scheduler]\npriority_weight_age = 5",
        '[scheduler] priority_weight_age = 5: has an effect with priority_type = "multifactor" only',
    ),
    (
        BASE + "[scheduler]\npriority_favor_small = true",
        '[scheduler] priority_favor_small = true: has an effect with priority_type = "multifactor" only',
    ),
    (
        BASE + P + "priority_job_factor = 3",
        '[[partitions]] "p" priority_job_factor = 3: has an effect with priority_type = "multifactor" only',
    ),
    (
        BASE + P + "priority_job_factor = 65534",
        '[[partitions]] "p" priority_job_factor = 65534: must be at most 65533',
    ),
    (
        BASE + MULTI + "priority_weight_fairshare = 1",
        "[scheduler] priority_weight_fairshare = 1 is not supported by this release (fair share)",
    ),
    (
        BASE + MULTI + 'priority_flags = ["no_fair_tree"]',
        "[scheduler] priority_flags: NO_FAIR_TREE is not supported by this release (fair share)",
    ),
    (
        BASE + MULTI + 'priority_flags = ["FAVOUR_ME"]',
        '[scheduler] priority_flags = ["FAVOUR_ME"]: must be a list of words out of ACCRUE_ALWAYS,'
        " CALCULATE_RUNNING, DEPTH_OBLIVIOUS, INCR_ONLY, MAX_TRES, MAX_TRES_GRES, NO_FAIR_TREE,"
        " NO_NORMAL_ALL, NO_NORMAL_ASSOC, NO_NORMAL_PART, NO_NORMAL_QOS, NO_NORMAL_TRES,"
        " SMALL_RELATIVE_TO_TIME",
    ),
    (
        BASE + MULTI + "priority_weight_tres = { cpu = 1, zz = 2 }",
        '[scheduler] priority_weight_tres = { "cpu" = 1, "zz" = 2 }: "zz" is no TRES; examples: cpu, mem,'
        ' node, "gres/gpu"',
    ),
    (
        BASE + MULTI + "priority_weight_tres = { cpu = -2 }",
        '[scheduler] priority_weight_tres = { "cpu" = -2 }: must be at least 0',
    ),
    (
        BASE + '[scheduler]\npriority_max_age = "UNLIMITED"',
        '[scheduler] priority_max_age = "UNLIMITED": must be at least a minute and not unlimited',
    ),
    (
        BASE + "[scheduler]\npriority_calc_period_secs = 0",
        "[scheduler] priority_calc_period_secs = 0: must be at least 1",
    ),
    (BASE + '[auth]\nmode = "x"', '[auth] mode = "x": must be one of disabled, permissive, required'),
    (BASE + '[auth]\nplugin = "munge"', '[auth] plugin = "munge": must be one of none, jwt, spur'),
    (BASE + '[admission]\nmode = "x"', '[admission] mode = "x": must be one of open, token'),
    (BASE + '[metrics]\nbind = "x"', '[metrics] bind = "x": must be one of loopback, all'),
    (
        BASE + '[controller]\njob_info_visibility = "x"',
        '[controller] job_info_visibility = "x": must be one of redacted, owner_only, full',
    ),
    (
        BASE + '[auth]\nplugin = "none"\nmode = "required"',
        '[auth] mode = "required" cannot work with plugin = "none"; use plugin = "jwt"',
    ),
    (
        BASE + '[auth]\nmode = "required"',
        '[auth] mode = "required" needs a key; make one with `spur keygen` and set jwt_key_file',
    ),
    (
        BASE + '[auth]\njwt_key = "0123456789abcdef"\njwt_key_file = "/k"',
        "[auth] jwt_key and jwt_key_file are both set; keep one",
    ),
    (
        BASE + P + 'max_time = "soon"',
        '[[partitions]] "p" max_time = "soon": not a duration; examples: 60, "1:30:00", "2-12", "90m",'
        ' "UNLIMITED"',
    ),
    (
        BASE + P + "max_time = 60\ndefault_time = 61",
        '[[partitions]] "p" default_time of 61 minutes: must not be above max_time of 60 minutes',
    ),
    (
        BASE + '[controller]\nlisten_addr = "6817"',
        "[controller] listen_addr = \"6817\": not an address: '6817'; write HOST:PORT or [IPV6]:PORT",
    ),
    # What we refuse besides.
    (BASE + P + P, '[[partitions]] "p" is defined twice'),
    (
        BASE + P + 'default = true\n[[partitions]]\nname = "q"\ndefault = true',
        '[[partitions]] "q" default = true: "p" is the default partition already',
    ),
    (BASE + "[[partitions]]\nnodes = 'n1'", "[[partitions]] #1 name is required"),
    (
        BASE + P + 'state = "sleepy"',
        '[[partitions]] "p" state = "sleepy": must be one of UP, DOWN, DRAIN, INACTIVE',
    ),
    (
        BASE + P + 'preempt_mode = "x"',
        '[[partitions]] "p" preempt_mode = "x": must be one of off, cancel, requeue, suspend',
    ),
    (
        BASE + P + 'nodes = "n[3-1]"',
        '[[partitions]] "p" nodes = "n[3-1]": not a hostlist; examples: "n[1-4]", "a1,b[01-16]", "ALL"',
    ),
    (
        BASE + P + "min_nodes = 3\nmax_nodes = 2",
        '[[partitions]] "p" min_nodes = 3: must not be above max_nodes = 2',
    ),
    (
        BASE + P + 'def_mem_per_cpu = "lots"',
        '[[partitions]] "p" def_mem_per_cpu = "lots": not a size; examples: 4096, "4G", "500M"',
    ),
    (
        BASE + P + 'allow_accounts = ["a"]\ndeny_accounts = ["b"]',
        '[[partitions]] "p" allow_accounts and deny_accounts are both set, of which one would do; keep one',
    ),
    (
        BASE + P + 'preempt_mode = "suspend"\ngrace_time = 30',
        '[[partitions]] "p" grace_time = 30: has no effect with preempt_mode = "suspend"; remove it',
    ),
    (
        BASE + "[scheduler]\nbf_min_prio_reserve = 4294967296",
        "[scheduler] bf_min_prio_reserve = 4294967296: must be at most 4294967295",
    ),
    (
        BASE + "[licenses]\nansys = 1\n" + MULTI + 'priority_weight_tres = { "license/matlab" = 5, cpu = 1 }',
        '[scheduler] priority_weight_tres: there is no licence "matlab"; list it in [licenses]',
    ),
    (
        BASE + P + "def_mem_per_node = 3\nmax_mem_per_node = 2",
        '[[partitions]] "p" def_mem_per_node of 3 MiB: must not be above max_mem_per_node of 2 MiB',
    ),
    (
        BASE + P.replace('"p"', '"DEFAULT"'),
        '[[partitions]] "DEFAULT" is Slurm\'s word for what all partitions share; give it another name',
    ),
    (
        BASE + P + "def_mem_per_cpu = 1\ndef_mem_per_node = 1",
        '[[partitions]] "p" def_mem_per_cpu and def_mem_per_node are both set; keep one',
    ),
    (BASE + P + "priority_tier = -1", '[[partitions]] "p" priority_tier = -1: must be at least 0'),
    (BASE + "[[nodes]]\ncpus = 1", "[[nodes]] #1 means no node: set names or selector"),
    (
        BASE + '[[nodes]]\nnames = "n1"\ngres = ["gpu:x:y"]',
        '[[nodes]] "n1" gres = ["gpu:x:y"]: Invalid generic resource (gres) specification',
    ),
    (
        BASE + "[[nodes]]\nnames = 'n'\nselector = { rack = 1 }",
        '[[nodes]] "n" selector = { "rack" = 1 }: must be a table of texts, such as { rack = "r1" }',
    ),
    (
        BASE + "[controller]\nnode_id = 2",
        "[controller] node_id = 2: must be the position of this controller in peers, 1 to 1",
    ),
    (
        BASE + '[controller]\nclient_addrs = ["a:1", "b:1"]',
        "[controller] client_addrs: 2 addresses for 1 controller(s); give one for each of peers, in the same"
        " order",
    ),
    (
        BASE + '[controller]\npeers = ["a:1", "b:1"]\nclient_addrs = ["a:1", "a:1"]',
        "[controller] client_addrs: an address is listed twice",
    ),
    (
        BASE + '[controller]\npeers = ["a:1", ":1"]',
        '[controller] peers: ":1" cannot be reached; write HOST:PORT of one host',
    ),
    (
        BASE + '[controller]\npeers = ["a:1", "b:0"]',
        '[controller] peers: "b:0" cannot be reached; write HOST:PORT of one host',
    ),
    (
        BASE + '[controller]\npeers = ["a:1", "b:1", "c:1", "d:1", "e:1", "f:1"]',
        "[controller] peers: names 6 controllers; name 1, 3 or 5",
    ),
    (
        BASE + '[controller]\nraft_listen_addr = "[::]:1"',
        '[controller] raft_listen_addr = "[::]:1": a single controller has no use for it; leave it out, or'
        " name the members of the group in peers",
    ),
    (
        BASE + '[controller]\npeers = ["a:1"]\nraft_tls_dir = "/t"',
        '[controller] raft_tls_dir = "/t": a single controller has no use for it; leave it out, or name the'
        " members of the group in peers",
    ),
    (BASE + "[controller]\nhosts = []", "[controller] hosts = []: name at least one controller"),
    (
        BASE + '[controller]\nhosts = ["http://x"]',
        "[controller] hosts: not an address: 'http://x'; write HOST:PORT or [IPV6]:PORT",
    ),
    (
        BASE + "[scheduler]\nmin_job_age_secs = 5\n[controller]\nterminal_job_retention_secs = 6",
        "[scheduler] min_job_age_secs = 5: contradicts [controller] terminal_job_retention_secs = 6;"
        " remove one",
    ),
    (
        BASE + "[agent]\nheartbeat_interval_secs = 90",
        "[agent] heartbeat_interval_secs = 90: must be below [controller] heartbeat_timeout_secs = 90",
    ),
    (
        BASE + '[accounting]\ndatabase_url = "mysql://u:secret@h/d"',
        '[accounting] database_url with scheme "mysql": write sqlite+aiosqlite:///PATH or'
        " postgresql+asyncpg://USER@HOST/NAME",
    ),
    (
        BASE + '[agent]\nlisten_addr = "[::]:7000"\n[network]\nagent_port = 7001',
        '[network] agent_port = 7001: contradicts [agent] listen_addr = "[::]:7000"; remove one',
    ),
    (BASE + '[controller]\nstate_dir = "x"', '[controller] state_dir = "x": must be an absolute path'),
    (BASE + '[agent]\ncgroup_root = "x"', '[agent] cgroup_root = "x": must be an absolute path'),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\nfile = "/dev/x[0-1]"\ncount = 3',
        '[[devices.gres]] "gpu" count = 3: file names 2 devices',
    ),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\ncores = "3-1"',
        '[[devices.gres]] "gpu" cores = "3-1": not a list of CPUs; example: 0-15,32-47',
    ),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\nlinks = "-1,x"',
        '[[devices.gres]] "gpu" links = "-1,x": not a list of numbers of links; example: -1,4,4,0',
    ),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\nlinks = "-1,4"\nfile = "/dev/x[0-1]"',
        '[[devices.gres]] "gpu" links = "-1,4": an entry with links is one device; write one for each',
    ),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\nfile = "/dev/x[1-0]"',
        '[[devices.gres]] "gpu" file = "/dev/x[1-0]": not a list of files; example: /dev/nvidia[0-3]',
    ),
    (
        BASE + '[[devices.gres]]\nname = "gpu"\nfile = "/dev/x"\nflags = ["count_only"]',
        '[[devices.gres]] "gpu" file = "/dev/x": cannot go with the flag count_only',
    ),
    (
        BASE + "[licenses]\nmatlab = -1",
        'licenses = { "matlab" = -1 }: must be at least 0',
    ),
    (
        BASE + '[licenses]\n"a b" = 1',
        'licenses = { "a b" = 1 }: "a b" is no name of a licence; examples: matlab, "ansys@server"',
    ),
]


@pytest.mark.parametrize(("text", "problem"), ONE)
def test_each_rule_has_its_sentence(text, problem):
    """One fault, one line that names key path and value."""
    assert problems(text) == [problem]


LATER = [
    ('[rlimits]\nmemlock = "some"', '[rlimits] memlock = "some": must be "unlimited", "inherit" or bytes'),
    ('[cluster]\nenabled = true\ndistro = "k3s"', '[cluster] distro = "k3s": must be "k0s"'),
    (
        "[cluster]\nenabled = true\ncontrol_plane_replicas = 2",
        "[cluster] control_plane_replicas = 2: must be 1, 3 or 5",
    ),
    (
        "[cluster]\nenabled = true\nk8s_provisioning_timeout_secs = 0",
        "[cluster] k8s_provisioning_timeout_secs = 0: must be above 0",
    ),
    (
        '[cluster]\nenabled = true\nlocal_path_dir = "/a b"',
        '[cluster] local_path_dir = "/a b": must be an absolute path without quotes and blanks',
    ),
    ('[cluster]\nenabled = true\npod_cidr = "x"', '[cluster] pod_cidr = "x": must be an IPv4 network'),
    (
        '[cluster]\nenabled = true\npod_cidr = "10.42.0.0/25"',
        '[cluster] pod_cidr = "10.42.0.0/25": the prefix must be 24 or shorter',
    ),
    (
        '[cluster]\nenabled = true\nservice_cidr = "10.42.1.0/24"',
        '[cluster] service_cidr = "10.42.1.0/24": overlaps [cluster] pod_cidr',
    ),
    (
        '[[federation.clusters]]\nname = "b"\naddress = "b:6817"',
        '[[federation.clusters]] "b" address = "b:6817": must begin with http:// or https://',
    ),
    (
        TREE + '[[topology.switches]]\nname = "s"\nswitches = "t"',
        '[[topology.switches]] "s" switches: there is no switch "t"',
    ),
    (
        TREE + '[[topology.switches]]\nname = "s"\nswitches = "t"\n'
        '[[topology.switches]]\nname = "t"\nswitches = "s"',
        '[[topology.switches]] "s" is below itself',
    ),
    (
        TREE + '[[topology.switches]]\nname = "s"',
        '[[topology.switches]] "s" needs nodes or switches, one of the two',
    ),
    ('[topology]\nplugin = "tree"', '[topology] plugin = "tree": needs [[topology.switches]]'),
    (
        '[[topology.switches]]\nname = "s"\nnodes = "n1"',
        '[[topology.switches]] goes with plugin = "tree", not with "none"',
    ),
    (
        TREE + 'block_size = 4\n[[topology.switches]]\nname = "s"\nnodes = "n1"',
        '[topology] block_size = 4: goes with plugin = "block", not with "tree"',
    ),
    (
        TREE + '[[topology.switches]]\nname = "s"\nnodes = "n[1-2]"\n'
        '[[topology.switches]]\nname = "t"\nnodes = "n[2-3]"',
        '[[topology.switches]] "t": n2 is on s already',
    ),
    (
        TREE + '[[topology.switches]]\nname = "s"\nnodes = "n1"\n'
        '[[topology.switches]]\nname = "t"\nswitches = "s"\n'
        '[[topology.switches]]\nname = "u"\nswitches = "s"',
        '[[topology.switches]] "u": s is below t already',
    ),
    ('[hooks]\njob_submit = "/nowhere/x"', '[hooks] job_submit = "/nowhere/x": No such file or directory'),
    ('[hooks]\njob_submit = "/tmp"', '[hooks] job_submit = "/tmp": not a regular file'),
]


@pytest.mark.parametrize(("text", "problem"), LATER)
def test_sections_of_later_releases_are_checked_as_well(text, problem):
    """Such a file is refused in any case; its other faults are told in the same run."""
    assert problem in problems(BASE + text)


def test_submit_hooks_must_be_nobodys_to_change(tmp_path):
    """Mode and kind of the file are judged."""
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o644)
    text = f'{BASE}[hooks]\njob_submit = "{hook}"\n'
    assert any("not executable" in line for line in problems(text))
    hook.chmod(0o775)
    assert any("must not be writable for group or others" in line for line in problems(text))
    hook.chmod(0o755)
    assert problems(text) == [
        f'[hooks] job_submit = "{hook}" is not supported by this release (hooks of the controller)'
    ]


REFUSED = [
    (MULTI + "priority_weight_qos = 1", "[scheduler] priority_weight_qos = 1", "QOS"),
    (MULTI + "priority_weight_assoc = 1", "[scheduler] priority_weight_assoc = 1", "associations"),
    ("[cluster]\nenabled = true", "[cluster] enabled = true", "Kubernetes"),
    ("[kubernetes]\nenabled = true", "[kubernetes] enabled = true", "Kubernetes"),
    ("[burst_buffer]\ntotal_gb = 1", "[burst_buffer] total_gb = 1", "burst buffers"),
    ("[power]\nsuspend_timeout_secs = 1", "[power] suspend_timeout_secs = 1", "power saving"),
    (
        '[hooks]\nepilog_slurmctld = "/bin/true"',
        '[hooks] epilog_slurmctld = "/bin/true"',
        "hooks of the controller",
    ),
    ('[mpi]\nplugin_dir = "/x"', '[mpi] plugin_dir = "/x"', "MPI plugins"),
    ("[update]\ncheck_on_startup = true", "[update] check_on_startup = true", "looking for updates"),
    ('[admission]\nmode = "token"', '[admission] mode = "token"', "admission by join token"),
    ("[isolation]\nseccomp = true", "[isolation] seccomp = true", "isolation layers"),
    ("[isolation]\nsetuid = false", "[isolation] setuid = false", "isolation layers"),
    ("[metrics]\nenabled = true", "[metrics] enabled = true", "metrics"),
    ("[rest_api]\nenabled = true", "[rest_api] enabled = true", "REST"),
    ('[scheduler]\npreempt_type = "qos_priority"', '[scheduler] preempt_type = "qos_priority"', "QOS"),
    ('[auth]\nplugin = "spur"', '[auth] plugin = "spur"', "spurauthd"),
    ("[agent]\nsupervisor = false", "[agent] supervisor = false", "running steps without a supervisor"),
    (
        '[rlimits]\nmemlock = "inherit"',
        '[rlimits] memlock = "inherit"',
        "limits other than those of the agent",
    ),
    ("[network]\nwg_enabled = true", "[network] wg_enabled = true", "the mesh"),
    (
        '[[federation.clusters]]\nname = "b"\naddress = "http://b:6817"',
        '[[federation.clusters]] "b" name = "b"',
        "federation",
    ),
    (
        "[devices]\nauto_detect = true",
        "[devices] auto_detect = true",
        "finding devices; list them in [[devices.gres]]",
    ),
    (
        '[[devices.gres]]\nname = "gpu"\nmultiple_files = "/dev/x[0-1]"',
        '[[devices.gres]] "gpu" multiple_files = "/dev/x[0-1]"',
        "several files per device",
    ),
]


@pytest.mark.parametrize(("text", "where", "why"), REFUSED)
def test_a_key_without_effect_is_refused(text, where, why):
    """Nothing is read and silently ignored."""
    assert f"{where} is not supported by this release ({why})" in problems(BASE + text)


@pytest.mark.parametrize(
    "text",
    [
        "[metrics]\nenabled = false",
        "[cluster]\nenabled = false",
        '[controller]\npeers = ["a:6821"]\nnode_id = 1',
        '[controller]\npeers = ["a:6821", "b:6821", "c:6821"]\nraft_tls_dir = "/t"',
        '[rlimits]\nmemlock = "unlimited"',
        "[isolation]\nsetuid = true\nseccomp = false",
        '[auth]\nplugin = "none"',
        P + 'preempt_mode = ""',
        '[scheduler]\npreempt_type = "partition_prio"\n' + P + 'preempt_mode = "cancel"\ngrace_time = 30',
        '[scheduler]\npreempt_type = "partition_prio"\n' + P + 'preempt_mode = "suspend"',
        P + 'allow_accounts = ["a"]',
        MULTI + 'priority_weight_tres = { "license/m" = 5 }\n[licenses]\nm = 1',
        '[topology]\nplugin = "block"\nblock_size = 4',
        "[devices]\nauto_detect = false",
        "[scheduler]\nfairshare_halflife_days = 14",
    ],
)
def test_what_says_the_truth_is_accepted(text):
    """Keys of missing features may say that they are off."""
    parse_config(BASE + text)


def test_all_problems_come_at_once_in_order_of_the_file():
    """The administrator mends the file once."""
    text = """\
clustr = "x"
cluster_name = "c1"
[auth]
plugin = "munge"
[scheduler]
interval_secs = 0
[[partitions]]
name = "p"
default = true
max_time = "never"
[[partitions]]
name = "p"
default = true
"""
    assert problems(text) == [
        "clustr is an unknown key; did you mean cluster_name?",
        '[auth] plugin = "munge": must be one of none, jwt, spur',
        "[scheduler] interval_secs = 0: must be at least 1",
        '[[partitions]] "p" max_time = "never": not a duration; examples: 60, "1:30:00", "2-12", "90m",'
        ' "UNLIMITED"',
        '[[partitions]] "p" is defined twice',
        '[[partitions]] "p" default = true: "p" is the default partition already',
    ]


def test_secrets_do_not_reach_the_text_of_an_error():
    """Passwords and keys stay in the file."""
    text = BASE + '[accounting]\ndatabase_url = "mysql://u:hunter2@h/d"\n[auth]\njwt_key = ["hunter2"]\n'
    assert not any("hunter2" in line for line in problems(text))
