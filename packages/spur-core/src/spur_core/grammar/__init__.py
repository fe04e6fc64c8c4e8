"""The grammars of Slurm's command line as pure functions; each submodule stands alone."""
