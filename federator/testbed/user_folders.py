"""Lets each user of a region into their folder of its storage, under the UIDs of all its sites.

As an administrator would: the folder is root's, nobody else can write to it, and access control
lists name the user's UIDs, for what is made below it, too. It is done in a container, as root.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Sequence
from typing import Final

from docker.models.containers import Container

from federator.errors import FederatorError
from federator.testbed.layout import SITES, TENANTS, SiteLayout

_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 1, 2, 4, 16, 32
_ALL, _NONE = 7, 0
_NOBODY: Final = 2**32 - 1  # the id of an entry that names nobody
_SET: Final = """
import os, sys
for folder, acl in zip(sys.argv[1::2], sys.argv[2::2]):
    os.chown(folder, 0, 0)
    os.chmod(folder, 0o770)
    for kind in ("access", "default"):
        os.setxattr(folder, "system.posix_acl_" + kind, bytes.fromhex(acl))
"""


def let_in(container: Container, site: SiteLayout) -> None:
    """Set owner and permissions of the users' folders of a site's region.

    Raises:
        FederatorError: the storage of this machine keeps no access control lists, say.
    """
    users = [user for tenant in TENANTS for user in tenant.users]
    words = [
        word
        for user in users
        for word in (f"/shared/{site.region}/{user}", acl_of(uids_of(user, site.region)).hex())
    ]
    done = container.exec_run(["python3", "-c", _SET, *words], user="root")
    if done.exit_code != 0:
        said = done.output.decode("utf-8", "replace").strip()
        raise FederatorError(f"{site.name}: the users' shared folders cannot be set up: {said}")


def uids_of(user: str, region: str) -> Sequence[int]:
    """Every UID of a user in a region, and that of whoever runs the testbed."""
    known = {uid for s in SITES if s.region == region for name, uid in s.uids if name == user}
    return sorted(known | {os.getuid()})


def acl_of(uids: Collection[int]) -> bytes:
    """An access control list of Linux (``posix_acl_xattr.h``) that lets these users do all."""
    entries = [
        (_USER_OBJ, _ALL, _NOBODY),
        *((_USER, _ALL, uid) for uid in sorted(uids)),
        (_GROUP_OBJ, _NONE, _NOBODY),
        (_MASK, _ALL, _NOBODY),
        (_OTHER, _NONE, _NOBODY),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
