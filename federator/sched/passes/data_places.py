"""Says which sites lack the data sets of a workload, as refusals that no site gives itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from federator.model.data_output import ROOM
from federator.model.data_use import DataUse
from federator.model.dataset import CopyPhase
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import SiteName, Workload
from federator.sched.passes.staging import staging_bid
from federator.sched.state.ledger import Ledger

NO_ROOM: Final = "a storage domain for --fed-output"
MOST_NAMED: Final = 4  # data sets of one refusal


def has_data(ledger: Ledger, workload: Workload, site: SiteName) -> bool:
    """Tell whether a workload finds all of its data sets at a site."""
    needed = workload.needed_data
    return not needed or site in ledger.catalogue.sites_of(needed)


def data_nowhere(ledger: Ledger, uses: tuple[DataUse, ...]) -> Refusal | None:
    """The refusal of all sites, where none has all of these; None: one has.

    It names those that none has, or all of them, if it is only that they are not together.
    """
    if not uses or ledger.catalogue.sites_of(uses):
        return None
    return _refusal(ledger, ledger.catalogue.lacking(uses) or uses)


def data_refusals(
    ledger: Ledger, uses: tuple[DataUse, ...], sites: Iterable[SiteName]
) -> dict[SiteName, Refusal]:
    """The refusals of those sites that lack any of these."""
    if not uses:
        return {}
    having = ledger.catalogue.sites_of(uses)
    return {
        site: _refusal(ledger, ledger.catalogue.lacking(uses, site), site)
        for site in sites
        if site not in having
    }


def staging_words(
    ledger: Ledger, uses: tuple[DataUse, ...], sites: Iterable[SiteName]
) -> dict[SiteName, str]:
    """What staging would take at those sites where it may be had, and is not begun; for people.

    Args:
        ledger: knows the data sets, and what is being copied.
        uses: as of ``data_refusals``.
        sites: that lack any of these.
    """
    found = {}
    for site in sites:
        bid = staging_bid(ledger.catalogue, uses, site)
        if bid is not None and not bid.is_begun(ledger.catalogue):
            size, in_s = _size(bid.bytes_to_move), _about(bid.staging_s)
            found[site] = f"{size} to copy, about {in_s}"
    return found


def with_staging(
    refusals: Mapping[SiteName, Refusal], words: Mapping[SiteName, str], home_s: float | None
) -> dict[SiteName, Refusal]:
    """The refusals of ``data_refusals``, with what staging would take; for people.

    Args:
        refusals: of sites that lack data.
        words: as of ``staging_words``.
        home_s: seconds until the job is likely to start where its data is; None: nobody knows.
    """
    at_home = "" if home_s is None else f"; where it is, a start is likely in {_about(home_s)}"
    found = dict(refusals)
    for site, moved in words.items():
        refusal = refusals[site]
        reason = refusal.reasons[0]
        reason = replace(reason, detail=f"{reason.detail} ({moved}{at_home})")
        found[site] = replace(refusal, reasons=(reason, *refusal.reasons[1:]))
    return found


def _size(size_bytes: int) -> str:
    size_mib = size_bytes / 2**20
    return f"{size_mib:.0f} MiB" if size_mib < 1024 else f"{size_mib / 1024:.0f} GiB"


def _about(time_s: float) -> str:
    if time_s < 120:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 7200 else f"{time_s / 3600:.0f} h"


def _refusal(ledger: Ledger, uses: Iterable[DataUse], site: SiteName | None = None) -> Refusal:
    labels = [
        NO_ROOM if use == ROOM else use.label + _on_its_way(ledger, use, site) for use in uses
    ]
    more = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    reason = Reason(code=ReasonCode.DATA, detail=", ".join(labels[:MOST_NAMED]) + more)
    return Refusal(kind=RefusalKind.WAIT, reasons=(reason,))


def _on_its_way(ledger: Ledger, use: DataUse, site: SiteName | None) -> str:
    """How far a copy is that the site, or any, will find; "": none is being made.

    The time that is left is as of the last that was heard of it.
    """
    of = ledger.catalogue.find(use.name, use.version)
    for replica in () if of is None or of.owner != use.owner else of.replicas:
        domain = ledger.catalogue.domains.get(replica.domain)
        is_for_it = domain is not None and (site is None or site in domain.mounts)
        if of is None or replica.copy is None or not is_for_it:
            continue
        copy, eta_s = replica.copy, replica.copy.eta_s(of.size_bytes)
        if copy.phase is CopyPhase.FAILED:
            return f" (its copy to {replica.domain} has failed, and is tried again)"
        left = f", about {max(0.0, eta_s - copy.told_at_s):.0f} s left" if eta_s else ""
        done = 100 * min(1.0, copy.copied_bytes / of.size_bytes) if of.size_bytes else 0.0
        return f" (being copied to {replica.domain}, {done:.0f} %{left})"
    return ""
