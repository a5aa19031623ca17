"""Takes submissions into the queue, or refuses them."""

from __future__ import annotations

from collections.abc import Mapping

from federator.model.event import Submitted
from federator.model.message import AnswerRefused, AnswerSubmitted, SubmitAsked
from federator.model.reason import Refusal
from federator.model.workload import SiteName
from federator.sched.passes.admission import answer_again, never_runs
from federator.sched.passes.limits import submit_refusal
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.eligibility import too_late


def submit(
    turn: Transaction, asked: SubmitAsked, sites: Mapping[SiteName, SiteView], rounds: Rounds
) -> None:
    """Record a submission, or refuse it, and answer; with ``test_only`` nothing is recorded."""
    ledger, draft = turn.ledger, asked.draft
    known = ledger.keys.id_of.get(asked.key)
    if known is not None and not asked.test_only:
        turn.commands.append(answer_again(ledger, asked, known))
        return
    refusals = _refusals(turn, asked, sites, rounds)
    if refusals is not None:
        turn.commands.append(AnswerRefused(client=asked.client, refusals=refusals))
        return
    submitted = Submitted(
        at_s=turn.now_s,
        draft=draft,
        first_id=ledger.next_id,
        key=asked.key,
        by=asked.by,
    )
    if asked.test_only:
        rounds.try_out(turn, asked.client, submitted.workloads()[0])
        return
    turn.record(submitted)
    turn.commands.append(AnswerSubmitted(client=asked.client, id=submitted.first_id))


def _refusals(
    turn: Transaction, asked: SubmitAsked, sites: Mapping[SiteName, SiteView], rounds: Rounds
) -> dict[SiteName, Refusal] | None:
    """As of ``never_runs``, or under the name "" that it is too late, or beyond a submit limit."""
    ledger, draft = turn.ledger, asked.draft
    refusals = never_runs(
        draft,
        ledger.tenancy,
        sites,
        quota_only=rounds.guests.lends_to_preemptible_only,
        pools=turn.rules.licenses,
    )
    if refusals is not None:
        return refusals
    if draft.starts_by_s <= turn.now_s:
        return {SiteName(""): too_late(draft.deadline_at_s)}
    beyond = submit_refusal(ledger, draft.tenant, draft.user, max(1, len(draft.array_indices)))
    return {SiteName(""): beyond} if beyond else None
