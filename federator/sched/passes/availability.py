"""Lists the sites and nodes that take no new work now: in shadow mode, drained, cordoned,
down, not reported yet.

A drained site is not asked to bid. Of one with drained nodes the question says that nobody may have
them: they travel as a claim of nobody, so what is free on them, or comes free, is not bid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from federator.model.event import Claimed
from federator.model.lifecycle import AT_SITE
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import NodeShare
from federator.model.site_message import SiteAnswer, SiteClaim
from federator.model.workload import MAX_AMOUNT, SiteName, WorkloadId
from federator.sched.passes.limits import wait
from federator.sched.passes.site_view import SiteView
from federator.sched.state.ledger import Ledger

_ALL: Final = NodeShare(gpus=MAX_AMOUNT, cpus=MAX_AMOUNT, mem_mib=MAX_AMOUNT)
_NOBODY: Final = WorkloadId(0)


def takes_work(name: SiteName, view: SiteView, ledger: Ledger) -> bool:
    """Tell whether a site may be asked to bid."""
    drains = ledger.drains
    if view.shadow:
        return False
    return view.ready and name not in drains.by_site and name not in drains.written_off


def sites_to_ask(sites: Mapping[SiteName, SiteView], ledger: Ledger) -> list[SiteName]:
    """The sites that may be asked to bid."""
    if not (ledger.drains.by_site or ledger.drains.written_off):
        return [name for name, view in sites.items() if view.ready and not view.shadow]
    return [name for name, view in sites.items() if takes_work(name, view, ledger)]


def sites_to_advise(sites: Mapping[SiteName, SiteView], ledger: Ledger) -> list[SiteName]:
    """The sites in mode advisory that can say what they would do with a job."""
    drains = ledger.drains
    away = drains.by_site.keys() | drains.written_off.keys()
    return [n for n, view in sites.items() if view.advisory and view.ready and n not in away]


def unavailable(sites: Mapping[SiteName, SiteView], ledger: Ledger) -> dict[SiteName, Refusal]:
    """The sites that are not asked to bid, each with the reason."""
    found = {}
    for name, view in sites.items():
        drain, gone = ledger.drains.by_site.get(name), ledger.drains.written_off.get(name)
        if gone is not None:
            reason = Reason(code=ReasonCode.WRITTEN_OFF, detail=gone.reason)
            found[name] = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        elif view.shadow:
            found[name] = wait(ReasonCode.SHADOW)
        elif drain is not None:
            reason = Reason(code=ReasonCode.DRAINED, detail=drain.reason)
            found[name] = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        elif not view.ready:
            found[name] = wait(ReasonCode.SITE_DOWN)
    return found


def is_on_drained_nodes(claim: Claimed, ledger: Ledger) -> bool:
    """Tell whether the site of a claim, or one of its nodes, takes no new work of its any more."""
    nodes = [name for plan in claim.jobs for name in plan.nodes]
    drains = ledger.drains
    slow = drains.limping.get(claim.site, {}).keys()
    return (
        claim.site in drains.written_off
        or drains.of(claim.site, nodes) is not None
        or any(len(plan.nodes) > 1 and not slow.isdisjoint(plan.nodes) for plan in claim.jobs)
    )


def is_of_a_watched_tenant(claim: Claimed, ledger: Ledger) -> bool:
    """Tell whether nothing is started for a claim's tenant any more, so that it leads nowhere."""
    tenancy = ledger.tenancy
    return not tenancy.mode(tenancy.row(ledger.entries[claim.workload].workload.tenant)).acts


def drained_nodes(ledger: Ledger, site: SiteName) -> tuple[SiteClaim, ...]:
    """The drained nodes of a site as a claim that binds everybody; empty where it has none."""
    names = ledger.drains.nodes_at(site)
    if not names:
        return ()
    drained = set(names)
    here = (e for e in ledger.in_state(*AT_SITE) if e.site == site)
    spared = sorted(e.workload.id for e in here if not drained.isdisjoint(e.node_names))
    nodes = dict.fromkeys(names, _ALL)
    return (SiteClaim(id=_NOBODY, priority=0, nodes=nodes, victims=tuple(spared)),)


def without_drained(
    answers: Iterable[SiteAnswer], ledger: Ledger, site: SiteName
) -> tuple[SiteAnswer, ...]:
    """A site's answers without bids for drained nodes, which an older agent may make."""
    drains = ledger.drains
    if site not in drains.nodes:
        return tuple(answers)
    found = []
    for answer in answers:
        plans = () if answer.bid is None else answer.bid.jobs
        drain = drains.of(site, [name for plan in plans for name in plan.nodes])
        if plans and drain is not None:
            reason = Reason(code=ReasonCode.DRAINED, detail=drain.reason)
            refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
            answer = replace(answer, bid=None, refusal=refusal)  # noqa: PLW2901
        found.append(answer)
    return tuple(found)
