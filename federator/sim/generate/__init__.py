"""Generators of workloads where there is no trace; each a module, each seeded."""
