"""The per-step supervisor: owns a step's process tree, cgroup and exit status."""

__version__ = "0.1.0"
