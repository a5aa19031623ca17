"""The files that federation.yaml names: whether each can be read, and is what it should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from federator.config_mistakes import Mistake


def ssh_mistakes(
    key: Path, known_hosts: Path, login_nodes: Iterable[tuple[str, int]]
) -> Iterator[Mistake]:
    """One mistake for each file, and host, that would keep the daemon from a site's sshd."""
    if message := _key(key):
        yield ("key",), message
    for host, port in login_nodes:
        if message := _hosts(known_hosts, host, port):
            yield ("known_hosts",), message


def _key(path: Path) -> str:
    """The error in the private key; empty if there is none."""
    text, problem = _read(path)
    if not problem and "PRIVATE KEY-----" not in text:
        problem = "is no private key"
    wanted = "expected a private SSH key that this user can read"
    return f"{wanted}; {path}: {problem}" if problem else ""


def _hosts(path: Path, host: str, port: int) -> str:
    """The error in the pinned host keys; empty if there is none."""
    import asyncssh  # noqa: PLC0415  # slow to import, and only `federator check` comes here

    text, problem = _read(path)
    if not problem:
        try:
            keys, authorities, *_ = asyncssh.import_known_hosts(text).match(host, "", port)
            problem = "" if keys or authorities else "has none"
        except ValueError as error:
            problem = str(error)
    name = host if port == 22 else f"[{host}]:{port}"
    wanted = f"expected the host key of {name}, as ssh-keyscan prints it"
    return f"{wanted}; {path}: {problem}" if problem else ""


def _read(path: Path) -> tuple[str, str]:
    """The text of a file, and why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace"), ""
    except OSError as error:
        return "", error.strerror or str(error)
