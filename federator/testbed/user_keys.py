"""Gives each user a key in the home of every site, by which they log in from one to another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from docker.models.containers import Container

from federator.errors import FederatorError
from federator.testbed.layout import SiteLayout

_INSTALL: Final = """
import json, os, pwd, sys
for name, (private, public) in json.loads(os.environ["KEYS"]).items():
    home = pwd.getpwnam(name)
    folder = home.pw_dir + "/.ssh"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for file, text in (("id_ed25519", private), ("authorized_keys", public)):
        path = folder + "/" + file
        with open(path, "w", opener=lambda at, flags: os.open(at, flags, 0o600)) as out:
            out.write(text)
        os.chown(path, home.pw_uid, home.pw_gid)
    os.chown(folder, home.pw_uid, home.pw_gid)
"""


def install(container: Container, site: SiteLayout, keys: Mapping[str, tuple[str, str]]) -> None:
    """Write the keys of a site's users.

    Raises:
        FederatorError: it could not be done in the container.
    """
    own = {user: keys[user] for user in site.federated_users}
    done = container.exec_run(
        ["python3", "-c", _INSTALL], user="root", environment={"KEYS": json.dumps(own)}
    )
    if done.exit_code != 0:
        said = done.output.decode("utf-8", "replace").strip()
        raise FederatorError(f"{site.name}: the users' keys cannot be written: {said}")
