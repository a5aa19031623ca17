"""What would help is told only where it surely would: where the intervals are apart."""

from __future__ import annotations

from typing import ClassVar

import pytest

from federator.model.start_estimate import HelpKind, StartHelp
from federator.model.window import SiteWindow
from federator.model.workload import SiteName, WorkloadId
from federator.sched.starts.estimates import LEAST_JUDGED, SAME_VIEW_S
from tests.fakes.build import draft, gang, rack
from tests.unit.sched.starts.test_estimates import RUN_S, Watched

pytestmark = pytest.mark.slow  # estimates are practised first


class TwoNodes(Watched):
    """The same with two nodes."""

    SITES: ClassVar = {"alpine": rack("a", 2)}

    def helps(self, id_: WorkloadId) -> tuple[StartHelp, ...]:
        now_s, played = self.clock.now_s, []
        for change, plays in self.estimates.begin_changes(id_, now_s):
            while not plays.over:
                plays.play()
            played.append((change, plays))
        return self.estimates.helps(id_, played, now_s)


@pytest.fixture(scope="module")
def practised() -> TwoNodes:
    f = TwoNodes()
    for _ in range(LEAST_JUDGED + 5):
        f.submit(draft())
        f.watch(RUN_S / 2)
        f.submit(draft())
        f.submit(draft())
        f.watch(2 * RUN_S + 200.0)
    return f


def test_half_the_nodes_help_one_that_waits_for_two_to_become_free(practised: TwoNodes) -> None:
    f = practised
    f.submit(draft())
    f.watch(0.8 * RUN_S)
    f.submit(draft())
    waits = f.submit(draft(gang(2)))
    f.watch(60.0)
    now_s = f.clock.now_s
    (found,) = f.helps(waits)
    assert (found.kind, found.amount) == (HelpKind.FEWER_NODES.value, 1)
    assert now_s <= found.start.likely_s < now_s + 0.4 * RUN_S
    assert 0.4 * RUN_S < found.sooner_s < RUN_S
    f.run_until_all_end()


def test_a_change_that_may_gain_nothing_is_not_told(practised: TwoNodes) -> None:
    """Both nodes become free together."""
    f = practised
    f.submit(draft())
    f.submit(draft())
    waits = f.submit(draft(gang(2)))
    f.watch(60.0)
    assert list(f.estimates.begin_changes(waits, f.clock.now_s))
    assert f.helps(waits) == ()
    f.run_until_all_end()


def test_nothing_is_told_before_estimates_are() -> None:
    f = TwoNodes()
    f.submit(draft(gang(2)))
    waits = f.submit(draft(gang(2)))
    f.watch(60.0)
    assert f.helps(waits) == ()


def test_nothing_is_told_of_one_that_does_not_wait(practised: TwoNodes) -> None:
    f = practised
    runs = f.submit(draft(gang(2)))
    f.watch(60.0)
    assert f.helps(runs) == ()
    assert f.helps(WorkloadId(1)) == ()
    f.run_until_all_end()


def test_the_queue_is_not_changed_by_asking(practised: TwoNodes) -> None:
    f = practised
    f.submit(draft(gang(2)))
    waits = f.submit(draft(gang(2)))
    f.watch(60.0)
    before = f.estimates.of(waits, f.clock.now_s)
    f.helps(waits)
    assert f.estimates.of(waits, f.clock.now_s) == before
    assert f.federation.ledger.entries[waits].workload.total_gpus == 16
    f.run_until_all_end()


def test_a_shorter_limit_helps_one_that_would_run_into_a_window(practised: TwoNodes) -> None:
    f = practised
    f.submit(draft())
    f.submit(draft())
    f.watch(0.5 * RUN_S)
    waits = f.submit(draft())
    f.watch(60.0)
    now_s, view = f.clock.now_s, f.federation.sites[SiteName("alpine")]
    view.windows = (
        SiteWindow(
            name="service",
            starts_at_s=now_s + 4 * RUN_S,
            ends_at_s=now_s + 9 * RUN_S,
            nodes=("a1", "a2"),
        ),
    )
    f.clock.now_s += 2 * SAME_VIEW_S
    shorter = [each for each in f.helps(waits) if each.kind == HelpKind.LESS_TIME.value]
    view.windows = ()
    (found,) = shorter
    assert RUN_S / 60 <= found.amount <= 1.2 * RUN_S / 60
    assert found.start.latest_s < now_s + 4 * RUN_S
    f.run_until_all_end()
