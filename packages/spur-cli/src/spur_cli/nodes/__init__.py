"""Nodes and partitions: sinfo."""
