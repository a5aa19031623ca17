"""The process at a site that launches, watches and ends attempts."""
