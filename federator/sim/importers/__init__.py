"""Files of jobs that were made elsewhere, read as traces."""
