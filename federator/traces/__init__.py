"""Traces: one for each workload, from its submission to its end; docs/traces.md."""
