"""A complete cluster on this machine: `spur up`, `down`, `restart`, `demo`."""
