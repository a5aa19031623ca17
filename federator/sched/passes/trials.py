"""Trials: the ``--test-only`` questions of clients, while sites are asked about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federator.model.message import AnswerTested, SendTo
from federator.model.plan import BidRequest
from federator.model.reason import Refusal
from federator.model.site_message import Ask, SiteAnswer
from federator.model.workload import SiteName, Workload
from federator.sched.passes.availability import drained_nodes, sites_to_advise, sites_to_ask
from federator.sched.passes.data_places import has_data
from federator.sched.passes.kept_off import KeptOff
from federator.sched.passes.round import Round, RoundSeries, asked_of
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.tariff import Tariff
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.trial import Trial
from federator.sched.passes.withheld import tenant_refusal
from federator.sched.queue.guests import Guests
from federator.sched.state.fleet_licenses import beyond_pools
from federator.sched.state.ledger import Ledger


class Trials:
    """Those that have not been answered; each has a round of its own.

    Args:
        sites: as they last were, in the order that breaks ties.
        ledger: knows the tenants; trials change nothing in it.
        series: numbers the rounds.
    """

    def __init__(
        self, sites: Mapping[SiteName, SiteView], ledger: Ledger, series: RoundSeries
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._series = series
        self._open: dict[int, Trial] = {}

    def rounds(self) -> list[Round]:
        """The round of each."""
        return [trial.round for trial in self._open.values()]

    def ask(self, turn: Transaction, client: int, workload: Workload, tariff: Tariff) -> None:
        """Ask all sites about a workload that is not queued, by the prices of a pass."""
        request = BidRequest.of(workload, self._ledger.tenancy.level(workload))
        round_ = self._series.begin(turn, (request,))
        names = sites_to_ask(self._sites, self._ledger)
        names += sites_to_advise(self._sites, self._ledger)
        names = [name for name in names if has_data(self._ledger, workload, name)]
        round_.waiting_for.update(names)
        for name in names:
            drained = drained_nodes(self._ledger, name)
            kept_off = KeptOff.at(name, self._sites[name], self._ledger.drains)
            if kept_off:
                round_.kept_off[name] = kept_off
            here = asked_of(request, name, None, turn.now_s, kept_off)
            prices = tariff.at(name, self._sites[name], turn.now_s)
            if prices:
                round_.prices[name] = prices
            question = Ask(
                pass_id=round_.pass_id,
                requests=(here,),
                claims=drained,
                prices=prices,
                cells=turn.rules.cells,
            )
            turn.commands.append(SendTo(site=name, message=question))
        self._open[round_.pass_id] = Trial(client=client, workload=workload, round=round_)

    def conclude(self, turn: Transaction, guests: Callable[[], Guests]) -> None:
        """Answer those whose rounds are over; ``guests``: the rules for work over quota."""
        for pass_id, trial in list(self._open.items()):
            if trial.round.over(turn.now_s):
                del self._open[pass_id]
                watched = self._tenant_refusal(trial.workload)
                answers, winner = trial.answers(self._ledger, self._sites, guests())
                held = self._ledger.counts.licenses
                lacking = beyond_pools(trial.workload.jobs, turn.rules.licenses, held)
                refusal = watched or (lacking if winner is not None else None)
                if refusal is not None:
                    winner = None
                    answers[SiteName("")] = SiteAnswer(id=trial.workload.id, refusal=refusal)
                reply = AnswerTested(
                    client=trial.client,
                    answers=answers,
                    winner=winner,
                    advised=trial.advised(self._sites, everywhere=watched is not None),
                )
                turn.commands.append(reply)

    def _tenant_refusal(self, workload: Workload) -> Refusal | None:
        """Why the federation would not start it for its tenant, wherever that is."""
        tenancy = self._ledger.tenancy
        known = workload.tenant in tenancy  # a question gives nobody a row
        return tenant_refusal(tenancy, tenancy.row(workload.tenant)) if known else None
