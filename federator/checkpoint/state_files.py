"""Writes and reads the states of all ranks of a training, together, in one directory."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .ranks import Ranks

_Result = TypeVar("_Result")
_LOG = logging.getLogger("federator.checkpoint")


class SavedState(NamedTuple):
    """A checkpoint that was read back; ``step`` is the last finished step."""

    step: int
    state: Any
    path: Path


class StateFiles:
    """One rank's part in the checkpoints of a training; each method is for all ranks at once.

    Args:
        directory: where they are.
        save: writes a state to a path.
        load: reads it back.
        keep: how many complete checkpoints stay.
        all_ranks_write: every rank saves a part of its own.
        checksum: a CRC-32 of each file is noted.
    """

    def __init__(
        self,
        directory: Path,
        save: Callable[[Any, Path], object],
        load: Callable[[Path], Any],
        *,
        keep: int,
        all_ranks_write: bool,
        checksum: bool,
    ) -> None:
        self._directory, self._save, self._load = directory, save, load
        self._keep, self._all_write, self._checksum = keep, all_ranks_write, checksum
        self._torn: set[Path] = set()

    def write(self, ranks: Ranks, attempt: int, step: int, state: Callable[[], Any]) -> None:
        """Write a checkpoint; it is complete when this returns, and else nothing of it stays."""
        part = files.part_of(self._directory, f"{attempt}-{step:d}")
        size = ranks.size() if self._all_write else 1
        try:
            for act in (self._begin, self._write, self._commit):
                mine = partial(act, part, ranks.rank, size, step, state)
                _together(ranks, f"save step {step}", mine)
        except Exception:
            if ranks.rank == 0:
                files.discard(part)
            raise

    def prune(self) -> None:
        """Remove the oldest checkpoints; for one rank alone."""
        files.prune(self._directory, self._keep, self._torn)

    def latest(self, ranks: Ranks) -> SavedState | None:
        """Load the newest checkpoint that is whole for all ranks; None: there is none."""
        bound = None
        while True:
            newest = partial(self._newest_whole, ranks.rank, bound)
            mine = _together(ranks, "look for checkpoints", newest)
            number = mine.number if mine is not None else 0
            least = -ranks.agree(-number)
            if least == ranks.agree(number):
                break
            bound = least
        if mine is None:
            return None
        size = ranks.size() if self._all_write else 1
        return _together(ranks, f"load {mine.path}", partial(self._loaded, mine, ranks.rank, size))

    def _newest_whole(self, rank: int, bound: int | None) -> files.StoredCheckpoint | None:
        for checkpoint in files.stored(self._directory):
            if bound is not None and checkpoint.number > bound:
                continue
            if (rank > 0 and not self._all_write) or files.is_whole(checkpoint, rank):
                return checkpoint
            _LOG.warning("%s is not whole; trying the one before", checkpoint.path)
            self._torn.add(checkpoint.path)
        return None

    def _loaded(self, found: files.StoredCheckpoint, rank: int, now: int) -> SavedState:
        """Load this rank's own state, or the one that there is for all."""
        size = files.ranks_of(found) if self._all_write else now
        if size != now:
            raise ValueError(f"{found.path} was written by {size} ranks; there are {now} now")
        path = files.state_of(found.path, rank if self._all_write else 0)
        return SavedState(found.step, self._load(path), found.path)

    def _begin(self, part: Path, rank: int, *_: object) -> None:
        if rank == 0:
            files.begin(self._directory, part)

    def _write(self, part: Path, rank: int, size: int, _: int, state: Callable[[], Any]) -> None:
        mine = state()  # on all ranks: it may gather what they have
        if rank < size:
            with files.shared(part):
                self._save(mine, files.state_of(part, rank))
            files.seal(part, rank, ranks=size, checksum=self._checksum)

    def _commit(self, part: Path, rank: int, _: int, step: int, *__: object) -> None:
        if rank == 0:
            files.commit(part, step)


def _together(ranks: Ranks, what: str, act: Callable[[], _Result]) -> _Result:
    """Return what ``act`` does, once all ranks could; else none goes on without the others."""
    error: Exception | None = None
    try:
        result = act()
    except Exception as raised:  # a user's functions may raise anything; it is raised again
        error = raised
    if ranks.agree(error is not None):
        raise error or RuntimeError(f"another rank could not {what}")
    return result
