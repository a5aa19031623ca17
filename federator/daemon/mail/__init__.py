"""Mails users what befalls their jobs."""
