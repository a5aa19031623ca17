"""The history of ended workloads: a follower of the log that keeps them in a database."""
