"""Decides what a submission is answered at once: it can never run, or its key was used before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from federator.model.draft import Draft
from federator.model.mappings import NOTHING
from federator.model.message import AnswerKeyUsed, AnswerSubmitted, SubmitAsked
from federator.model.node_names import jobs_at
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.resources import Amounts
from federator.model.submission import Submission, submission_differences, unpack_submission
from federator.model.tenant import Tenancy
from federator.model.workload import SiteName, WorkloadId
from federator.sched.bid.reserved_nodes import not_admitted
from federator.sched.passes.site_view import SiteView, unknown_nodes
from federator.sched.queue.borrowing import not_lent
from federator.sched.state.fleet_licenses import Pools, beyond_pools
from federator.sched.state.ledger import Ledger

MOST_NAMED: Final = 8  # nodes that no site has


def never_runs(
    draft: Draft,
    tenancy: Tenancy,
    sites: Mapping[SiteName, SiteView],
    *,
    quota_only: bool = False,
    pools: Pools = NOTHING,
) -> dict[SiteName, Refusal] | None:
    """Say why it can never run; None if it can, or if a site has not reported yet what it has.

    Args:
        draft: what was asked for.
        tenancy: the tenants.
        sites: with what each is known to have.
        quota_only: who may not be evicted starts only within quota; see ``borrowing``.
        pools: the licences that all sites share.

    Returns:
        Each site's reason when none is large enough; under the name "" the federation's own, when
        a limit of the tenant or of an ancestor is lower than the request, or a pool of licences, or
        a quota, where only what is within quota may start.
    """
    beyond, request = beyond_pools(draft.jobs, pools), tenancy.resources.request(draft.jobs)
    if (
        beyond is None and draft.tenant in tenancy
    ):  # others have no limit, and a question gives nobody a row
        beyond = _beyond_any_limit(tenancy, tenancy.row(draft.tenant), request)
    if beyond is None and quota_only and not draft.preemptible:
        own = not_lent(tenancy, draft.tenant, request)
        beyond = own if own.kind is RefusalKind.REJECT else None
    if beyond is not None:
        return {SiteName(""): beyond}
    unknown = unknown_nodes(sites, draft.jobs)
    if unknown:
        reason = Reason(code=ReasonCode.NO_NODE, detail=",".join(unknown[:MOST_NAMED]))
        return dict.fromkeys(sites, Refusal(kind=RefusalKind.REJECT, reasons=(reason,)))
    refusals: dict[SiteName, Refusal] = {}
    for name, site in sites.items():
        if site.empty is None:
            return None
        jobs = jobs_at(draft.jobs, name)
        refusal = not_admitted(site.windows, jobs, draft.user, draft.tenant)
        refusal = refusal or site.never_fits(jobs)
        if refusal is None:
            return None
        refusals[name] = refusal
    return refusals


def _beyond_any_limit(tenancy: Tenancy, row: int, request: Amounts) -> Refusal | None:
    for at in tenancy.limit_rows(row):
        limit = tenancy.limits[at] or ()
        for k, (asked, most) in enumerate(zip(request, limit, strict=True)):
            if asked > most:
                reason = Reason(
                    code=ReasonCode.LIMIT,
                    needed=asked,
                    free=int(most),
                    unit=tenancy.resources.unit(k),
                    detail=tenancy.tenants[at].name,
                )
                return Refusal(kind=RefusalKind.REJECT, reasons=(reason,))
    return None


def answer_again(
    ledger: Ledger, asked: SubmitAsked, known: WorkloadId
) -> AnswerSubmitted | AnswerKeyUsed:
    """Answer a submission whose key was used before: by its own retry, or for another one.

    What was adopted when it had completed has no submission, so the key alone tells that it is the
    same.
    """
    submitted = _submission(ledger, known)
    differences: tuple[str, ...] = ()
    if submitted is not None:
        again = unpack_submission(asked.draft.submission)
        differences = submission_differences(submitted, again)
    if not differences:
        return AnswerSubmitted(client=asked.client, id=known)
    return AnswerKeyUsed(client=asked.client, key=asked.key, id=known, differences=differences)


def _submission(ledger: Ledger, known: WorkloadId) -> Submission | None:
    """The submission, by any task that still has it; None: none has."""
    for task in ledger.array_tasks.get(known, {}).values() or (known,):
        submission = unpack_submission(ledger.entries[task].workload.submission)
        if submission.components:
            return submission
    return None
