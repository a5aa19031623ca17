"""What would have happened? A trace of jobs replayed in virtual time under one policy."""
