"""srun: run a command on allocated nodes with its input and output here."""
