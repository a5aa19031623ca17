"""Makes the wheel and the Debian packages of a checkout; not installed."""
