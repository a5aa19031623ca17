"""Mails users the events of their jobs."""
