"""The order of the queue: quotas, credit and what waits."""
