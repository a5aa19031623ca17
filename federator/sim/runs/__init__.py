"""Independent runs of a simulation: as values, side by side, and kept for the next time."""
