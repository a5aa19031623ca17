"""Federator: many Slurm clusters act as one GPU fleet. Start with docs/architecture.md."""

__version__ = "0.1.0"
