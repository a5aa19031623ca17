"""The options of sbatch: what was asked for, as values."""
