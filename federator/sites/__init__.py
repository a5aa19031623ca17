"""Edges to the sites: the agent that runs beside each slurmctld, its protocol and transports."""
