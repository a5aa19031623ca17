"""Which reference policies can replay a trace? One file each; names are in sim/registry.py."""
