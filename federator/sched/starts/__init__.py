"""Estimates of when workloads that wait will start. They decide nothing: see docs/starts.md."""
