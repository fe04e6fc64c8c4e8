"""Faults that the tests of requirements V1 to V25 must notice: each an edit of the sources, by name.

A fault whose text is no longer in the sources is reported by `mutate.py` as stale, and by a test in
test_mutations.py, so that the list keeps up with the code.
"""

from typing import NamedTuple

AGENT = "packages/spur-agent/src/spur_agent"
STEPD = "packages/spur-stepd/src/spur_stepd"
CTLD = "packages/spur-ctld/src/spur_ctld"
CORE = "packages/spur-core/src/spur_core"
LITE = "packages/spur-proto-lite/src/spur_proto_lite"
AGENT_TESTS = "packages/spur-agent/tests"
STEPD_TESTS = "packages/spur-stepd/tests"
CTLD_TESTS = "packages/spur-ctld/tests"
DAEMONS = "integration/matrix/test_requirements_v.py"


class Edit(NamedTuple):
    """`old`, which is in the file exactly once, becomes `new`."""

    file: str
    old: str
    new: str


class Mutation(NamedTuple):
    """One fault.

    number: of the requirement.
    fault: for people.
    test: pytest's node id; one of its cases must fail.
    """

    number: int
    fault: str
    test: str
    edits: tuple[Edit, ...]


def _one(number: int, fault: str, test: str, file: str, old: str, new: str) -> Mutation:
    return Mutation(number, fault, test, (Edit(file, old, new),))


