"""scontrol: show and change jobs, nodes, partitions and settings."""
