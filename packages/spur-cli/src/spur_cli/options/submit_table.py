"""The options of sbatch, srun and salloc as data (a long table on purpose: one row an option).

A row is (name, short, form, commands, variables, metavar, refused values, help or reason).
commands: B = sbatch, R = srun, A = salloc.  Variables are stems: B reads SBATCH_<stem>, R reads SLURM_<stem>,
A reads SALLOC_<stem>; a stem with `!` in front is a whole name.  Among the accepted values an empty word
stands for "without a value".  The reason (after `=`) says why an option that is accepted without an effect
may be.
"""

from spur_cli.options.engine import FLAG, OPTIONAL, REQUIRED, Option, Table
from spur_cli.options.front import cluster_option, common

F, V, O = FLAG, REQUIRED, OPTIONAL  # noqa: E741 - the table reads better with one letter a form

_Row = tuple[str, str, int, str, str, str, str, str]

ROWS: tuple[_Row, ...] = (
    # What acts.
    ("account", "A", V, "BRA", "ACCOUNT", "NAME", "", "account to charge"),
    ("array", "a", V, "B", "ARRAY_INX", "SPEC", "", "submit a job array: 0-9, 1,3, 0-20:4, with %LIMIT"),
    ("begin", "b", V, "BRA", "", "TIME", "", "do not start before this time"),
    ("chdir", "D", V, "BRA", "R:REMOTE_CWD R:WORKING_DIR", "DIR", "", "work directory of the job"),
    ("comment", "", V, "BRA", "", "TEXT", "", "free text kept with the job"),
    ("contiguous", "", F, "BRA", "", "", "", "nodes that stand next to each other"),
    (
        "cores-per-socket",
        "",
        V,
        "BRA",
        "R:NCORES_PER_SOCKET",
        "N",
        "",
        "nodes with such sockets",
    ),
    ("cpus-per-gpu", "", V, "BRA", "CPUS_PER_GPU", "N", "", "CPUs of each GPU"),
    ("constraint", "C", V, "BRA", "CONSTRAINT", "EXPR", "", "features that the nodes must have"),
    ("cpus-per-task", "c", V, "BRA", "R:!SRUN_CPUS_PER_TASK R:CPUS_PER_TASK", "N", "", "CPUs of each task"),
    ("deadline", "", V, "BRA", "", "TIME", "", "remove the job if it cannot end by then"),
    ("dependency", "d", V, "BRA", "R:DEPENDENCY", "SPEC", "", "start after other jobs: afterok:ID[:ID]"),
    ("error", "e", V, "BR", "B:ERROR R:!SRUN_ERROR R:STDERRMODE", "PATTERN", "", "file of the error output"),
    ("exclude", "x", V, "BRA", "B:EXCLUDE", "HOSTS", "", "nodes not to use"),
    ("exclusive", "", O, "BRA", "EXCLUSIVE", "user", " no user", "whole nodes, or nodes of no other user"),
    ("export", "", V, "BR", "B:EXPORT R:!SRUN_EXPORT_ENV R:EXPORT_ENV", "LIST", "", "variables the job gets"),
    ("extra-node-info", "B", V, "BRA", "", "S[:C[:T]]", "", "nodes with such sockets, cores, threads"),
    ("export-file", "", V, "B", "", "FILE", "", "file or descriptor with NUL-separated variables"),
    ("gpus", "G", V, "BRA", "GPUS", "[TYPE:]N", "", "GPUs of the whole job"),
    ("gpus-per-socket", "", V, "BRA", "GPUS_PER_SOCKET", "[TYPE:]N", "", "GPUs of each socket"),
    ("gpus-per-node", "", V, "BRA", "GPUS_PER_NODE", "[TYPE:]N", "", "GPUs of each node"),
    ("gpus-per-task", "", V, "BRA", "GPUS_PER_TASK", "[TYPE:]N", "", "GPUs of each task"),
    (
        "hint",
        "",
        V,
        "BRA",
        "HINT",
        "KIND",
        "compute_bound multithread nomultithread",
        "which threads of a core are used",
    ),
    ("gres", "", V, "BRA", "GRES", "LIST", "", "generic resources of each node"),
    ("hold", "H", F, "BRA", "", "", "", "queue the job held"),
    ("immediate", "I", O, "RA", "IMMEDIATE", "SECS", "", "fail when it cannot start at once"),
    ("input", "i", V, "BR", "B:INPUT R:!SRUN_INPUT R:STDINMODE", "PATTERN", "", "file of the standard input"),
    ("job-name", "J", V, "BRA", "B:JOB_NAME R:JOB_NAME", "NAME", "", "name of the job"),
    ("kill-on-invalid-dep", "", V, "B", "", "yes|no", "", "end the job when its dependency cannot be met"),
    ("label", "l", F, "R", "LABELIO", "", "", "put the task's rank before each line"),
    ("mem-per-gpu", "", V, "BRA", "MEM_PER_GPU", "SIZE", "", "memory of each GPU"),
    (
        "mem",
        "",
        V,
        "BRA",
        "B:MEM_PER_NODE B:MEM R:MEM_PER_NODE A:MEM_PER_NODE",
        "SIZE",
        "",
        "memory of each node",
    ),
    ("mem-per-cpu", "", V, "BRA", "MEM_PER_CPU", "SIZE", "", "memory of each CPU"),
    ("mincpus", "", V, "BRA", "", "N", "", "CPUs of each node, at least"),
    ("nice", "", O, "BRA", "", "N", "", "lower the priority"),
    ("nodefile", "F", V, "BRA", "", "FILE", "", "file with node names"),
    ("nodelist", "w", V, "BRA", "B:NODELIST", "HOSTS", "", "nodes to use"),
    ("nodes", "N", V, "BRA", "R:JOB_NUM_NODES R:NNODES", "MIN[-MAX]", "", "number of nodes"),
    ("no-requeue", "", F, "B", "NO_REQUEUE", "", "", "never requeue the job"),
    ("ntasks", "n", V, "BRA", "R:NTASKS R:NPROCS", "N", "", "number of tasks"),
    ("ntasks-per-core", "", V, "BRA", "R:NTASKS_PER_CORE", "N", "", "tasks of each core, at most"),
    ("ntasks-per-gpu", "", V, "BRA", "R:NTASKS_PER_GPU", "N", "", "tasks of each GPU"),
    ("ntasks-per-socket", "", V, "BRA", "R:NTASKS_PER_SOCKET", "N", "", "tasks of each socket, at most"),
    ("ntasks-per-node", "", V, "BRA", "R:NTASKS_PER_NODE", "N", "", "tasks of each node"),
    ("open-mode", "", V, "BR", "OPEN_MODE", "append|truncate", "", "how output files are opened"),
    ("output", "o", V, "BR", "B:OUTPUT R:!SRUN_OUTPUT R:STDOUTMODE", "PATTERN", "", "file of the output"),
    ("oversubscribe", "s", F, "BRA", "", "", "", "share CPUs with other jobs where the partition permits it"),
    ("parsable", "", F, "B", "", "", "", "print only the job id"),
    ("partition", "p", V, "BRA", "PARTITION", "LIST", "", "partition to use, or any of several"),
    ("priority", "", V, "BRA", "", "N", "", "priority (administrators)"),
    ("propagate", "", O, "BR", "", "LIMITS", "", "resource limits of this shell that the job gets"),
    ("qos", "q", V, "BRA", "QOS", "NAME", "", "quality of service"),
    ("quiet", "Q", F, "BRA", "", "", "", "print no information"),
    ("requeue", "", F, "B", "REQUEUE", "", "", "requeue the job when its node fails"),
    ("reservation", "", V, "BRA", "RESERVATION", "NAMES", "", "run in this reservation, or any of several"),
    ("licenses", "L", V, "BRA", "", "NAME:N,...", "", "licences that the job holds; a|b = one of them"),
    ("sockets-per-node", "", V, "BRA", "R:NSOCKETS_PER_NODE", "N", "", "nodes with so many sockets"),
    ("spread-job", "", F, "BRA", "", "", "", "as many nodes as possible"),
    (
        "switches",
        "",
        V,
        "BRA",
        "REQ_SWITCH",
        "N[@TIME]",
        "",
        "leaf switches at most, and how long to wait for them",
    ),
    ("test-only", "", F, "BR", "", "", "", "only check; nothing is queued"),
    (
        "threads-per-core",
        "",
        V,
        "BRA",
        "THREADS_PER_CORE",
        "N",
        "",
        "threads of a core that are used",
    ),
    ("time", "t", V, "BRA", "TIMELIMIT", "TIME", "", "time limit"),
    ("time-min", "", V, "BRA", "", "TIME", "", "time limit that would do, for an earlier start"),
    ("tmp", "", V, "BRA", "", "SIZE", "", "temporary disk of each node"),
    ("use-min-nodes", "", F, "BRA", "", "", "", "the fewest nodes of a range"),
    ("wait", "W", F, "B", "WAIT", "", "", "wait for the end and exit as the job did"),
    ("wait", "W", V, "R", "WAIT", "SECS", "", "end the step so long after its first task has ended"),
    ("wckey", "", V, "BRA", "WCKEY", "KEY", "", "key kept with the job for reports"),
    ("wrap", "", V, "B", "", "COMMAND", "", "make a script of this command"),
    ("disable-status", "X", F, "R", "DISABLE_STATUS", "", "", "the first interrupt goes to the tasks"),
    ("quit-on-interrupt", "", F, "R", "", "", "", "one interrupt ends the step"),
    ("jobid", "", V, "R", "", "ID", "", "run a step in the allocation of that job"),
    ("signal", "", V, "BRA", "SIGNAL", "[B:]SIG[@SECS]", "", "signal so long before the limit (60 s)"),
    ("interactive", "", F, "R", "", "", "", "the job's interactive step, beside all others"),
    ("mpi", "", V, "R", "MPI_TYPE", "TYPE", "", "none, pmi2; list prints what there is"),
    (
        "cpu-bind",
        "",
        V,
        "R",
        "CPU_BIND",
        "TYPE",
        "",
        "bind tasks to CPUs: none, threads, cores, map_cpu:, ...",
    ),
    (
        "distribution",
        "m",
        V,
        "BRA",
        "DISTRIBUTION",
        "KIND",
        "",
        "how tasks lie on nodes: block, cyclic, plane=N",
    ),
    ("exact", "", F, "R", "EXACT", "", "", "the step takes only the CPUs that it asks for"),
    ("whole", "", F, "R", "", "", "", "the step takes all of the job's CPUs on its nodes"),
    ("overlap", "", O, "R", "OVERLAP", "force|no", "", "share CPUs, memory and GPUs with other steps"),
    (
        "external-launcher",
        "",
        F,
        "R",
        "EXTERNAL_LAUNCHER",
        "",
        "",
        "as --overlap: the step only starts others",
    ),
    ("overcommit", "O", F, "R", "OVERCOMMIT", "", "", "more tasks than CPUs are allowed"),
    ("kill-on-bad-exit", "K", O, "R", "KILL_BAD_EXIT", "0|1", "", "a task that fails ends the step"),
    ("multi-prog", "", F, "R", "!SRUN_MULTI", "", "", "the command is a file that names a program per task"),
    ("relative", "r", V, "R", "", "N", "", "begin on this node of the allocation, from 0"),
    ("pty", "", O, "R", "", "FD", "", "run task 0 on a terminal"),
    ("prolog", "", V, "R", "PROLOG", "PROGRAM", "", "run this here before the step"),
    ("epilog", "", V, "R", "EPILOG", "PROGRAM", "", "run this here after the step"),
    ("task-prolog", "", V, "R", "TASK_PROLOG", "PROGRAM", "", "run this before each task"),
    ("task-epilog", "", V, "R", "TASK_EPILOG", "PROGRAM", "", "run this after each task"),
    ("gpu-bind", "", V, "R", "GPU_BIND", "TYPE", "", "bind tasks to GPUs: none, map_gpu:, single:N, ..."),
    ("bell", "", F, "A", "BELL", "", "", "ring the bell when the allocation is there"),
    ("no-bell", "", F, "A", "NO_BELL", "", "", "never ring the bell"),
    (
        "kill-command",
        "K",
        O,
        "A",
        "KILL_CMD",
        "SIGNAL",
        "",
        "signal for the command when the allocation ends",
    ),
    ("no-shell", "", F, "A", "", "", "", "allocate and exit; the job stays"),
    # Accepted without an effect, because what they ask for is what happens anyway.
    ("get-user-env", "", O, "B", "GET_USER_ENV", "", "", "=the node builds the login variables when needed"),
    ("ignore-pbs", "", F, "B", "IGNORE_PBS", "", "", "=#PBS and #BSUB lines are always comments"),
    ("unbuffered", "u", F, "R", "UNBUFFEREDIO", "", "", "=output is never held back"),
    (
        "wait-all-nodes",
        "",
        V,
        "BA",
        "WAIT_ALL_NODES",
        "0|1",
        "",
        "=a job starts when all its nodes are ready",
    ),
    ("no-kill", "k", O, "BRA", "NO_KILL", "off", "off", "=only off: a lost node ends the job"),
    ("mem-bind", "", V, "BRA", "MEM_BIND", "none", "none no q quiet", "=only none: memory is not bound"),
    ("gpu-bind", "", V, "BA", "GPU_BIND", "none", "none", "=only none: tasks see the GPUs of their node"),
    ("mail-type", "", V, "BRA", "", "NONE", "none", "=only NONE: no mail is sent"),
    ("profile", "", V, "BRA", "PROFILE", "none", "none", "=only none: there is no profiling"),
    ("threads", "T", V, "R", "", "N", "", "=sizes Slurm's own launcher"),
    ("treewidth", "", V, "R", "", "N", "", "=sizes Slurm's own message tree"),
    ("msg-timeout", "", V, "R", "", "SECS", "", "=for Slurm's own messages"),
    ("slurmd-debug", "", V, "R", "", "LEVEL", "", "=for Slurm's own log"),
    ("debugger-test", "", F, "R", "", "", "", "=for Slurm's own tests"),
)

