"""The web page: a process of its own that asks the daemon for all its viewers at once."""
