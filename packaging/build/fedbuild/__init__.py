"""Makes wheel, packages, list of components and release of a checkout; not installed."""
