"""``whatif --live``: the simulation goes on from the log, with what the sites hold now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from federator.config import FederationConfig, load_config
from federator.daemon.own_config import new_federation
from federator.model.eligibility import Hold
from federator.model.event import (
    Awarded,
    Changed,
    EpochBegan,
    LogRecord,
    SiteDrained,
    Submitted,
)
from federator.model.lifecycle import WorkloadEvent
from federator.model.site import Node, Snapshot
from federator.model.window import SiteWindow
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, SiteName, WorkloadId
from federator.sched.state.ledger import Ledger
from federator.sim.live import Future, future
from federator.sim.report.live_report import LiveAnswer, compare_futures
from tests.fakes.build import draft, gang, plan_on, rack

NOW_S = 10_000.0
DAY_S = 86_400.0
ALPINE, BOREAL = SiteName("alpine"), SiteName("boreal")
CONFIG = """\
federation: demo
store: "memory:"
policy: {preemption: {budget_frac: 0}}
regions: {west: {shared: /shared}}
sites:
  alpine: {region: west, partitions: [gpu], command: ["true"]}
  boreal: {region: west, partitions: [gpu], command: ["true"]}
tenants:
  vision: {priority: 2, quota: {gpus: 8}}
  nlp: {priority: 2, quota: {gpus: 8}}
