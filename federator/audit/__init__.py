"""The audit: a chained, append-only file of privileged acts and awards, written from the log."""
