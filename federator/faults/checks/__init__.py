"""The model that checks the promises: it sees what Slurm ran and what clients were answered."""
