"""The daemon: turns happenings into observations and carries out the federation's commands."""
