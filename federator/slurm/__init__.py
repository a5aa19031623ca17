"""Slurm's commands and texts as values, and values as Slurm's commands.

sbatch, scancel and signals are called in ``site_exec``, which runs in a process of its own as the
user (``fed-site-exec``); nothing imports it. ``helper_client`` asks it by its path. ``client``
calls squeue, sacct and scontrol.
"""
