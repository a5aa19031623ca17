"""Stand-ins for what a test must not touch: the clock, Slurm, the network."""
