"""When srun ends a step by itself: `--kill-on-bad-exit` and `--wait`.  Pure."""


class EndRules:
    """Looks at the ends of tasks; the answer is whether the step is to be terminated now.

    kill_bad: a task that ends badly ends the step.
    wait_secs: seconds from the first end to the step's; 0 = no limit.
    """

    def __init__(self, *, kill_bad: bool, wait_secs: int) -> None:
        self._kill_bad = kill_bad
        self.wait_secs = wait_secs
        self._first_at: float | None = None
        self._decided = False

    def task_ended(self, *, bad: bool, now: float) -> bool:
        """One task has ended; `now` is any clock that only goes forward, seconds."""
        if self._first_at is None:
            self._first_at = now
        if bad and self._kill_bad and not self._decided:
            self._decided = True
            return True
        return False

    def time_passed(self, now: float) -> bool:
        """Some tasks still run."""
        if self._decided or not self.wait_secs or self._first_at is None:
            return False
        if now - self._first_at < self.wait_secs:
            return False
        self._decided = True
        return True
