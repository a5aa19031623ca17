"""Policies that replay a trace for comparison; no daemon has them."""
