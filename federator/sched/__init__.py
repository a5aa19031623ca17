"""Verbs: every decision of the federation and of a site, pure. No clock, no I/O, no randomness."""
