"""Each divergence has exactly one reason, and sites and accounts count the same ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federator.model.reason import ReasonCode
from federator.model.workload import Job, SiteName
from federator.sim.importers.whatif_workload import PastWorkload
from federator.sim.local_replay import SAME_S, LocalFate, LocalReplay
from federator.sim.report.divergence import RULES, DivergenceReason, Divergences, diverges
from federator.sim.report.divergence_counts import divergence_report
from federator.sim.scenario import AttemptInterval

SITES = (SiteName("alpine"), SiteName("birch"))
WORDS = ("", "Priority", "Resources", "Dependency", "QOSMaxGRESPerUser", "Nodes", "New")
CODES = (None, *ReasonCode)


@st.composite
def fates(draw: st.DrawFn) -> LocalFate:
    came_s, wait_s, lasts_s = (draw(st.integers(0, 400)) for _ in range(3))
    site, gpus = draw(st.sampled_from(SITES)), draw(st.integers(1, 8))
    start_s, end_s = came_s + wait_s, came_s + wait_s + lasts_s
    federated_s = draw(st.none() | st.integers(came_s, came_s + 800))
    stays: tuple[AttemptInterval, ...] = ()
    if federated_s is not None:
        there = draw(st.sampled_from(SITES))
        stays = (AttemptInterval(there, float(federated_s), float(federated_s + lasts_s)),)
    return LocalFate(
        past=PastWorkload(
            job_id=str(draw(st.integers(1, 99))),
            line=0,
            site=site,
            account=draw(st.sampled_from(("bio", "nlp"))),
            user="ada",
            submitted_s=came_s,
            came_s=came_s,
            start_s=start_s,
            duration_s=max(1, lasts_s),
            limit_s=3600.0,
            preemptions=0,
            held=((start_s, end_s, gpus),),
            jobs=(Job(name="job", gpus=gpus),),
        ),
        tenant=draw(st.sampled_from(("bio", "nlp"))),
        measured=True,
        federated_start_s=federated_s,
        federated_stays=stays,
        alone_start_s=None,
        held_by=draw(st.sampled_from(WORDS)),
        federated_code=draw(st.sampled_from(CODES)),
    )


@given(st.lists(fates(), max_size=12), st.integers(1, 16))
def test_each_divergence_has_one_reason_and_is_counted_once(
    found: list[LocalFate], size: int
) -> None:
    replayed = LocalReplay(fates=tuple(found), left_out=(), gpus=dict.fromkeys(SITES, size))
    seen = Divergences.of(replayed)
    with_reasons = [(fate, seen.reason(fate)) for fate in found]
    for fate, reason in with_reasons:
        same = fate.federated_start_s is not None and (
            abs(fate.federated_start_s - fate.past.start_s) <= SAME_S
            and fate.federated_stays[0].site == fate.past.site
        )
        assert (reason is None) is same is not diverges(fate)
        if reason is not None:
            assert reason is next(why for why, fits in RULES if fits(seen, fate))
    report = divergence_report(with_reasons, SITES)
    total = sum(reason is not None for _, reason in with_reasons)
    for rows in ([report.in_all], report.sites, report.accounts):
        assert sum(row.jobs for row in rows) == len(found)
        assert sum(row.divergences for row in rows) == total
        for row in rows:
            assert sum(row.reasons.values()) == row.divergences
            unknown = row.reasons.get(DivergenceReason.UNKNOWN.name, 0)
            assert row.with_reason == row.divergences - unknown
            assert len(row.examples) == min(3, unknown)
            if row.interval is not None:
                assert row.interval.low <= row.with_reason_frac <= row.interval.high


def test_every_reason_has_its_rules_in_order_and_the_last_takes_all() -> None:
    assert list(dict.fromkeys(why for why, _ in RULES)) == list(DivergenceReason)
