"""`python -m spur_agent`: the same as the program `spurd`."""

import sys

from spur_agent.main import main

sys.exit(main())
