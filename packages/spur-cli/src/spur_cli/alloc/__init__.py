"""Allocations: salloc, and what an allocation says of itself in variables."""
