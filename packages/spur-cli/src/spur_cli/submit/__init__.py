"""Submitting work: sbatch, and what srun shares with it."""
