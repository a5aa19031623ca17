"""How a family's gain by more nodes is learned from its runs."""

from __future__ import annotations

from math import log2

import pytest

from federator.model.workload import TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import Family
from federator.sched.state.scaling_curves import (
    ASSUMED_GAIN,
    RUNS_KEPT,
    ScalingCurves,
    Stints,
    with_stint,
)
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import OWNER, elastic, nodes, rigid, started

TRAIN: Family = (TenantName("lab"), "ada", "train")
WORK_S = 36_000.0  # on one node


def run(size: int, gain: float, part: float = 1.0) -> tuple[int, float]:
    return size, part * WORK_S / float(gain ** log2(size))


def learned(*runs: Stints) -> float:
    curves = ScalingCurves()
    for stints in runs:
        curves.learn(TRAIN, stints)
    return curves.gain(TRAIN)


def test_of_an_unknown_family_the_worked_case_is_assumed() -> None:
    assert learned() == ASSUMED_GAIN


def test_runs_of_one_size_tell_nothing() -> None:
    assert learned(*[(run(4, 1.2),)] * 9) == ASSUMED_GAIN


@pytest.mark.parametrize("gain", [1.1, 1.4, 1.8, 2.0])
def test_many_runs_of_several_sizes_tell_the_gain(gain: float) -> None:
    runs = [(run(size, gain),) for size in (1, 2, 4, 8) for _ in range(4)]
    assert learned(*runs) == pytest.approx(gain, abs=0.05)


def test_runs_that_were_resized_count_in_parts() -> None:
    runs = [(run(1, 1.3, 0.5), run(8, 1.3, 0.5)), (run(8, 1.3),), (run(2, 1.3),)] * 5
    assert learned(*runs) == pytest.approx(1.3, abs=0.05)


def test_two_runs_move_the_assumption_a_little() -> None:
    few = learned((run(2, 1.2),), (run(4, 1.2),))
    many = learned(*[(run(2, 1.2),), (run(4, 1.2),)] * 8)
    assert many < few < ASSUMED_GAIN
    assert many == pytest.approx(1.2, abs=0.02)


def test_one_odd_run_is_outvoted() -> None:
    runs = [(run(size, 1.8),) for size in (1, 2, 4, 8) for _ in range(4)]
    assert learned(*runs, ((8, 10 * WORK_S),)) == pytest.approx(1.8, abs=0.05)


def test_only_the_latest_runs_count() -> None:
    old = [(run(size, 1.1),) for size in (1, 4)] * RUNS_KEPT
    new = [(run(size, 1.8),) for size in (1, 4)] * RUNS_KEPT
    assert learned(*old, *new) == learned(*new)


def test_stints_of_one_size_are_one() -> None:
    stints = with_stint(with_stint(with_stint((), 2, 60.0), 1, 5.0), 2, 40.0)
    assert stints == ((1, 5.0), (2, 100.0))
    assert with_stint(stints, 3, 0.0) == stints


def test_a_family_that_gains_nothing_is_not_made_larger() -> None:
    f = Loopback({"alpine": rack("a", 4)}, Rules(cooldown_s=600.0), None, Mast(), (OWNER,))
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4, name="train"))
    workload = f.entry(id_).workload
    family: Family = (workload.tenant, workload.user, workload.name)
    for size in (1, 2, 4) * 6:
        f.federation.ledger.scaling.learn(family, (run(size, 1.0),))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(1200.0)
    assert nodes(f, id_) == 2


def test_a_ledger_learns_from_a_job_that_completed_at_two_sizes() -> None:
    f = Loopback({"alpine": rack("a", 4)}, Rules(cooldown_s=600.0), None, Mast(), (OWNER,))
    taken = started(f, rigid(2))
    (id_,) = started(f, elastic(1, 4))
    f.slurm("alpine").end(f.entry(taken[0]).attempt_id)
    f.run_for(1200.0)
    assert nodes(f, id_) == 4
    ((size, ran_s),) = f.entry(id_).stints
    assert size == 2
    assert ran_s == pytest.approx(600.0, abs=60.0)
    f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(30.0)
    ((*_, (stints,)),) = f.federation.ledger.scaling.saved()
    assert [size for size, _ in stints] == [2, 4]
