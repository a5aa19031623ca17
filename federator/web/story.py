"""One workload's story: how it stands, what each site says, its attempts and what came when.

The answer of ``/api/jobs/ID``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import msgspec

from federator.cli.lending_text import decision_text
from federator.cli.node_lists import folded
from federator.cli.preemption_text import preemption_lines
from federator.cli.rank_text import credit_text, position_text, priority_text, standing_text
from federator.cli.region_text import region_lines
from federator.cli.text import alternative_text, printable, reason_text, refusal_text
from federator.model.score import TERMS, with_cost
from federator.web.queue_view import QueueItem, item_of
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import QueueRow
from federator.wire.queue_rows import QueueRank, RegionRow


class SiteVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one site says: it bid, or it refused; ``site`` "" is the federation itself."""

    site: str
    kind: str  # bid, wait, reject or setback
    text: str
    taken: bool = False  # of a bid: the workload went there
    score: dict[str, float] = {}  # of a bid: all terms, which are compared from left to right
    starts_in_s: float | None = None  # of a refusal: when it could start there at the latest
    alternatives: tuple[str, ...] = ()  # of a refusal: what would start there now


class StoryAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a site; times are Unix times, 0: not yet, or never."""

    attempt: int
    site: str
    site_job_id: int
    partition: str
    node_list: str
    gpus: int
    awarded_at_s: float
    started_at_s: float
    ended_at_s: float
    state: str
    exit_code: int
    signal: int
    reason: str
    gpu_util_frac: float | None = None  # measured by the site; null: it was not


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a workload."""

    at_s: float
    what: str


