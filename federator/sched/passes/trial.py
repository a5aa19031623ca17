"""Answers ``--test-only``: what every site would do with a workload that is not queued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federator.model.reason import Refusal
from federator.model.site_message import SiteAnswer
from federator.model.workload import SiteName, Workload
from federator.sched.passes.auction import bids_for
from federator.sched.passes.availability import unavailable
from federator.sched.passes.data_places import data_refusals, staging_words, with_staging
from federator.sched.passes.limits import limit_refusal
from federator.sched.passes.round import Round
from federator.sched.passes.site_view import SiteView, never_fits
from federator.sched.queue.guests import Guests
from federator.sched.state.ledger import Ledger


@dataclass(slots=True)
class Trial:
    """A ``--test-only`` question of one client."""

    client: int
    workload: Workload
    round: Round

    def answers(
        self, ledger: Ledger, sites: Mapping[SiteName, SiteView], guests: Guests
    ) -> tuple[dict[SiteName, SiteAnswer], SiteName | None]:
        """Each site's answer, and who would win now.

        Of a site that is not asked nothing but what it last had can say "never". Under the name ""
        the federation's own, where a limit stands against every bid, or a quota (by ``guests``).
        """
        id_, tenancy = self.workload.id, ledger.tenancy
        answers = {site: by_id[id_] for site, by_id in self.round.answers.items() if id_ in by_id}
        uses = self.workload.needed_data
        refusals = data_refusals(ledger, uses, sites)
        lacking = with_staging(refusals, staging_words(ledger, uses, refusals), None)
        others = lacking | self._of_those_away(sites, ledger) | self.round.silent()
        others = {s: r for s, r in others.items() if s not in answers or not sites[s].advisory}
        for site, refused in others.items():
            answers[site] = SiteAnswer(id=id_, refusal=refused)
        site_order = list(sites)
        offered = {s: by_id for s, by_id in self.round.answers.items() if not sites[s].shadow}
        if self.workload.tenant not in tenancy:
            offers = bids_for(id_, offered, site_order)
            return answers, offers[0].site if offers else None
        beyond = None
        for offer in bids_for(id_, offered, site_order):
            row = tenancy.row(self.workload.tenant)
            charge = ledger.holdings.charge_for(row, offer.bid.jobs)
            amounts = charge.amounts
            refusal = limit_refusal(ledger.holdings, row, amounts)
            if refusal is None:
                within = ledger.holdings.keeps_quota(charge) and tenancy.is_home(row, offer.site)
                lent = guests.decide(self.workload, row, amounts, within=within)
                refusal = lent if isinstance(lent, Refusal) else None
            if refusal is None:
                return answers, offer.site
            beyond = beyond or refusal
        if beyond is not None:
            answers[SiteName("")] = SiteAnswer(id=id_, refusal=beyond)
        return answers, None

    def advised(
        self, sites: Mapping[SiteName, SiteView], *, everywhere: bool = False
    ) -> tuple[SiteName, ...]:
        """The sites in mode advisory that would start it now, in their order.

        ``everywhere``: all sites are so for its tenant.
        """
        id_ = self.workload.id
        return tuple(
            site
            for site, view in sites.items()
            if (view.advisory or everywhere)
            and (answer := self.round.answers.get(site, {}).get(id_)) is not None
            and answer.bid is not None
        )

    def _of_those_away(
        self, sites: Mapping[SiteName, SiteView], ledger: Ledger
    ) -> dict[SiteName, Refusal]:
        found = unavailable(sites, ledger)
        for name in found:
            never = never_fits(sites, name, self.workload.jobs)
            found[name] = found[name] if never is None else never
        return found
