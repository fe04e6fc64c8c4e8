"""Which job comes first: Slurm's multifactor priority, the simple formula, and fair shares.  Pure.

`factors` says what the priority of one job is made of, `multifactor` adds it up (for one job, or for a whole
queue at once), `basic` is the simple formula; `fairtree` and `decay` turn usage into fair shares, which reach
the others through the border in `shares`.
"""
