"""Finds the nodes that a job may have of the reservation which it asks for (``--reservation``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.window import SiteWindow
from federator.model.workload import Job

MOST_NAMED: Final = 3  # windows, in one refusal


def not_admitted(
    windows: Sequence[SiteWindow], jobs: Iterable[Job], user: str, account: str
) -> Refusal | None:
    """The refusal of jobs that ask for reservations which are not there, or not for this user.

    As in Slurm all that a job names must be there, and admit it.
    """
    by_name = {window.name: window for window in windows}
    for job in jobs:
        for name in job.reservation:
            window = by_name.get(name)
            if window is None or not window.admits(user, account):
                why = name if window is None else f"{name}, which does not admit {user}"
                return _refusal(RefusalKind.REJECT, ReasonCode.NO_RESERVATION, job, why)
    return None


def in_reservation(
    asked: BidRequest,
    windows: Sequence[SiteWindow],
    nodes: Collection[str],
    now_s: float,
    ends_s: float,
) -> BidRequest | Refusal:
    """The request with the nodes that its jobs may have, or why there are none.

    Of the reservations that a job names the first is taken that is on. Nodes of which only a part
    is reserved are left aside, and those that another window closes before the job would be over.
    A job of the request that names none gets no node that any window closes by then.

    Args:
        asked: by this site's names; it names a reservation.
        windows: of the site.
        nodes: all that it has.
        now_s: Unix time.
        ends_s: when the request is over for certain, if it starts now.
    """
    refused = not_admitted(windows, asked.jobs, asked.user, asked.tenant)
    if refused is not None:
        return refused
    found: list[Job] = []
    for job in asked.jobs:
        named = sorted(
            (w for w in windows if w.name in job.reservation),
            key=lambda w: job.reservation.index(w.name),
        )
        if not named:
            beside = _outside(job, windows, nodes, ends_s)
            if isinstance(beside, Refusal):
                return beside
            found.append(beside)
            continue
        window = next((w for w in named if w.is_on(now_s)), None)
        if window is None:
            first = min(named, key=lambda w: w.starts_at_s)
            return _not_yet(job, first, now_s)
        within = _open_nodes(window, windows, ends_s)
        if not within:
            return _refusal(RefusalKind.WAIT, ReasonCode.RESERVATION, job, window.name)
        found.append(replace(job, reservation=(window.name,), within=within))
    return structs.replace(asked, jobs=tuple(found))


def closing(
    asked: BidRequest, windows: Sequence[SiteWindow], ends_s: float
) -> tuple[SiteWindow, ...]:
    """The windows that close nodes to a request which names reservations, before it is over.

    A shorter one may find room where this finds none.
    """
    names = {name for job in asked.jobs for name in job.reservation}
    inside = {node for window in windows if window.name in names for node in window.nodes}
    in_part = not all(job.reservation for job in asked.jobs)
    return tuple(
        window
        for window in windows
        if window.name not in names
        and window.starts_at_s < ends_s
        and (in_part or not inside.isdisjoint(window.nodes))
    )


def closed_by(windows: Sequence[SiteWindow]) -> tuple[Reason, ...]:
    """The reasons of one that finds no room because of these windows."""
    return tuple(
        Reason(
            code=ReasonCode.SITE_RESERVATION,
            detail=window.name,
            needed=len(window.nodes),
            unit="nodes",
            from_s=window.starts_at_s,
            until_s=window.ends_at_s,
        )
        for window in windows[:MOST_NAMED]
    )


def _outside(
    job: Job, windows: Iterable[SiteWindow], nodes: Collection[str], ends_s: float
) -> Job | Refusal:
    """A job that names no reservation, on the nodes that no window closes."""
    closing_it = [window for window in windows if window.starts_at_s < ends_s]
    closed = {name for window in closing_it for name in window.nodes}
    if closed.isdisjoint(nodes):
        return job
    within = tuple(name for name in nodes if name not in closed)
    if not within:
        return Refusal(kind=RefusalKind.WAIT, reasons=closed_by(closing_it))
    return replace(job, within=within)


def _open_nodes(
    window: SiteWindow, windows: Sequence[SiteWindow], ends_s: float
) -> tuple[str, ...]:
    others = (w for w in windows if w is not window and w.starts_at_s < ends_s)
    closed = {name for other in others for name in other.nodes}
    return tuple(n for n in window.nodes if n not in window.cpus and n not in closed)


def _refusal(kind: RefusalKind, code: ReasonCode, job: Job, detail: str) -> Refusal:
    return Refusal(kind=kind, reasons=(Reason(code=code, job=job.name, detail=detail),))


def _not_yet(job: Job, window: SiteWindow, now_s: float) -> Refusal:
    reason = Reason(
        code=ReasonCode.RESERVATION,
        job=job.name,
        detail=window.name,
        from_s=window.starts_at_s,
        until_s=window.ends_at_s,
    )
    in_s = max(0.0, window.starts_at_s - now_s)
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,), starts_in_s=in_s)
