"""Who goes next: quotas, credit and the order of what waits."""
