"""Bid intake: takes a site's answers to the round that asked for them, once they are valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from functools import partial

from msgspec import structs

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import BidsMade, SiteAnswer
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.bid.score import Prices, cost_of_plans
from federator.sched.passes.availability import without_drained
from federator.sched.passes.bid_validation import (
    Validation,
    without_contiguous,
    without_data,
    without_wishes,
)
from federator.sched.passes.held import Holding
from federator.sched.passes.kept_off import NO_SLOW_NODES, KeptOff
from federator.sched.passes.round import Round, asked_of
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.tariff import NO_PRICES
from federator.sched.passes.transaction import Transaction


class BidIntake:
    """Validates what sites answer.

    Args:
        sites: as they last were.
        holding: hears what sites say of users and of plans.
        same_process: see ``Validation``.
    """

    def __init__(
        self, sites: Mapping[SiteName, SiteView], holding: Holding, *, same_process: bool
    ) -> None:
        self._sites = sites
        self._holding = holding
        self._validation = Validation(same_process=same_process)

    def take(
        self, turn: Transaction, round_: Round, site: SiteName, came: BidsMade, generation: int
    ) -> None:
        """Take the answers of a site.

        Args:
            turn: see ``Transaction``.
            round_: the one that asked.
            site: that answers.
            came: its answers.
            generation: as of which they count; see ``KnownRefusals.generation``.
        """
        asked = partial(_jobs_asked, turn, round_, site)
        validated = self._validation.validated(came.answers, asked, partial(_sizes_asked, round_))
        has_bids = any(answer.bid is not None for answer in validated)
        if has_bids:  # most messages of a deep queue have none
            validated = self._checked(turn, round_, site, came, validated)
        if site in round_.kept_off:
            validated = _of_slow_nodes(validated, turn, site, round_.kept_off[site])
        if has_bids:
            validated = list(without_drained(validated, turn.ledger, site))
        round_.take(site, validated, generation)
        if came.keeps_claims:
            round_.keeping_claims.add(site)
        self._holding.answered(turn, site, round_.requests, validated)

    def _checked(
        self,
        turn: Transaction,
        round_: Round,
        site: SiteName,
        came: BidsMade,
        answers: list[SiteAnswer],
    ) -> list[SiteAnswer]:
        """The answers without bids that the site may not make, or that its release makes wrongly.

        Those that are left with what they cost.
        """
        view, asked = self._sites.get(site), partial(_jobs_asked, turn, round_, site)
        if view is not None:
            answers = on_partitions(answers, view.partitions)
        types: Container[str] = () if view is None else view.gpus_by_type
        answers = priced(answers, round_.prices.get(site, NO_PRICES), types)
        if not came.keeps_wishes:
            answers = without_wishes(answers, asked)
        if not came.keeps_contiguous:
            answers = without_contiguous(answers, asked)
        if not came.keeps_data:
            answers = without_data(answers, partial(_uses_data, turn))
        if not came.keeps_outputs:
            answers = without_data(answers, partial(_writes_data, turn))
        return answers


def on_partitions(answers: Sequence[SiteAnswer], partitions: Container[str]) -> list[SiteAnswer]:
    """The answers without bids for other partitions than those that the federation may use."""
    found = []
    for answer in answers:
        plans = () if answer.bid is None else answer.bid.jobs
        strange = next((p for p in plans if p.partition not in partitions), None)
        if strange is not None:
            wrong = f"{strange.name}: it plans on partition {strange.partition or '(none)'}"
            reason = Reason(code=ReasonCode.BAD_BID, detail=wrong)
            refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
            answer = SiteAnswer(id=answer.id, refusal=refusal)  # noqa: PLW2901
        found.append(answer)
    return found


def priced(
    answers: Sequence[SiteAnswer], prices: Prices, types: Container[str]
) -> list[SiteAnswer]:
    """The answers with what their plans cost by these prices, whatever the site says of that.

    ``types``: of the site's GPUs.
    """
    found = []
    for answer in answers:
        bid = answer.bid
        if bid is not None:
            cost = cost_of_plans(bid.jobs, prices, types) if prices else 0.0
            if cost != bid.cost:
                bid = dataclasses.replace(bid, cost=cost)
                answer = structs.replace(answer, bid=bid)  # noqa: PLW2901
        found.append(answer)
    return found


def _uses_data(turn: Transaction, id_: WorkloadId) -> bool:
    entry = turn.ledger.entries.get(id_)
    return entry is not None and bool(entry.workload.data)


def _writes_data(turn: Transaction, id_: WorkloadId) -> bool:
    entry = turn.ledger.entries.get(id_)
    return entry is not None and entry.workload.output is not None


def _sizes_asked(round_: Round, id_: WorkloadId) -> tuple[int, ...]:
    request = round_.requests.get(id_)
    return () if request is None else request.sizes


def _jobs_asked(turn: Transaction, round_: Round, site: SiteName, id_: WorkloadId) -> Sequence[Job]:
    """The jobs a site was asked for; nothing for a workload that it was not asked about."""
    request = round_.requests.get(id_)
    if request is None:
        return ()
    kept_off = round_.kept_off.get(site, NO_SLOW_NODES)
    return asked_of(request, site, turn.ledger.entries.get(id_), turn.now_s, kept_off).jobs


def _of_slow_nodes(
    answers: Sequence[SiteAnswer], turn: Transaction, site: SiteName, kept_off: KeptOff
) -> list[SiteAnswer]:
    """The answers, with refusals that tell slow nodes from those that failed."""
    found = []
    for answer in answers:
        if answer.refusal is not None:
            entry = turn.ledger.entries.get(answer.id)
            failed = entry.bad_nodes.avoided(site, turn.now_s) if entry is not None else ()
            refusal = kept_off.said(answer.refusal, failed)
            if refusal is not answer.refusal:
                answer = structs.replace(answer, refusal=refusal)  # noqa: PLW2901
        found.append(answer)
    return found
