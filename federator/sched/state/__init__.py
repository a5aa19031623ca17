"""The ledger and what it counts; decides nothing."""
