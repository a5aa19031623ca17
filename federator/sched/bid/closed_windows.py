"""Keeps nodes that a site's own reservations will need from whoever could still run by then.

Slurm starts no job that could run into a reservation of others by its time limit; a plan that
overlooks that would only wait there until its launch lease is over. So whoever has no time limit
does not start on nodes that a window is still to close.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Final

from msgspec import structs

from federator.model.node_names import names_reservation
from federator.model.plan import BidRequest
from federator.model.reason import Refusal, RefusalKind
from federator.model.site import NodeShare
from federator.model.window import SiteWindow
from federator.sched.bid.free_capacity import FreeCapacity, FreeNode
from federator.sched.bid.reservation import Ending, Held, all_of
from federator.sched.bid.reserved_nodes import closed_by, closing, in_reservation

START_TAKES_S: Final = 10.0  # from a bid until Slurm starts the job


class ClosedWindows:
    """The windows of a site that are on or to come, while a message is answered.

    Those that concern a request are always the first of them, so their number stands for them.

    Args:
        windows: in order of their starts; those that are over are left out.
        room: of the site.
    """

    def __init__(self, windows: Iterable[SiteWindow], room: FreeCapacity) -> None:
        self._windows: Sequence[SiteWindow] = tuple(windows)
        self._room = room

    @property
    def exist(self) -> bool:
        """Whether there are any windows."""
        return bool(self._windows)

    def concerning(self, starts_at_s: float, asked: BidRequest) -> int:
        """The number of windows that begin before one that starts then is over for certain.

        One in a reservation is told its nodes by ``reserved``: none.
        """
        if not self._windows or names_reservation(asked.jobs):
            return 0
        until_s = _over_at_s(starts_at_s, asked)
        return sum(window.starts_at_s < until_s for window in self._windows)

    def reserved(self, asked: BidRequest, now_s: float) -> BidRequest | Refusal:
        """See ``in_reservation``."""
        if not names_reservation(asked.jobs):
            return asked
        ends_s = _over_at_s(now_s, asked)
        return in_reservation(asked, self._windows, self._room.by_name, now_s, ends_s)

    def fence(self, count: int, *, with_used: bool = False) -> Held:
        """Take away what the first windows close; undo it with ``lift``.

        ``with_used``: also what is in use there, so that nothing that comes free can be had.
        """
        held: Held = []
        for f, cpus in self._closed(count).values():
            share = NodeShare(cpus=cpus) if cpus else all_of(f.node)
            if not with_used:
                share = _free_part(f, share)
            f.take(share)
            held.append((f, share))
        return held

    def endings(self, count: int, asked: BidRequest) -> list[Ending]:
        """When what ``fence`` takes, used or not, can be had again, as far as it ever can.

        A node is open when the last of its windows has closed. Of a window that comes again before
        the request would be over, there is no such time.
        """
        last: dict[str, float] = {}
        for window in self._windows[:count]:
            length_s = window.ends_at_s - window.starts_at_s
            fits = not window.again_s or asked.time_limit_s <= window.again_s - length_s
            for name in window.nodes:
                last[name] = max(last.get(name, 0.0), window.ends_at_s if fits else inf)
        found: list[Ending] = []
        for name, (f, cpus) in self._closed(count).items():
            if isfinite(last[name]):
                share = NodeShare(cpus=cpus) if cpus else all_of(f.node)
                found.append(Ending(last[name], ((f, share),)))
        return found

    def refusal(self, count: int) -> Refusal:
        """The refusal of one that would find room but for the first windows."""
        return Refusal(kind=RefusalKind.WAIT, reasons=closed_by(self._windows[:count]))

    def also_closed(self, asked: BidRequest, now_s: float, refusal: Refusal) -> Refusal:
        """A refusal of one that names reservations, with the windows that close nodes to it."""
        if refusal.kind is not RefusalKind.WAIT or not names_reservation(asked.jobs):
            return refusal
        found = closing(asked, self._windows, _over_at_s(now_s, asked))
        return structs.replace(refusal, reasons=refusal.reasons + closed_by(found))

    def _closed(self, count: int) -> dict[str, tuple[FreeNode, int]]:
        """The nodes of the first windows, and of how many CPUs; 0: all of the node."""
        found: dict[str, tuple[FreeNode, int]] = {}
        for window in self._windows[:count]:
            for name in window.nodes:
                f = self._room.by_name.get(name)
                if f is None:
                    continue
                cpus = window.cpus.get(name, 0)
                if name in found:
                    before = found[name][1]
                    cpus = before + cpus if before and cpus else 0
                found[name] = (f, cpus)
        return found


def _over_at_s(starts_at_s: float, asked: BidRequest) -> float:
    return starts_at_s + START_TAKES_S + _whole_minutes(asked.time_limit_s)


def _whole_minutes(limit_s: float) -> float:
    """A time limit as Slurm has it."""
    return limit_s if limit_s == inf else -(-limit_s // 60) * 60


def _free_part(f: FreeNode, share: NodeShare) -> NodeShare:
    """The part of a share that is free."""
    return share.less(share.less(f.left))
