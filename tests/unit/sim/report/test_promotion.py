"""A site goes up by figures; where the record is too short to tell, it is not said to fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from federator.model.drain import DatedDrill, LeaveDrill
from federator.model.site_mode import SiteMode
from federator.sim.report.bootstrap import Interval
from federator.sim.report.divergence_counts import count_divergences
from federator.sim.report.promotion import (
    Rule,
    RuleFigures,
    broken_rules,
    leave_rule,
    promotion_rules,
)


def rules_with(
    error_frac: float | None, within: Interval | None, never_frac: float = 0.0
) -> list[Rule]:
    return promotion_rules(
        RuleFigures(
            watched_s=15 * 86_400.0,
            unwatched_frac=0.0,
            left_out_frac=0.0,
            jobs=500,
            response_error_frac=error_frac,
            response_error=within,
            divergences=count_divergences("ALL", []),
            worse=(),
            never_frac=never_frac,
        )
    )


@pytest.mark.parametrize(
    ("error_frac", "within", "holds", "unsure", "value"),
    [
        (0.004, Interval(-0.009, 0.0165), True, False, "0.40% (-0.90% to +1.65%)"),
        (0.004, Interval(-0.02, 0.01), False, True, "0.40% (-2.00% to +1.00%), not certain yet"),
        (0.03, Interval(0.01, 0.05), False, True, "3.00% (+1.00% to +5.00%), not certain yet"),
        (0.2, Interval(-0.25, -0.15), False, False, "20.00% (-25.00% to -15.00%)"),
        (0.2, Interval(0.018, 0.3), False, False, "20.00% (+1.80% to +30.00%)"),
        (0.001, None, False, True, "0.10%, of too few days to tell"),
        (None, None, False, False, "no job"),
    ],
)
def test_the_simulator_holds_or_fails_only_where_its_interval_says_so(
    error_frac: float | None, within: Interval | None, holds: bool, unsure: bool, value: str
) -> None:
    (rule,) = (each for each in rules_with(error_frac, within) if each.name == "simulator")
    assert (rule.holds, rule.unsure, rule.value) == (holds, unsure, value)
    for mode, keeps in ((SiteMode.ADVISORY, False), (SiteMode.OPT_IN, not holds)):
        broken = [each.name for each in broken_rules(rules_with(error_frac, within), mode)]
        assert broken == (["simulator"] if keeps else [])


@pytest.mark.parametrize("within", [Interval(-0.009, 0.0165), Interval(-0.02, 0.01), None])
def test_the_simulator_fails_where_jobs_never_start_whatever_the_others_say(
    within: Interval | None,
) -> None:
    few, many = (
        next(rule for rule in rules_with(0.004, within, frac) if rule.name == "simulator")
        for frac in (0.01, 0.0101)
    )
    assert "never" not in few.value
    assert many.value == f"{few.value}; 1.01% never start in it"
    assert (many.holds, many.unsure) == (False, False)


@pytest.mark.parametrize(
    ("took_s", "wrong", "holds", "value"),
    [
        (300.0, "", True, "300 s (workloads there: 4), on 2026-11-18"),
        (301.0, "", False, "301 s (workloads there: 4), on 2026-11-18"),
        (34.0, "2 jobs", False, "34 s (workloads there: 4), on 2026-11-18; 2 jobs"),
    ],
)
def test_a_site_is_enforced_only_if_it_was_left_in_time_and_altogether(
    took_s: float, wrong: str, holds: bool, value: str
) -> None:
    drill = LeaveDrill(took_s=took_s, workloads=4, wrong=wrong)
    rule = leave_rule(DatedDrill(at_s=1_795_000_000.0, drill=drill))
    assert (rule.holds, rule.unsure, rule.value) == (holds, False, value)
    assert broken_rules([rule], SiteMode.OPT_IN) == []
    assert broken_rules([rule], SiteMode.ENFORCED) == ([] if holds else [rule])


def test_a_drill_of_an_empty_site_shows_nothing() -> None:
    drill = LeaveDrill(took_s=6.0, workloads=0)
    rule = leave_rule(DatedDrill(at_s=1_795_000_000.0, drill=drill))
    assert (rule.holds, rule.unsure) == (False, True)
    assert rule.value == "6 s (workloads there: 0), on 2026-11-18, so that nothing was left"
    wrong = leave_rule(DatedDrill(at_s=0.0, drill=replace(drill, wrong="jobs in its queue")))
    assert (wrong.holds, wrong.unsure) == (False, False)


def test_without_a_drill_nobody_knows_how_fast_a_site_is_left() -> None:
    rule = leave_rule(None)
    assert (rule.holds, rule.unsure, rule.value) == (False, True, "none in 90 days")
    assert broken_rules([rule], SiteMode.ENFORCED) == [rule]