MUTATIONS: tuple[Mutation, ...] = (
    _one(
        1,
        "the agent looks for the targets of a cancel by job alone",
        f"{DAEMONS}::test_v01_what_was_meant_for_attempt_n_does_not_touch_attempt_n_plus_1",
        f"{AGENT}/control_calls.py",
        "        found = self._table.of_attempt(rid.job_id, rid.run_attempt)\n",
        "        found = self._table.of_job(rid.job_id)\n",
    ),
    _one(
        1,
        "the supervisor does not compare the identity",
        f"{STEPD_TESTS}/test_stepd_batch.py::test_v01_another_identity_is_refused_and_changes_nothing",
        f"{STEPD}/requests.py",
        "        if request.rid != held:\n",
        "        if request.rid.job_id != held.job_id:\n",
    ),
    _one(
        1,
        "the controller sends orders without an attempt",
        f"{CTLD_TESTS}/shell/test_shell_exact.py::test_v01_attempt_zero_never_leaves",
        f"{CTLD}/dispatch/exact.py",
        "    if not rid.job_id or not rid.run_attempt or (",
        "    if not rid.job_id or (",
    ),
    _one(
        2,
        "a controller that finds a dispatch does not ask who holds it",
        f"{DAEMONS}::test_v02_the_controller_dies_between_the_agents_answers_and_the_commit",
        f"{CTLD}/dispatch/launcher.py",
        "            if answer is not None and answer.active:\n                answers[node]",
        "            if answer is not None and answer.exit.code:\n                answers[node]",
    ),
    _one(
        2,
        "a completion is applied whatever its attempt",
        f"{CTLD_TESTS}/state/test_state_complete.py::test_v02_stale_reports_change_nothing",
        f"{CTLD}/state/apply_complete.py",
        "    if op.attempt != job.run_attempt or job.dispatch_at is None:\n",
        "    if job.dispatch_at is None:\n",
    ),
    _one(
        2,
        "a launch that waited for its turn is not compared with the term again",
        f"{AGENT_TESTS}/test_agent_failover.py"
        "::test_v02_an_order_that_waits_for_its_turn_is_overtaken_by_a_new_leader",
        f"{AGENT}/launch.py",
        "        site.terms.check(order.term)\n",
        "        pass\n",
    ),
    _one(
        2,
        "a probe does not tell the agent who leads",
        f"{AGENT_TESTS}/test_agent_failover.py::test_v02_a_beat_tells_the_term_and_a_probe_too",
        f"{AGENT}/control_calls.py",
        "        if request.term:  # a controller of the release before tells none\n",
        "        if False:\n",
    ),
    _one(
        2,
        "the highest term is forgotten with the agent",
        f"{AGENT_TESTS}/test_agent_failover.py::test_v02_lower_terms_are_refused_also_after_a_restart",
        f"{AGENT}/daemon.py",
        "        self._terms = Terms(runtime.paths.runtime).load()\n",
        "        self._terms = Terms(runtime.paths.runtime)\n",
    ),
    _one(
        3,
        "the agent does not look at the step of an order",
        f"{DAEMONS}::test_v03_batch_extern_and_numbered_steps_live_and_die_apart",
        f"{AGENT}/control_calls.py",
        "            found = [s for s in found if s.rid.step_id == rid.step_id]\n",
        "            found = list(found)\n",
    ),
    _one(
        4,
        "a package that the supervisor needs is not among its dependencies",
        "integration/packaging/test_supervisor_environment.py::test_v04_one_job_over_its_socket",
        "packages/spur-stepd/pyproject.toml",
        ', "spur-proto-lite>=0.1,<0.2"]',
        "]",
    ),
    _one(
        5,
        "signals go to descendants only, not to who is known by the group",
        f"{STEPD_TESTS}/test_stepd_groups.py::test_v05_a_process_known_only_by_its_group_is_reached",
        f"{STEPD}/targets.py",
        "        if self.groups:\n            try:\n                found = cgroup.procs(self.groups)\n",
        "        if not self.groups:\n            try:\n                found = cgroup.procs(self.groups)\n",
    ),
    Mutation(
        6,
        "an empty group counts as a delivery",
        f"{STEPD_TESTS}/test_stepd_groups.py::test_v06_an_empty_group_is_not_a_delivery",
        (
            Edit(
                f"{STEPD}/targets.py",
                "            if found:\n                return _w",
                "            if True:\n                return _w",
            ),
            Edit(f"{STEPD}/targets.py", "            if sent.reached:\n", "            if self.groups:\n"),
        ),
    ),
    _one(
        7,
        "nobody looks whether the supervisor's program is there",
        f"{AGENT_TESTS}/test_agent_launch.py::test_v07_a_missing_supervisor_program_fails_fast_and_leaves_nothing",
        f"{AGENT}/program.py",
        '        raise ProgramUnusable(f"supervisor program {path}: {error.strerror}") from None\n',
        "        return Signature(0, 0, error.errno or 0)\n",
    ),
    _one(
        8,
        "a stop does not compare start ticks",
        f"{AGENT_TESTS}/test_agent_host.py::test_v08_a_stop_reaches_nobody_but_the_supervisor_it_means",
        f"{CORE}/linux/pidfd.py",
        "    if procfs.is_alive(who):\n        return fd\n",
        "    if procfs.stat(who.pid) is not None:\n        return fd\n",
    ),
    _one(
        9,
        "a damaged descriptor counts as a step that never began",
        f"{AGENT_TESTS}/test_agent_recovery.py::test_v09_a_corrupt_descriptor_is_fenced_by_its_directory_name",
        f"{AGENT}/classify.py",
        "        return Found.FINISHED if seen.exited else Found.CORRUPT\n",
        "        return Found.FINISHED if seen.exited else Found.UNSTARTED\n",
    ),
    _one(
        10,
        "a directory that is there is made private instead of verified",
        f"{AGENT_TESTS}/test_agent_host.py::test_v10_a_loose_or_symlinked_runtime_is_refused_and_not_repaired",
        f"{CORE}/linux/private_dir.py",
        "        if made:\n",
        "        if True:\n",
    ),
    _one(
        11,
        "supervisors push to another socket than the agent's",
        f"{AGENT_TESTS}/test_agent_completion.py::test_v11_a_completion_comes_by_push_and_none_by_replay",
        f"{STEPD}/supervisor.py",
        "self.state_paths.notify_sock, self",
        'f"{self.state_paths.runtime}/notify", self',
    ),
    _one(
        12,
        "a step that has ended already when it is claimed is taken for acknowledged",
        f"{AGENT_TESTS}/test_agent_completion.py::test_v12_a_job_that_ends_before_the_next_agent_claims_it_is_told_once",
        f"{AGENT}/classify.py",
        "    if seen.exited:\n        return Found.FINISHED\n    if seen.abandoned:",
        "    if seen.exited:\n        return Found.DONE\n    if seen.abandoned:",
    ),
    _one(
        13,
        "a push that matches no session is accepted",
        f"{AGENT_TESTS}/test_agent_completion.py::test_v13_a_push_for_an_unknown_session_is_deferred_and_nothing_is_lost",
        f"{AGENT}/keeper.py",
        "notify.KNOWN if said.rid in self._ledger else notify.DEFERRED",
        "notify.KNOWN if said.rid in self._ledger else notify.ACCEPTED",
    ),
    _one(
        14,
        "the exit is not on the disk when the epilog runs",
        f"{STEPD_TESTS}/test_stepd_lifetime.py::test_v14_the_exit_is_kept_when_the_supervisor_dies_in_the_epilog",
        f"{STEPD}/supervisor.py",
        '            seq = self.journal.append(EXIT_OBSERVED, time.time(), {"exit": self.exit.to_json()})\n',
        "            seq = 3\n",
    ),
    _one(
        15,
        "an epilog's result that comes after the report is not told",
        f"{AGENT_TESTS}/test_agent_completion.py::test_v15_a_result_that_comes_after_the_report_drains_exactly_once",
        f"{AGENT}/delivery.py",
        "        if epilog_error(session) and not told:\n",
        "        if epilog_error(session) and told:\n",
    ),
    _one(
        16,
        "a torn last line is damage",
        f"{AGENT_TESTS}/test_agent_completion.py::test_v16_a_torn_last_line_is_no_damage",
        f"{LITE}/journal.py",
        "        if end < 0:\n            return Loaded(tuple(entries), good, True)\n",
        '        if end < 0:\n            raise CorruptJournal("torn")\n',
    ),
    _one(
        17,
        "the supervisor reads no evidence of an out-of-memory kill",
        f"{STEPD_TESTS}/test_stepd_signals.py::test_v17_out_of_memory_is_told_and_ends_the_step",
        f"{STEPD}/supervisor.py",
        "            killed = self.oom.killed_among(ends, self._kill_ordered)\n",
        "            killed = 0\n",
    ),
    _one(
        18,
        "a recovery report may name any node",
        f"{CTLD_TESTS}/shell/test_shell_recovery.py::test_v18_reports_that_prove_nothing_have_no_effect",
        f"{CTLD}/api/agent_calls.py",
        "        node_identity.require_speaker(site, node, identity)\n",
        "",
    ),
    _one(
        18,
        "a recovery report may name jobs of other nodes",
        f"{CTLD_TESTS}/shell/test_shell_recovery.py::test_v18_runs_that_are_not_the_reporters_have_no_effect",
        f"{CTLD}/recovery/policy.py",
        "    if cohort is None or node not in cohort.nodes:\n        return Standing.ELSEWHERE\n",
        "    if cohort is None:\n        return Standing.ELSEWHERE\n",
    ),
    _one(
        19,
        "anybody with the cluster's key gets a live node's name",
        f"{CTLD_TESTS}/shell/test_shell_node_names.py::test_v19_a_stranger_cannot_take_a_live_nodes_name",
        "packages/spur-auth/src/spur_auth/node_names.py",
        "        if name is Name.HELD and not is_holder(identity, held_by):\n",
        "        if name is Name.FREE and not is_holder(identity, held_by):\n",
    ),
    Mutation(
        20,
        "the log takes a second fence of an attempt that is fenced",
        f"{CTLD_TESTS}/shell/test_shell_recovery.py::test_v20_the_log_itself_takes_only_one_of_two_fences",
        (
            Edit(
                f"{CTLD}/state/apply_fence.py",
                "    if op.recovery and job.fence is not None:\n",
                "    if op.recovery and job.fence is None and not job.held:\n",
            ),
            Edit(
                f"{CTLD}/state/endings.py",
                "    if not may_fence(job, fence.outcome):\n",
                "    if job.fence is None and not may_fence(job, fence.outcome):\n",
            ),
        ),
    ),
    _one(
        21,
        "an incomplete cohort is never given up",
        f"{CTLD_TESTS}/shell/test_shell_recovery.py::test_v21_an_incomplete_cohort_is_fenced_at_the_deadline",
        f"{CTLD}/recovery/cohorts.py",
        "            if late:\n",
        "            if late and not missing:\n",
    ),
    _one(
        21,
        "a complete cohort is given up all the same",
        f"{CTLD_TESTS}/shell/test_shell_recovery.py::test_v21_a_complete_cohort_is_kept",
        f"{CTLD}/recovery/cohorts.py",
        "        return sorted(cohort.nodes - cohort.ended - window.confirmed)\n",
        "        return sorted(cohort.nodes - cohort.ended)\n",
    ),
    _one(
        22,
        "a key in a file is not the key",
        f"{CTLD_TESTS}/shell/test_shell_node_names.py::test_v22_a_key_in_a_file_is_the_key",
        f"{CORE}/config/secret.py",
        "        return read_key_file(auth.jwt_key_file)\n    return None\n",
        "        read_key_file(auth.jwt_key_file)\n    return None\n",
    ),
    _one(
        23,
        "an empty work dir is the supervisor's own",
        f"{STEPD_TESTS}/test_stepd_survival.py::test_v23_scratch_instead_of_a_bad_work_dir",
        f"{STEPD}/prepare.py",
        '    wanted, why = spec.work_dir, ""\n',
        '    wanted, why = spec.work_dir or os.getcwd(), ""\n',
    ),
    _one(
        23,
        "attempts share their scratch directory",
        f"{STEPD_TESTS}/test_stepd_survival.py::test_v23_scratch_instead_of_a_bad_work_dir",
        f"{LITE}/paths.py",
        '    return f"{rid.job_id}.{rid.run_attempt}"\n',
        '    return f"{rid.job_id}"\n',
    ),
    _one(
        24,
        "the agent takes no lock",
        f"{AGENT_TESTS}/test_agent_host.py::test_v24_a_second_agent_in_the_same_state_directory_is_refused",
        f"{AGENT}/runtime_dir.py",
        "        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        fcntl.flock(lock_fd, fcntl.LOCK_UN)\n",
    ),
    _one(
        25,
        "the unit's kill mode is the manager's default",
        "integration/packaging/test_unit_files.py::test_v25_stopping_the_agent_leaves_jobs_alone",
        "deploy/systemd/spurd.service",
        "KillMode=process\nDelegate",
        "KillMode=control-group\nDelegate",
    ),
    _one(
        25,
        "supervisors stay in the agent's group",
        f"{DAEMONS}::test_v25_supervisors_are_outside_the_agents_group",
        f"{STEPD}/run.py",
        "        cgroup.join_supervisors(root)\n",
        "        pass\n",
    ),
    _one(
        25,
        "a unit that would kill steps is not complained about",
        f"{AGENT_TESTS}/test_agent_host.py::test_v25_only_a_unit_that_would_kill_steps_is_complained_about",
        f"{AGENT}/killmode.py",
        "    if not unit or outside or mode in _SPARING:\n",
        "    if not unit or outside or mode:\n",
    ),
)
