"""Where do workloads come from when there is no trace? Generators; each a module, each seeded."""
