"""Limits of associations and QOS, as a check inside the scheduling pass.  Pure.

`tables` holds what was set, `footprint` says what a job counts as, `counters` what is in use, `check` gives
the verdict with Slurm's exact reason; `submit` and `accrual` are the same for who comes in and for whose age
counts.
"""
