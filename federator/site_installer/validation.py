"""Validates names for a site's files: they mean nothing to a shell, to sudo or to Slurm.

Names come from federation.yaml and from options. They end up in files that root reads, so what is
not plainly a name is refused rather than quoted.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import PurePosixPath
from typing import Final

from federator.errors import ConfigError

_SHOWN: Final = 80
_KEY_TYPES: Final = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ACCOUNT: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_HOSTS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,4095}")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_@+][A-Za-z0-9_.@+-]*)+")
_COMMENT: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,64}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def name(what: str, text: str) -> str:
    """Return ``text`` if it is a name of 1 to 64 of A-Z a-z 0-9 _ . -, the first no . or -.

    Raises:
        ConfigError: it is not; the message says what it was to name.
    """
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"{what}: expected a name of 1 to 64 of A-Z a-z 0-9 _ . -, the first no . or -;"
            f" got {_shown(text)}"
        )
    return text


def account(what: str, text: str) -> str:
    """Return ``text`` if it can be the unprivileged account that the daemon logs in to.

    sudo and sshd read it: ALL and root would mean more than one account.

    Raises:
        ConfigError: it cannot.
    """
    if not _ACCOUNT.fullmatch(text) or text == "root":
        raise ConfigError(
            f"{what}: expected an account of 1 to 32 of a-z 0-9 _ -, the first no digit or -, and"
            f" not root; got {_shown(text)}"
        )
    return text


def host_list(what: str, text: str) -> str:
    """Return ``text`` if it can be a host list in Slurm's notation, as ``g[1-8],c1``.

    Raises:
        ConfigError: it cannot.
    """
    if not _HOSTS.fullmatch(text) or text.count("[") != text.count("]"):
        raise ConfigError(f"{what}: expected a host list such as g[1-8],c1; got {_shown(text)}")
    return text


def path(what: str, text: str) -> str:
    """Return ``text`` if it is an absolute path without blanks, quotes, ``..`` or the like.

    Raises:
        ConfigError: it is not.
    """
    if not _PATH.fullmatch(text) or ".." in PurePosixPath(text).parts:
        raise ConfigError(
            f"{what}: expected an absolute path of letters, digits and _ . @ + -;"
            f" got {_shown(text)}"
        )
    return text


def public_key(what: str, text: str) -> str:
    """Return the one public SSH key in ``text``, in OpenSSH's form: type, key, comment.

    Args:
        what: where it is from, for the message.
        text: of a .pub file. A comment that is not one plain word is left out.

    Raises:
        ConfigError: it is none, is several, or is a private key.
    """
    if "PRIVATE KEY" in text:
        raise ConfigError(f"{what}: is a private key; it must stay where it is. Name its .pub")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = lines[0].split(maxsplit=2) if len(lines) == 1 else []
    if len(words) < 2 or words[0] not in _KEY_TYPES or not _encodes(words[1], words[0]):
        raise ConfigError(f"{what}: expected one public key, as ssh-keygen writes it into .pub")
    comment = words[2:] if len(words) == 3 and _COMMENT.fullmatch(words[2]) else []
    return " ".join([*words[:2], *comment])


def _encodes(data: str, kind: str) -> bool:
    """Tell whether the key's blob is base64 and begins with its own type, as it must."""
    try:
        blob = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    head = len(kind).to_bytes(4, "big") + kind.encode()
    return data.isascii() and blob.startswith(head) and len(blob) > len(head)
