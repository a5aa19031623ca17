"""Decides which waiting workloads are held: those that every site has refused for good.

A site refuses for good when its sbatch refuses the submission itself, or when time and again sbatch
refuses the plan for it or its files cannot be opened there. One that is too small, or knows no such
user, cannot take the workload anyhow. As long as one other site may take it, though it is full or
down, the workload waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federator.model.lifecycle import Happening, WorkloadState
from federator.model.reason import Reason, ReasonCode, RefusalKind
from federator.model.workload import SiteName
from federator.sched.ledger import Entry
from federator.sched.site_view import SiteView
from federator.sched.turn import Turn
from federator.sched.workload_plan import never_fits

TRIES: Final = 5
"""Refused so often in a row, it will not pass: nodes may have changed between sweep and launch, or
a file may just have been written at another site, not through more than a minute of growing pauses.
"""
_MAY_PASS: Final = (ReasonCode.PLAN_REFUSED, ReasonCode.FILES)
MOST_WORDS: Final = 500  # characters of the sites' own


def has_refused(entry: Entry, site: SiteName) -> bool:
    """Whether a site has refused the workload for good."""
    setback = entry.setbacks.get(site)
    if setback is None:
        return False
    tried = entry.failures_at.get(site, 0)
    return setback.code is ReasonCode.SBATCH_REFUSED or (
        setback.code in _MAY_PASS and tried >= TRIES
    )


def may_take(entry: Entry, site: SiteName, view: SiteView) -> bool:
    """Whether a site may take the workload some day, as far as is known of it now."""
    if has_refused(entry, site):
        return False
    answer = entry.refusals.get(site)
    if answer is not None and answer.kind is RefusalKind.REJECT:
        return False
    if view.empty is None:
        return True
    return never_fits(entry.workload.jobs, view.empty, view.partitions) is None


def reason_to_hold(entry: Entry, sites: Mapping[SiteName, SiteView]) -> Reason | None:
    """Why a workload that waits must be held, in the sites' words; None if it may still start."""
    refusing = [site for site in sites if has_refused(entry, site)]
    if not refusing or any(may_take(entry, site, view) for site, view in sites.items()):
        return None
    said: dict[str, list[str]] = {}
    for site in refusing:
        said.setdefault(entry.setbacks[site].detail, []).append(site)
    text = "; ".join(f"{', '.join(of)}: {words}" for words, of in said.items())
    return Reason(code=ReasonCode.HELD, detail=text[:MOST_WORDS])


def hold_if_refused(turn: Turn, entry: Entry, sites: Mapping[SiteName, SiteView]) -> None:
    """Hold a workload that waits, if no site is left that may take it."""
    if entry.state is WorkloadState.PENDING:
        reason = reason_to_hold(entry, sites)
        if reason is not None:
            turn.change(entry, Happening.HELD, reason=reason)


def release_for(turn: Turn, site: SiteName, view: SiteView, *, afresh: bool = False) -> None:
    """Release what is held and a site may take, which has come or has changed.

    Args:
        turn: takes the changes.
        site: its name.
        view: what is known of it.
        afresh: it has just come: what it answered before counts no more, it may know more users.
    """
    for entry in turn.ledger.in_state(WorkloadState.HELD):
        if afresh:
            entry.refusals.pop(site, None)
        if may_take(entry, site, view):
            turn.change(entry, Happening.RELEASED)
