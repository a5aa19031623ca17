"""The faults that are injected, a module for each family; each has a table of its kinds."""
