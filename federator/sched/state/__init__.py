"""What is known: the ledger and what it counts. Decides nothing."""