"""
BUSY = tuple(replace(node, gpus_alloc=8, cpus_alloc=1) for node in rack("a", 2))


def id_of(number: int) -> WorkloadId:
    return WorkloadId(FIRST_WORKLOAD_ID + number)


def submitted(
    number: int, nodes: int = 1, tenant: str = "vision", hold: Hold = Hold.NONE
) -> Submitted:
    given = draft(gang(nodes), tenant=tenant, hold=hold)
    key = str(number)
    return Submitted(at_s=NOW_S - 900 + number, draft=given, first_id=id_of(number), key=key)


def running(number: int, *nodes: str, site: SiteName = ALPINE) -> Iterable[LogRecord]:
    """One with a limit of an hour, a tenth of it over."""
    yield submitted(number, len(nodes))
    yield Awarded(
        at_s=NOW_S - 400,
        attempt=AttemptId(workload=id_of(number), attempt=1),
        site=site,
        jobs=plan_on(*nodes),
        priority=3,
        within_quota=True,
    )
    for event in (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED):
        yield changed(number, event, site_job_id=77, started_at_s=NOW_S - 360)


def changed(number: int, event: WorkloadEvent, **fields: float) -> Changed:
    at_s = NOW_S - 360
    return Changed(at_s=at_s, workload=id_of(number), happening=event, attempt=1, **fields)  # type: ignore[arg-type]


@pytest.fixture
def config(tmp_path: Path) -> FederationConfig:
    return made(tmp_path, CONFIG)


def made(folder: Path, text: str) -> FederationConfig:
    (folder / "federation.yaml").write_text(text)
    return load_config(folder / "federation.yaml")


def ledger(config: FederationConfig, events: Iterable[LogRecord]) -> Ledger:
    federation = new_federation(config)
    federation.replay([EpochBegan(at_s=1.0, epoch=1), *events])
    return federation.ledger


def snapshot(site: SiteName, nodes: Sequence[Node], *windows: SiteWindow) -> Snapshot:
    return Snapshot(site=site, now_s=NOW_S, nodes=tuple(nodes), windows=windows)


def look(
    config: FederationConfig,
    events: Iterable[LogRecord],
    *snapshots: Snapshot,
    drained: Sequence[SiteName] = (),
    seed: int = 0,
) -> Future:
    span_s = (NOW_S, NOW_S + DAY_S)
    return future(ledger(config, events), snapshots, config, drained, span_s, seed)


FULL = [*running(0, "a1"), *running(1, "a2"), submitted(2, nodes=2)]


def test_what_waits_starts_when_what_runs_has_ended(config: FederationConfig) -> None:
    found = look(config, FULL, snapshot(ALPINE, BUSY))
    assert list(found.start_s) == [id_of(2)]
    assert 0 < found.start_s[id_of(2)] <= 3240  # what their limits leave them
    assert found.tenant_of == {id_of(2): "vision"}


def test_of_an_empty_queue_nothing_is_held(config: FederationConfig) -> None:
    found = look(config, [], snapshot(ALPINE, rack("a", 2)))
    assert (found.start_s, found.allocation_frac) == ({}, 0.0)


def test_the_same_seed_draws_the_same_and_another_draws_others(config: FederationConfig) -> None:
    one, same, other = (look(config, FULL, snapshot(ALPINE, BUSY), seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.start_s != other.start_s


def test_a_drained_site_starts_nothing_and_what_runs_there_runs_on(
    config: FederationConfig,
) -> None:
    sites = snapshot(ALPINE, BUSY), snapshot(BOREAL, rack("b", 1))
    events = [*FULL, submitted(3)]
    found = look(config, events, *sites, drained=[ALPINE])
    assert found.start_s == {id_of(2): inf, id_of(3): 0.0}
    assert found.allocation_frac > 0
    assert found.preemptions == 0


def test_what_others_hold_they_go_on_holding(config: FederationConfig) -> None:
    taken = (replace(BUSY[0], gpus_alloc=8), replace(BUSY[1], gpus_alloc=4, cpus_alloc=4))
    events = [*running(0, "a1"), submitted(1), submitted(2)]
    found = look(config, events, snapshot(ALPINE, taken))
    first, second = found.start_s.values()
    assert 0 < first < second < inf  # one after the other, on the one whole node


def test_a_window_of_the_site_counts(config: FederationConfig) -> None:
    window = SiteWindow(
        name="service", starts_at_s=NOW_S + 60, ends_at_s=NOW_S + 7200, nodes=("a1", "a2")
    )
    found = look(config, [submitted(0)], snapshot(ALPINE, rack("a", 2), window))
    assert found.start_s[id_of(0)] >= 7200  # its limit of an hour does not end before


def test_one_that_is_held_is_not_among_those_that_wait(config: FederationConfig) -> None:
    events = [submitted(0), submitted(1, hold=Hold.USER)]
    found = look(config, events, snapshot(ALPINE, rack("a", 2)))
    assert found.start_s == {id_of(0): 0.0}


@pytest.mark.parametrize(
    ("event", "comes_back"),
    [(WorkloadEvent.CANCEL_ASKED, False), (WorkloadEvent.REQUEUE_ASKED, True)],
)
def test_one_on_its_way_out_is_gone_soon_and_may_come_back(
    config: FederationConfig, event: WorkloadEvent, comes_back: bool
) -> None:
    events = [*running(0, "a1"), changed(0, event), submitted(1, nodes=2)]
    found = look(config, events, snapshot(ALPINE, (BUSY[0], *rack("a", 2)[1:])))
    assert (found.start_s[id_of(1)] > 30.0) == comes_back  # then it is before the other again
    assert found.preemptions == comes_back


AWARDED, LAUNCHING, RUNNING = 2, 3, 4  # so many records of its story
GOES = SiteDrained(at_s=NOW_S - 300, site=BOREAL, migrate=True, deadline_s=NOW_S + 60)


@pytest.mark.parametrize("is_configured", [True, False])
@pytest.mark.parametrize(
    ("so_far", "events"),
    [
        (AWARDED, []),
        (AWARDED, [GOES]),
        (LAUNCHING, []),
        (LAUNCHING, [GOES]),
        (RUNNING, []),
        (RUNNING, [GOES]),
        (RUNNING, [changed(0, WorkloadEvent.CANCEL_ASKED)]),
        (RUNNING, [changed(0, WorkloadEvent.REQUEUE_ASKED)]),
    ],
)
def test_one_at_a_site_that_is_not_there_stays_where_it_is(
    tmp_path: Path, so_far: int, events: list[LogRecord], is_configured: bool
) -> None:
    text = CONFIG if is_configured else CONFIG.replace("  boreal:", "  other:")
    story = [*[*running(0, "b1", site=BOREAL)][:so_far], *events, submitted(1)]
    found = look(made(tmp_path, text), story, snapshot(ALPINE, rack("a", 1)))
    assert found.start_s == {id_of(1): 0.0}


def test_no_time_goes_into_copies_of_checkpoints_that_nobody_makes(tmp_path: Path) -> None:
    text = CONFIG + "data: {checkpoints: auto}\n"
    assert made(tmp_path, text).rules.staging.checkpoints
    found = look(made(tmp_path, text), FULL, snapshot(ALPINE, BUSY))
    assert found.start_s[id_of(2)] <= 3240


SEED = 7  # each runs for some minutes


def test_another_quota_puts_others_first(tmp_path: Path, config: FederationConfig) -> None:
    events = [*running(0, "a1"), submitted(1, tenant="nlp"), submitted(2, tenant="vision")]
    other = CONFIG.replace("quota: {gpus: 8}", "quota: {gpus: 64}", 1)
    other = other.replace("quota: {gpus: 8}", "quota: {gpus: 1}")
    nodes = snapshot(ALPINE, BUSY[:1])
    before = look(config, events, nodes, seed=SEED)
    after = look(made(tmp_path, other), events, nodes, seed=SEED)
    assert before.start_s[id_of(1)] < before.start_s[id_of(2)]  # vision has its quota in use
    assert after.start_s[id_of(2)] < after.start_s[id_of(1)]

    answer = compare_futures("other.yaml", [before], [after], (NOW_S, DAY_S, ["alpine"]))
    rows = {row.name: (row.waiting, row.later, row.earlier) for row in answer.tenants}
    assert rows == {"nlp": (1, 1, 0), "vision": (1, 0, 1)}


# ---- the comparison ----


def of(*starts_s: float) -> Future:
    return Future(
        start_s={id_of(k): start_s for k, start_s in enumerate(starts_s)},
        tenant_of={id_of(k): "vision" for k in range(len(starts_s))},
        preemptions=1,
        allocation_frac=0.5,
    )


def compared(before: Sequence[Future], after: Sequence[Future]) -> LiveAnswer:
    return compare_futures("x", before, after, (NOW_S, 1000.0, ["alpine"]))


def test_each_counts_with_the_median_of_its_draws() -> None:
    answer = compared([of(10.0), of(500.0), of(20.0)], [of(600.0), of(inf), of(10.0)])
    assert answer.starts_s == {str(id_of(0)): (20.0, 600.0)}
    assert (answer.in_all.later, answer.in_all.earlier) == (1, 0)


def test_one_that_does_not_start_waits_as_long_as_was_looked() -> None:
    answer = compared([of(inf, 10.0)], [of(970.0, 10.0)])
    assert answer.starts_s[str(id_of(0))] == (None, 970.0)
    assert (answer.in_all.before.started, answer.in_all.after.started) == (1, 2)
    assert (answer.in_all.before.wait_mean_s, answer.in_all.after.wait_mean_s) == (505.0, 490.0)
    assert (answer.in_all.later, answer.in_all.earlier) == (0, 0)  # by less than a minute


def test_where_nothing_waits_no_wait_is_told() -> None:
    answer = compared([of()], [of()])
    assert answer.in_all.before.wait_mean_s is None
    assert answer.tenants == []
