"""Reservations: when they hold, whom they let in, which nodes they take.  Pure.

`windows` gives what a scheduling pass goes by, `Shade` says where and when a job may be because of them.
"""

from spur_sched.reservations.shade import Shade
from spur_sched.reservations.windows import windows

__all__ = ["Shade", "windows"]
