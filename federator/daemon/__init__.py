"""The daemon: turns messages and time into observations and carries out the commands."""