class JobStory(msgspec.Struct, frozen=True, kw_only=True):
    """All about one workload."""

    schema: int = 1
    now_s: float
    job: QueueItem
    ended_at_s: float = 0.0
    exit_code: int | None = None
    signal: int = 0
    site_state: str = ""  # Slurm's last word
    site_job_id: int = 0
    node_list: str = ""
    work_dir: str = ""
    stdout: str = ""
    position: str = ""  # in the queue, in words, as the next two
    priority: str = ""
    credit: str = ""
    rank: QueueRank | None = None  # the numbers of these
    sites: tuple[SiteVerdict, ...] = ()
    decided_by: str = ""  # the first term in which the bid that was taken beats the next
    attempts: tuple[StoryAttempt, ...] = ()
    events: tuple[StoryEvent, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # evictions, lending, regions…: label and text
    regions: tuple[RegionRow, ...] = ()  # that could run it, or where it ran, if it has data sets


def story_of(row: QueueRow | None, account: AccountingRow | None, now_s: float) -> JobStory | None:
    """The story of a workload of the queue, or of one that only history knows; None: neither."""
    attempts = tuple(_attempts(account)) if account is not None else ()
    if row is None:
        return None if account is None else _of_the_past(account, attempts, now_s)
    rank, notes = row.rank, list(preemption_lines(row.preemption, now_s))
    if row.lending is not None:
        notes.append(("Lending", decision_text(row.lending)))
    notes += region_lines(row.regions)
    position, priority, credit = _rank_words(rank, row.tenant)
    return JobStory(
        now_s=now_s,
        job=item_of(row),
        ended_at_s=row.ended_at_s,
        exit_code=row.exit_code,
        signal=row.signal,
        site_state=row.site_state,
        site_job_id=row.site_job_id,
        node_list=folded(row.node_names),
        work_dir=row.work_dir,
        stdout=row.stdout,
        position=position,
        priority=priority,
        credit=credit,
        rank=rank,
        sites=tuple(_verdicts(row)),
        decided_by=_decided_by(row),
        attempts=attempts,
        events=_events(row.submitted_at_s, attempts),
        notes=tuple((label, printable(text)) for label, text in notes),
        regions=row.regions,
    )


def _rank_words(rank: QueueRank | None, tenant: str) -> tuple[str, str, str]:
    if rank is None:
        return "", "", ""
    if not rank.position:
        return "", standing_text(rank), ""
    return position_text(rank), priority_text(rank, tenant), credit_text(rank, tenant)


def _verdicts(row: QueueRow) -> Iterator[SiteVerdict]:
    by_site = {s: with_cost(score, row.costs.get(s, 0.0)) for s, score in row.offers.items()}
    for site, terms in sorted(by_site.items(), key=lambda offer: (offer[1], offer[0])):
        score = dict(zip(TERMS, terms, strict=True))
        yield SiteVerdict(
            site=site,
            kind="bid",
            text=_score_text(score),
            taken=site == row.site,
            score=score,
        )
    for site, refusal in row.refusals.items():
        yield SiteVerdict(
            site=site,
            kind=refusal.kind.value,
            text=refusal_text(refusal),
            starts_in_s=refusal.starts_in_s,
            alternatives=tuple(map(alternative_text, refusal.alternatives)),
        )
    for site, setback in row.setbacks.items():
        yield SiteVerdict(site=site, kind="setback", text=reason_text(setback.reason))


def _score_text(score: Mapping[str, float]) -> str:
    terms = [f"{name} {value:.6g}" for name, value in score.items() if value]
    return ", ".join(terms) or "as good as can be: all terms are 0"


def _decided_by(row: QueueRow) -> str:
    by_site = {s: with_cost(score, row.costs.get(s, 0.0)) for s, score in row.offers.items()}
    taken = by_site.pop(row.site, None)
    if taken is None or not by_site:
        return ""
    for name, mine, theirs in zip(TERMS, taken, min(by_site.values()), strict=True):
        if mine != theirs:
            return name
    return "the order of the sites: the bids are equal"


def _attempts(account: AccountingRow) -> Iterator[StoryAttempt]:
    last = () if account.last is None else (account.last,)
    for each in (*account.earlier, *last):
        yield _attempt(each, account.state if each is account.last else each.state)


def _attempt(each: AccountingAttempt, state: str) -> StoryAttempt:
    return StoryAttempt(
        attempt=each.attempt,
        site=each.site,
        site_job_id=each.site_job_id,
        partition=each.partition,
        node_list=each.node_list,
        gpus=each.gpus,
        awarded_at_s=each.awarded_at_s,
        started_at_s=each.started_at_s,
        ended_at_s=each.ended_at_s,
        state=each.state or state,
        exit_code=each.exit_code,
        signal=each.signal,
        reason=printable(each.reason),
        gpu_util_frac=None if each.use is None else each.use.gpu_util_frac,
    )


def _events(submitted_at_s: float, attempts: tuple[StoryAttempt, ...]) -> tuple[StoryEvent, ...]:
    found = [StoryEvent(at_s=submitted_at_s, what="submitted")]
    for each in attempts:
        where = f"attempt {each.attempt} at {each.site}"
        if each.awarded_at_s:
            found.append(StoryEvent(at_s=each.awarded_at_s, what=f"awarded: {where}"))
        if each.started_at_s:
            started_at_s = max(each.started_at_s, each.awarded_at_s)  # Slurm's are whole seconds
            found.append(StoryEvent(at_s=started_at_s, what=f"started: {where}"))
        if each.ended_at_s:
            why = f" ({each.reason})" if each.reason else ""
            state = each.state or "ended"
            ended_at_s = max(each.ended_at_s, each.started_at_s, each.awarded_at_s)
            found.append(StoryEvent(at_s=ended_at_s, what=f"{state}: {where}{why}"))
    return tuple(sorted(found, key=lambda event: event.at_s))


def _of_the_past(
    account: AccountingRow, attempts: tuple[StoryAttempt, ...], now_s: float
) -> JobStory:
    last = account.last
    array = f"{account.array_id}_{account.array_index}" if account.array_id else str(account.id)
    job = QueueItem(
        id=array,
        link=array,
        name=account.name,
        user=account.user,
        tenant=account.tenant,
        priority=account.priority,
        state=account.state,
        tasks=1,
        nodes=last.nodes if last else account.asked_nodes,
        gpus=last.gpus if last else account.asked_gpus,
        site=last.site if last else "",
        submitted_at_s=account.submitted_at_s,
        started_at_s=last.started_at_s if last else 0.0,
        time_limit_s=account.time_limit_s if account.time_limit_s < inf else None,
        attempt=last.attempt if last else 0,
        reason_code=account.reason.partition(" ")[0],
        reason=printable(account.reason),
        unknown_since_s=0.0,
    )
    return JobStory(
        now_s=now_s,
        job=job,
        ended_at_s=account.over_at_s or (last.ended_at_s if last else 0.0),
        exit_code=last.exit_code if last else None,
        signal=last.signal if last else 0,
        site_state=account.site_state,
        site_job_id=last.site_job_id if last else 0,
        node_list=last.node_list if last else "",
        work_dir=account.work_dir,
        attempts=attempts,
        events=_events(account.submitted_at_s, attempts),
    )
