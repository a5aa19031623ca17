"""Names the socket at which a site that dials is attached to the daemon, and the answer there.

``federator.daemon.site_door`` listens; ``federator site attach`` connects to it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ATTACHED: Final = b"federator: attached\n"
"""The answer to a site that is expected; any other line says why it is not."""


STANDING_BY: Final = b"federator: standing by\n"
"""Said before it, when the site is attached from another login node: it is answered when that one
is lost, and until then nothing more is said."""
LOGIN_NODE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})", re.ASCII)
"""The name by which a login node is told from the site's others."""


def door_beside(socket: Path) -> Path:
    """The socket at which sites are attached, beside the one of users' commands."""
    return socket.with_name(socket.name + ".sites")
