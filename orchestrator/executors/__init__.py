"""Where jobs run: one Protocol, a local and a Slurm implementation."""
