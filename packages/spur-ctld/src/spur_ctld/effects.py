"""From events to effects: what was committed is carried out, now or by the next start."""

from collections.abc import Callable, Sequence

from spur_ctld.dispatch.fencing import Fencer
from spur_ctld.dispatch.launcher import Launcher
from spur_ctld.dispatch.steps import StepRunner
from spur_ctld.dispatch.suspending import Suspender
from spur_ctld.dispatch.warning import Warner
from spur_ctld.ledger import Ledger
from spur_ctld.state.events import (
    DispatchRequested,
    Event,
    FenceRequested,
    OutboxGrew,
    PreemptRequested,
    StepChanged,
    SuspendRequested,
    WarnRequested,
)


class Effects:
    """Listens to the ledger.

    Args:
        outbox_grew: there is something to write to the accounting database.
    """

    def __init__(
        self,
        ledger: Ledger,
        launcher: Launcher,
        fencer: Fencer,
        steps: StepRunner,
        suspender: Suspender,
        warner: Warner,
        outbox_grew: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._launcher = launcher
        self._fencer = fencer
        self._steps = steps
        self._suspender = suspender
        self._warner = warner
        self._outbox_grew = outbox_grew

    def start(self) -> None:
        """Take up everything that the state leaves open, then follow it.

        1. fences go on from their targets that are not confirmed;
        2. attempts in CONFIGURING are asked about, never launched again;
        3. steps likewise; those recorded to end are ended;
        4. nodes that were not told of a suspension, or of its end, are told;
        5. processes that were not told of their preemption are.
        """
        self._ledger.subscribe(self._on_events)
        state = self._ledger.state
        for job_id in sorted(state.active):
            job = state.jobs[job_id]
            self._fencer.look(job)
            self._launcher.resume(job)
            self._steps.resume(job)
            self._suspender.look(job)
            self._warner.look(job)

    def stop(self) -> None:
        """Follow the state no longer."""
        self._ledger.unsubscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        jobs = self._ledger.state.jobs
        for event in events:
            if isinstance(event, DispatchRequested):
                job = jobs.get(event.job_id)
                if job is not None and job.run_attempt == event.attempt:
                    self._launcher.look(job)
            elif isinstance(event, FenceRequested):
                job = jobs.get(event.job_id)
                if job is not None and job.run_attempt == event.attempt:
                    self._fencer.look(job)
            elif isinstance(event, StepChanged):
                job = jobs.get(event.job_id)
                if job is not None and job.run_attempt == event.attempt and event.step_id in job.steps:
                    self._steps.look(job, job.steps[event.step_id])
            elif isinstance(event, SuspendRequested):
                job = jobs.get(event.job_id)
                if job is not None and job.run_attempt == event.attempt:
                    self._suspender.look(job)
            elif isinstance(event, (PreemptRequested, WarnRequested)):
                job = jobs.get(event.job_id)
                if job is not None and job.run_attempt == event.attempt:
                    self._warner.look(job)
            elif isinstance(event, OutboxGrew):
                self._outbox_grew()
