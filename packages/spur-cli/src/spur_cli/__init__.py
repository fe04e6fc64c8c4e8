"""The command line: spur and the Slurm names."""

__version__ = "0.1.0"
