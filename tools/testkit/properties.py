"""Settings of hypothesis for every suite: no database file, no deadline (shared cores), repeatable in CI."""

import os

from hypothesis import settings

settings.register_profile("spur", database=None, deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("spur")
