"""Slurm's commands and texts as values, and values as Slurm's commands."""
