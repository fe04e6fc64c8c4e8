"""What the agent and the supervisor share of the kernel; each submodule stands alone."""
