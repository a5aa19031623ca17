"""Is anything lost, or run twice, whatever breaks? Daemon and agents in virtual bad weather."""