#: Options that Slurm has and this release has not: refused by name.  "name[:short[:form[:commands]]]".
REFUSED = """
acctg-freq::1 batch::1:B bb::1 bbf::1 cluster-constraint::1 container::1 container-id::1 core-spec:S:1
cpu-freq::1 delay-boot::1 extra::1 gid::1 gpu-freq::1 gres-flags::1 mail-user::1 mcs-label::1
network::1 overcommit:O:0:BA power::1 prefer::1 reboot resv-ports::2 segment::1
stepmgr thread-spec::1 topology::1 tres-bind::1 tres-per-task::1 uid::1 oom-kill-step::2
container-image::1:BR container-mounts::1:BR container-workdir::1:BR container-name::1:BR
container-readonly::0:BR container-mount-home::0:BR container-env::1:BR container-entrypoint::1:BR
container-remap-root::0:BR accel-bind::1:R bcast::2:R bcast-exclude::1:R compress::2:R send-libs::2:R
het-group::1:R no-allocate:Z:0:R preserve-env:E:0:R x11::2:RA
"""

#: Values that may hold any bytes: parts of the script and of the environment, and files of this host.
_RAW = ("wrap", "export", "export-file", "nodefile", "prolog", "epilog")
_RAW_OF_SRUN = ("output", "error", "input")
_SYNONYMS = {
    "cluster": "clusters",
    "tasks-per-node": "ntasks-per-node",
    "workdir": "chdir",
    "pack-group": "het-group",
    "runtime": "container",
}
_VARIABLES_OF_REFUSED = {
    "acctg-freq": "ACCTG_FREQ",
    "bb": "BURST_BUFFER",
    "core-spec": "CORE_SPEC",
    "cpu-freq": "CPU_FREQ_REQ",
    "delay-boot": "DELAY_BOOT",
    "gres-flags": "GRES_FLAGS",
    "network": "NETWORK",
    "overcommit": "OVERCOMMIT",
    "thread-spec": "THREAD_SPEC",
}


