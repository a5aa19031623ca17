"""Metrics for Prometheus: counted by the loop, collected for a scrape, served by a thread."""
