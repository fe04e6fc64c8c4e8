"""Shared vocabulary and pure grammar of SPUR; importing a submodule pulls in nothing else."""

__version__ = "0.1.0"
