"""Job history: sacct."""
