"""Three dockerised Slurm clusters of three generations: what the daemon is tried out on."""
