"""`python -m spur_sched.simulate`."""

import sys

from spur_sched.simulate.program import main

if __name__ == "__main__":
    sys.exit(main())
