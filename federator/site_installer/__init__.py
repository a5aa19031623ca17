"""The folder of files that sets a site up, and what is in it."""
