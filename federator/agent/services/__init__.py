"""The services of an agent that concern no attempt's state; they run beside its core.

Here are the handshake with the daemon, the commands of the site's users, checks of the site with
their probe jobs, and the removal of old checkpoints.
"""
