"""Lists the sites that take no new work now: drained, cordoned, down, or not reported yet."""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import SiteName
from federator.sched.passes.limits import wait
from federator.sched.passes.site_view import SiteView
from federator.sched.state.ledger import Ledger


def takes_work(name: SiteName, view: SiteView, ledger: Ledger) -> bool:
    """Tell whether a site may be asked to bid."""
    return view.ready and name not in ledger.drains.by_site


def unavailable(sites: Mapping[SiteName, SiteView], ledger: Ledger) -> dict[SiteName, Refusal]:
    """The sites that are not asked to bid, each with the reason."""
    found = {}
    for name, view in sites.items():
        drain = ledger.drains.by_site.get(name)
        if drain is not None:
            reason = Reason(code=ReasonCode.DRAINED, detail=drain.reason)
            found[name] = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
        elif not view.ready:
            found[name] = wait(ReasonCode.SITE_DOWN)
    return found
