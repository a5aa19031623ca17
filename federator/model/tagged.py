"""The base of all messages that travel between processes."""

from __future__ import annotations

from msgspec import Struct


class Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all that travels."""
