"""Experiments that compare policies, each with a report and its data."""
