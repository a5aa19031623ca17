"""Tests, by tier: unit mirrors the tree; property, scenarios, contract, slurm, bench beside it."""
