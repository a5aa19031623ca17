"""What a site needs to join the federation: its files, and the scripts that put them in place."""
