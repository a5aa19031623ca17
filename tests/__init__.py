"""Tests, by tier: unit mirrors the tree; property, contract, slurm and bench beside it."""
