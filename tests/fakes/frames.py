"""Messages between daemon and agents as release 0.1.0 sent them, by the name of each.

They were recorded once and are never written anew: what is sent today must have the same bytes, but
for fields that came later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

_FILE: Final = Path(__file__).parent.parent / "data" / "wire" / "frames.txt"


def _recorded(direction: str) -> dict[str, bytes]:
    rows = (line.split() for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: bytes.fromhex(body) for way, name, body in rows if way == direction}


TO_AGENT: Final = _recorded("to")
FROM_AGENT: Final = _recorded("from")


def as_then(message: object, recorded: bytes) -> bytes:
    """The bytes of a message without the fields that the recorded one does not have."""
    now = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return msgspec.msgpack.encode(_without_later(now, msgspec.msgpack.decode(recorded)))


def _without_later(now: Any, then: Any) -> Any:
    if isinstance(now, dict) and isinstance(then, dict):
        return {k: _without_later(v, then[k]) for k, v in now.items() if k in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [_without_later(*pair) for pair in zip(now, then, strict=True)]
    return now
