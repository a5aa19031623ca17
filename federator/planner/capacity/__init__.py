"""Machine assignment: which node belongs to which partition, as MAST's RAS decides it."""
