"""The scheduling pass, its auction, and the handling of sites' reports."""
