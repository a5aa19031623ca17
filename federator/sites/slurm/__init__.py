"""Slurm as a site: options in, job scripts out, records read, whatever its release."""
