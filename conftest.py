"""What every test of the workspace shares.  The plug-ins are in tools/testkit."""

pytest_plugins = (
    "testkit.properties",
    "testkit.failures",
    "testkit.skips",
    "testkit.leaks",
    "testkit.postgres",
    "testkit.crashes",
)
