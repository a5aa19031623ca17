"""The simulator: replays a trace of jobs in virtual time under one policy."""
