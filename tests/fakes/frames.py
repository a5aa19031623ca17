"""Messages between daemon and agents as release 0.1.0 sent them, by the name of each.

They were recorded once and are never written anew: what is sent today must have the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).parent.parent / "data" / "wire" / "frames.txt"


def _recorded(direction: str) -> dict[str, bytes]:
    rows = (line.split() for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: bytes.fromhex(body) for way, name, body in rows if way == direction}


TO_AGENT: Final = _recorded("to")
FROM_AGENT: Final = _recorded("from")
