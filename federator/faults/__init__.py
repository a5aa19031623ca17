"""Is anything lost, or run twice, whatever breaks? Daemon and agents in virtual time and bad weather."""
