"""Orders copies of checkpoints to other regions, and looks for those that there are to copy.

A region is a storage domain here, and a checkpoint a data set of its workload: so what makes the
orders of copies is what makes those of data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from federator.config import FederationConfig
from federator.daemon.data_mover import STEP_S, DataMover, seen_of
from federator.model.dataset import DataReplica, DataSet, StorageDomain
from federator.model.message import CopySeen
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.checkpoint_moves import (
    CHECKPOINT,
    SEALED,
    CheckpointMove,
    CheckpointMoves,
)
from federator.wire.agent_protocol import CopyOrder, CopyStatus

ANSWER_S: Final = 15.0  # a look that was not answered for so long is ordered again, elsewhere


class RegionalCheckpoints:
    """Checkpoints that are to be copied, and the regions as domains; see ``WantedCopies``.

    Args:
        moves: decides what is copied.
        config: regions, and the sites of each.
    """

    def __init__(self, moves: CheckpointMoves, config: FederationConfig) -> None:
        self._moves = moves
        self._domains: dict[str, StorageDomain] = {}
        self.reconfigure(config)

    def reconfigure(self, config: FederationConfig) -> None:
        """Go by these regions from now on."""
        self._domains = {
            name: config.data.region(
                {
                    site: str(region.shared)
                    for site, each in config.sites.items()
                    if each.region == name
                }
            )
            for name, region in config.regions.items()
        }

    @property
    def domains(self) -> Mapping[str, StorageDomain]:
        return self._domains

    def copies(self) -> Iterator[tuple[DataSet, DataReplica]]:
        return self._moves.copies()

    def find(self, name: str, version: str = "") -> DataSet | None:
        return self._moves.find(name, version)

    def in_the_way(self, of: DataSet, domain: str, path: str) -> bool:  # noqa: ARG002
        """Never: each workload has a folder of its own."""
        return False


class CheckpointMover:
    """Makes the orders as they come due.

    Args:
        config: regions, and where users log in at sites.
        moves: decides what is copied, and where it is looked.
        able: whether a site is connected whose agent can do what is named.
    """

    def __init__(
        self,
        config: FederationConfig,
        moves: CheckpointMoves,
        able: Callable[[SiteName, str], bool],
    ) -> None:
        self._config = config
        self._moves = moves
        self._able = able
        self._regional = RegionalCheckpoints(moves, config)
        self._mover = DataMover(config, self._regional, self._is_able)
        self._asked: dict[WorkloadId, tuple[float, int]] = {}  # when last, and how often
        self._next_s = 0.0

    def reconfigure(self, config: FederationConfig) -> None:
        """Go by another configuration."""
        self._config = self._mover.config = config
        self._regional.reconfigure(config)

    def _is_able(self, site: SiteName) -> bool:
        return self._able(site, "checkpoint")

    def due(self, now_s: float) -> Iterator[tuple[SiteName, CopyOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        if now_s >= self._next_s:
            self._next_s = now_s + STEP_S
            yield from self._looks(now_s)
        yield from self._mover.due(now_s)

    def next_s(self) -> float:
        """Unix time at which ``due`` is to be asked again; 0: there is nothing to be done."""
        looks_s = self._next_s if self._asked else 0.0
        return min((at_s for at_s in (looks_s, self._mover.next_s()) if at_s), default=0.0)

    def taken(self, site: SiteName, answer: CopyStatus, now_s: float) -> CopySeen | None:
        """Take a site's answer in; return what the core is to know of it.

        What is in a folder counts from sites of its region alone, and only if they were asked.
        """
        if answer.domain:
            return self._mover.taken(site, answer, now_s)
        looks = (move for move in self._moves.looks(now_s) if str(move.workload) == answer.version)
        move = next(looks, None)
        region = None if move is None else self._region_of(move)
        if move is None or region is None or site not in region.mounts:
            return None
        _, times = self._asked.get(move.workload, (0.0, 0))
        if not times:
            return None
        del self._asked[move.workload]
        return seen_of(answer)

    def _region_of(self, move: CheckpointMove) -> StorageDomain | None:
        """That where a workload last saved; None: it was taken out."""
        site = self._config.sites.get(move.saved_at)
        return self._regional.domains.get(site.region) if site is not None else None

    def _looks(self, now_s: float) -> Iterator[tuple[SiteName, CopyOrder]]:
        wanted = {move.workload: move for move in self._moves.looks(now_s)}
        asked = self._asked
        self._asked = {id_: asked.get(id_, (0.0, 0)) for id_ in wanted}
        for id_, move in wanted.items():
            last_s, times = self._asked[id_]
            found = self._look(move, times) if now_s >= last_s + ANSWER_S else None
            if found is not None:
                self._asked[id_] = now_s, times + 1
                yield found

    def _look(self, move: CheckpointMove, times: int) -> tuple[SiteName, CopyOrder] | None:
        """An order to a site of the region where a workload last saved; each has its turn."""
        region = self._region_of(move)
        able = [] if region is None else [name for name in region.mounts if self._is_able(name)]
        if region is None or not able:
            return None
        name = able[times % len(able)]
        return name, CopyOrder(
            name=CHECKPOINT,
            version=str(move.workload),
            domain="",
            user=move.user,
            host="",
            source="/",
            root=region.mounts[name],
            path=f"{move.user}/checkpoints/{move.workload}",
            digest=SEALED,
        )
