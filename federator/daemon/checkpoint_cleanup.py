"""Tells a site of each region which checkpoint folders are of no more use.

A workload's folder goes soon after its end if nothing is in it, and otherwise once the workload has
been over, and nothing in the folder has been changed, for ``keep_saved_h`` of the region. Ends are
taken from the event log's records as they are written; once a day all that the ledger knows is gone
through, and so finds what was missed: by a restart, a site away, an error.

A workload that its site has lost may run all the same: its folder goes by age alone. Nothing goes
by age while a site of the region is not heard: it may know of a live one that nobody else knows of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from federator.config import FederationConfig
from federator.model.event import Changed, LogRecord
from federator.model.lifecycle import TERMINAL
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.wire.agent_protocol import Tidied, TidyOrder

LOOK_EVERY_S: Final = 60.0
ALL_EVERY_S: Final = 86_400.0
ALL_FIRST_S: Final = 3600.0  # after the start: by then the sites have told what lives
AGAIN_S: Final = 3600.0  # where some of it could not be removed, or nobody answered
ANSWER_S: Final = 600.0  # between two answers to an order; each takes 100 s at most
MOST_ENDED: Final = 10_000  # kept for the next order; the daily one finds the rest

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class _Region:
    """A region's storage, and what is to be removed there."""

    shared: str
    all_due_s: float
    sites: tuple[SiteName, ...] = ()
    keep_s: float = 0.0
    ended: dict[WorkloadId, str] = field(default_factory=dict)  # with their users; not yet told
    order: TidyOrder | None = None  # the one under way
    order_is_of_all: bool = False
    all_went_well: bool = True  # as far as it has been answered
    heard_s: float = 0.0  # when it was sent, or last answered
    orders: int = 0  # so far: sites take turns, as each may remove what another may not


class CheckpointCleanup:
    """Makes the orders to remove folders, as they come due.

    Args:
        config: regions, sites and how long they keep what was saved.
        ledger: which workloads have ended, and which live.
        ready: whether a site is heard.
        now_s: Unix time of the start.
    """

    def __init__(
        self,
        config: FederationConfig,
        ledger: Ledger,
        ready: Callable[[SiteName], bool],
        now_s: float,
    ) -> None:
        self._ledger = ledger
        self._ready = ready
        self._regions: list[_Region] = []
        self.reconfigure(config, now_s)
        self._next_s = now_s + LOOK_EVERY_S
        self._last_id = 0
        self._wrong: dict[tuple[SiteName, str], str] = {}  # by site and user, as logged

    def reconfigure(self, config: FederationConfig, now_s: float) -> None:
        """Go on with these regions; what is due at one that stays is not forgotten."""
        before = {region.shared: region for region in self._regions}
        self._regions = []
        for number, (name, configured) in enumerate(config.regions.items()):
            shared = str(configured.shared)
            all_due_s = now_s + ALL_FIRST_S + number * LOOK_EVERY_S  # not all at once
            region = before.pop(shared, None) or _Region(shared=shared, all_due_s=all_due_s)
            here = (n for n, site in config.sites.items() if site.region == name)
            region.sites = tuple(n for n in here if n not in config.rules.shadow)
            region.keep_s = configured.keep_saved_h * 3600.0
            self._regions.append(region)

    def note(self, records: Sequence[LogRecord]) -> None:
        """Take ends from records that are applied to the ledger already."""
        for record in records:
            if isinstance(record, Changed) and self._has_ended(record.workload):
                user = self._ledger.entries[record.workload].workload.user
                for region in self._regions:
                    if len(region.ended) < MOST_ENDED:
                        region.ended[record.workload] = user

    def due(self, now_s: float) -> Iterator[tuple[SiteName, TidyOrder]]:
        """Yield the orders of now, each with the site that is to carry it out."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_EVERY_S
        for region in self._regions:
            heard = [name for name in region.sites if self._ready(name)]
            waits = region.order is not None and now_s < region.heard_s + ANSWER_S
            is_of_all = now_s >= region.all_due_s
            if waits or not heard or not (is_of_all or region.ended):
                continue
            if is_of_all:
                may_age = region.keep_s > 0 and len(heard) == len(region.sites)
                order = self._order_of_all(region, now_s - region.keep_s if may_age else 0.0)
                region.all_due_s = now_s + AGAIN_S  # unless it is answered well
            else:
                order = self._order_of_late(region)
            region.order, region.order_is_of_all = order, is_of_all
            region.all_went_well, region.heard_s = True, now_s
            region.orders += 1
            yield heard[region.orders % len(heard)], order

    def taken(self, site: SiteName, answer: Tidied, now_s: float) -> None:
        """Take an answer in; log what was removed, and each new reason why something was not."""
        for region in self._regions:
            if region.order is None or region.order.order_id != answer.order_id:
                continue
            region.heard_s = now_s
            if answer.user:
                region.all_went_well = region.all_went_well and not answer.wrong
                self._say(site, answer)
                continue
            for ids in region.order.ended.values():
                for id_ in ids:
                    region.ended.pop(WorkloadId(id_), None)
            if region.order_is_of_all and region.all_went_well:
                region.all_due_s = now_s + ALL_EVERY_S
            region.order = None

    def _say(self, site: SiteName, answer: Tidied) -> None:
        if answer.removed:
            log.info(
                "checkpoints_removed", site=site, user=answer.user, workloads=list(answer.removed)
            )
        if answer.wrong and self._wrong.get((site, answer.user)) != answer.wrong:
            log.warning("checkpoints_not_removed", site=site, user=answer.user, detail=answer.wrong)
        self._wrong[site, answer.user] = answer.wrong

    def _order_of_late(self, region: _Region) -> TidyOrder:
        """The order to tidy what has ended since the last order."""
        region.ended = {id_: user for id_, user in region.ended.items() if self._has_ended(id_)}
        ended = _by_user((user, id_) for id_, user in region.ended.items())
        return TidyOrder(shared=region.shared, ended=ended, order_id=self._new_id())

    def _order_of_all(self, region: _Region, before_s: float) -> TidyOrder:
        """Of all folders that there may be; those of unknown workloads go by their age alone."""
        ended: list[tuple[str, WorkloadId]] = []
        live: list[tuple[str, WorkloadId]] = []
        for id_, entry in self._ledger.entries.items():
            is_over = entry.state in TERMINAL
            if not is_over or entry.over_at_s >= before_s:
                may_go_if_empty = is_over and _has_left_for_certain(entry)
                (ended if may_go_if_empty else live).append((entry.workload.user, id_))
        return TidyOrder(
            shared=region.shared,
            ended=_by_user(ended),
            live=_by_user(live),
            below=int(self._ledger.next_id),
            before_s=before_s,
            keep_s=region.keep_s,
            order_id=self._new_id(),
        )

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _has_ended(self, id_: WorkloadId) -> bool:
        entry = self._ledger.entries.get(id_)
        return entry is not None and entry.state in TERMINAL and _has_left_for_certain(entry)


def _has_left_for_certain(entry: WorkloadRecord) -> bool:
    """Whether one that is over was at a site, and is known to be there no more."""
    is_lost = entry.reason is not None and entry.reason.code is ReasonCode.LOST
    return entry.attempt > 0 and not is_lost


def _by_user(pairs: Iterable[tuple[str, WorkloadId]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for user, id_ in pairs:
        found[user].append(int(id_))
    return {user: tuple(ids) for user, ids in found.items()}
