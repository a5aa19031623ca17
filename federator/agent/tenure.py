"""Owns the file ``tenure``, which names the one of a site's agents that acts.

Agents of one site share its state folder, also where they run on several login nodes. The daemon
numbers its channels, so of two agents it is known which one it means. An agent writes its tenure
into the file before it reads anything else of the folder, and from then on the one before it is
over: each agent reads the file again before it notes anything in its journal, and before it has
sbatch called. So one that was stopped, and wakes up, finds that out before it acts. A kernel lock
could not tell it: it would still hold that, or the file system would have given it to another.

The file is always written in place and opened anew to be read, so that a network file system with
close-to-open consistency (NFS without ``nocto``) shows what was written last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from federator.errors import StaleState

_BYTES: Final = 200  # always so many: what is written hides all that was there
_UNFINISHED: Final = ".fresh"


class _Said(NamedTuple):
    """What the file says."""

    epoch: int = 0
    channel: int = 0
    whose: str = ""


class AgentTenure:
    """One agent's tenure.

    Args:
        folder: the agents' state folder; None: this agent has no rival (in tests).
        epoch: of the daemon that it serves.
        channel: the daemon's number of its channel; 0: of a daemon that does not count.
        host: of this agent.
        process: tells it from all others on that host.
    """

    def __init__(
        self, folder: Path | None, epoch: int = 0, channel: int = 0, *, host: str, process: str
    ) -> None:
        self.host = host
        self.folder_id = ""  # known once it has begun
        self._folder = folder
        self._said = _Said(epoch, channel, f"{host}:{process}"[: _BYTES // 2])

    def begin(self) -> None:
        """Act from now on, in place of the agent that acted before.

        Raises:
            StaleState: the daemon has opened a later channel.
            OSError: the folder cannot be written.
        """
        if self._folder is None:
            return
        path = self._folder / "tenure"
        now = _read(path)
        if (now.epoch, now.channel) > (self._said.epoch, self._said.channel):
            raise StaleState(f"the daemon has opened a later channel, to {now.whose}")
        data = " ".join(map(str, self._said)).encode().ljust(_BYTES - 1) + b"\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, data, 0)
            os.fsync(file)
        finally:
            os.close(file)
        # What another has not put in place by now it never will: see ``put_in_place``.
        for rest in self._unfinished():
            rest.unlink(missing_ok=True)
        self.folder_id = self._named()

    def check(self) -> None:
        """Check that this agent is still the one that acts.

        Raises:
            StaleState: another one is.
            OSError: the file cannot be read.
        """
        if self._folder is None:
            return
        now = _read(self._folder / "tenure")
        if now != self._said:
            raise StaleState(f"another agent of this site acts now: {now.whose or 'unknown'}")

    def put_in_place(self, path: Path, data: bytes) -> None:
        """Write a file that all agents read, in one step.

        The check comes when the fresh file is there. If it passes, then the next agent begins
        later, finds that file and removes it; or it is in place by then, and the next agent reads
        it. So nothing that a stopped agent had in hand takes the place of what came later.

        Raises:
            StaleState: another agent acts.
            OSError: it could not be written.
        """
        fresh = path.with_name(f"{path.name}.{self._said.epoch}.{self._said.channel}{_UNFINISHED}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.check()
        fresh.replace(path)
        sync_folder(path.parent)

    def _unfinished(self) -> Iterator[Path]:
        assert self._folder is not None
        yield from self._folder.glob(f"*{_UNFINISHED}")

    def _named(self) -> str:
        """The folder's own name, by which two folders are told apart; it stays."""
        assert self._folder is not None
        path, fresh = self._folder / "id", self._folder / f"id{_UNFINISHED}"
        if not path.exists():
            fresh.write_text(f"{self._said.epoch}.{self._said.channel}.{self._said.whose}")
            with suppress(FileExistsError):  # of two, the first one's counts for both
                os.link(fresh, path)
            fresh.unlink(missing_ok=True)
        return path.read_text(encoding="utf-8", errors="replace")[:_BYTES]


UNRIVALLED: Final = AgentTenure(None, host="", process="")
"""Of the only agent of a folder, as in tests."""


def _read(path: Path) -> _Said:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(file, 2 * _BYTES).decode(errors="replace")
        finally:
            os.close(file)
        epoch, channel, whose = text.split()
        return _Said(int(epoch), int(channel), whose)
    except (FileNotFoundError, ValueError):  # none yet; or a line that was torn is nobody's
        return _Said()


def has_seen(folder: Path, epoch: int, channel: int) -> bool:
    """Whether the tenure of a channel, or of a later one, began in this folder.

    A line that was torn tells nothing: then it may have.

    Raises:
        OSError: the file cannot be read.
    """
    path = folder / "tenure"
    now = _read(path)
    is_torn = now == _Said() and path.exists()
    return is_torn or (now.epoch, now.channel) >= (epoch, channel)


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
