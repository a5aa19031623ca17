"""Slurm's commands and texts as values, and values as Slurm's commands.

sbatch, scancel and signals are called in ``site_exec``, which runs in a process of its own as the
user (``fed-site-exec``); nothing imports it. ``client`` asks it by its path, and calls squeue,
sinfo, sacct and scontrol itself.
"""
