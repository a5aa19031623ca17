"""What do the policies do beside each other? Experiments, each with a report and its data."""
