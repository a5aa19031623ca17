"""Names the errors of a decoder of msgspec for bytes that are no such message.

``MsgspecError`` is not all of it: text that is no UTF-8, and lists within lists without end, have
errors of their own. Bytes from another host or user may be of any kind.
"""

from __future__ import annotations

from typing import Final

from msgspec import MsgspecError

UNREADABLE: Final = (MsgspecError, UnicodeDecodeError, RecursionError)
