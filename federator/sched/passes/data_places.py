"""Says which sites lack the data sets of a workload, as refusals that no site gives itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from federator.model.data_use import DataUse
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import SiteName, Workload
from federator.sched.state.ledger import Ledger

MOST_NAMED: Final = 4  # data sets of one refusal


def has_data(ledger: Ledger, workload: Workload, site: SiteName) -> bool:
    """Tell whether a workload finds all of its data sets at a site."""
    return not workload.data or site in ledger.catalogue.sites_of(workload.data)


def data_nowhere(ledger: Ledger, uses: tuple[DataUse, ...]) -> Refusal | None:
    """The refusal of all sites, where none has all of these; None: one has.

    It names those that none has, or all of them, if it is only that they are not together.
    """
    if not uses or ledger.catalogue.sites_of(uses):
        return None
    return _refusal(ledger.catalogue.lacking(uses) or uses)


def data_refusals(
    ledger: Ledger, uses: tuple[DataUse, ...], sites: Iterable[SiteName]
) -> dict[SiteName, Refusal]:
    """The refusals of those sites that lack any of these."""
    if not uses:
        return {}
    having = ledger.catalogue.sites_of(uses)
    return {
        site: _refusal(ledger.catalogue.lacking(uses, site)) for site in sites if site not in having
    }


def _refusal(uses: Iterable[DataUse]) -> Refusal:
    labels = [use.label for use in uses]
    more = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    reason = Reason(code=ReasonCode.DATA, detail=", ".join(labels[:MOST_NAMED]) + more)
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