def table(letter: str) -> Table:
    """The options of sbatch ("B"), srun ("R") or salloc ("A")."""
    prefix = {"B": "SBATCH", "R": "SLURM", "A": "SALLOC"}[letter]
    options = []
    for name, short, form, commands, variables, metavar, refuse, text in ROWS:
        if letter not in commands:
            continue
        idle, help_text = (text[1:], "") if text.startswith("=") else ("", text)
        options.append(
            Option(
                name,
                short,
                form,
                help_text,
                metavar=metavar,
                env=_variables(variables, letter, prefix),
                refuse=refuse,
                idle=idle,
                raw=name in _RAW or (letter == "R" and name in _RAW_OF_SRUN),
            )
        )
    for word in REFUSED.split():
        name, short, form_text, commands = [*word.split(":"), "", "", ""][:4]
        if letter not in (commands or "BRA"):
            continue
        stem = _VARIABLES_OF_REFUSED.get(name, "")
        options.append(
            Option(name, short, int(form_text or 0), env=_variables(stem, letter, prefix), refuse="*")
        )
    env = () if letter == "R" else (f"{prefix}_CLUSTERS",)
    have = {option.name for option in options}
    return Table(
        [*options, cluster_option(env), *common()],
        synonyms={alias: name for alias, name in _SYNONYMS.items() if name in have or name == "clusters"},
        in_order=True,
        synopsis="[OPTIONS] "
        + {"B": "SCRIPT [ARGS]", "R": "COMMAND [ARGS]", "A": "[COMMAND [ARGS]]"}[letter],
    )


def _variables(stems: str, letter: str, prefix: str) -> tuple[str, ...]:
    """Names of the variables, our own twin first where Slurm has a plain stem."""
    out: list[str] = []
    for word in stems.split():
        owner, colon, stem = word.partition(":")
        if not colon:
            owner, stem = letter, word
        if owner != letter:
            continue
        if stem.startswith("!"):
            out.append(stem[1:])
        else:
            out += [f"SPUR_{stem}"] if letter == "B" and stem not in _NOT_TWINNED else []
            out.append(f"{prefix}_{stem}")
    return tuple(out)


#: A job exports SPUR_ twins of these, and sbatch inside a job must not take them from the enclosing one.
_TWINLESS = """
JOB_NAME NODELIST MEM_PER_NODE MEM_PER_CPU GPUS GPUS_PER_NODE GPUS_PER_TASK DISTRIBUTION HINT THREADS_PER_CORE
OVERCOMMIT PROFILE MEM GRES EXCLUDE EXPORT ERROR OUTPUT INPUT CPUS_PER_GPU MEM_PER_GPU GPUS_PER_SOCKET
"""
_NOT_TWINNED = frozenset(_TWINLESS.split())
