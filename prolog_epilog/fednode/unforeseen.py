"""Names that nobody can foresee, for files made beside others.

What ``secrets`` and ``tempfile`` do, without what these import: that took a hook, which is a new
process for each job on each node, as long as all else that it imports of Python's own.
"""

import os
from typing import Tuple

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def name() -> str:
    """Return sixteen hexadecimal digits."""
    return os.urandom(8).hex()


def new_file(folder: str) -> "Tuple[int, str]":
    """Make a hidden file that only its owner may read; return its descriptor and its path.

    Raises:
        OSError: it cannot be made.
    """
    path = os.path.join(folder, "." + name())
    return os.open(path, _FLAGS, 0o600), path
