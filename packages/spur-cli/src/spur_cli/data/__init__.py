"""`--json` and `--yaml`: the trees of Slurm's data parser, and how they are written."""
