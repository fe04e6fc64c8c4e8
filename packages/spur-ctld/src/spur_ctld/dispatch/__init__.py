"""Effects on nodes that follow from committed state: launching, fencing, signalling."""
