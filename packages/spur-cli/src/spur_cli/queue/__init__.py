"""The queue: squeue and scancel."""
