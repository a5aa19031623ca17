"""Names the socket at which a site that dials is attached to the daemon, and the answer there.

``federator.daemon.site_door`` listens; ``federator site attach`` connects to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ATTACHED: Final = b"federator: attached\n"
"""The answer to a site that is expected; any other line says why it is not."""


def door_beside(socket: Path) -> Path:
    """The socket at which sites are attached, beside the one of users' commands."""
    return socket.with_name(socket.name + ".sites")
