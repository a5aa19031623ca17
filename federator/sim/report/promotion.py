"""Rules by which a site goes one step up, from shadow to enforced: by figures, not by date.

Each step needs what the steps below it need, and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from federator.model.site_mode import SiteMode

WATCHED_S: Final = 14 * 86_400.0
MOST_UNWATCHED_FRAC: Final = 0.01
MOST_LEFT_OUT_FRAC: Final = 0.01
FEWEST_JOBS: Final = 100
MOST_ERROR_FRAC: Final = 0.017  # as the simulator of Slurm at BSC comes to reality


class Rule(Struct, frozen=True):
    """One rule, and how a site stands by it.

    ``needed_for``: the lowest mode that needs it. ``value``: the figure, as ``bound`` is written.
    """

    name: str
    needed_for: str
    holds: bool
    value: str
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFigures:
    """What the rules look at, of one site. ``worse``: accounts that would wait longer."""

    watched_s: float
    unwatched_frac: float
    left_out_frac: float
    jobs: int
    response_error_frac: float | None
    worse: tuple[str, ...]


def rules_of_site(of: RuleFigures) -> list[Rule]:
    """All rules, in the order of the steps that need them."""
    error = of.response_error_frac
    advisory, opt_in, enforced = SiteMode.ADVISORY, SiteMode.OPT_IN, SiteMode.ENFORCED
    days = f"{of.watched_s / 86_400:.1f} days"
    return [
        _rule("watched", advisory, of.watched_s >= WATCHED_S, days, "14 days or more"),
        _rule(
            "unwatched",
            advisory,
            of.unwatched_frac <= MOST_UNWATCHED_FRAC,
            f"{of.unwatched_frac:.2%}",
            "1 % of the time or less",
        ),
        _rule("jobs", advisory, of.jobs >= FEWEST_JOBS, str(of.jobs), "100 jobs or more"),
        _rule(
            "left out",
            advisory,
            of.left_out_frac <= MOST_LEFT_OUT_FRAC,
            f"{of.left_out_frac:.2%}",
            "1 % of the jobs or fewer",
        ),
        _rule(
            "simulator",
            opt_in,
            error is not None and error <= MOST_ERROR_FRAC,
            "no job" if error is None else f"{error:.2%}",
            "within 1.7 % of what happened",
        ),
        _rule("accounts", enforced, not of.worse, ", ".join(of.worse) or "none", "none worse off"),
    ]


def _rule(name: str, needed_for: SiteMode, holds: bool, value: str, bound: str) -> Rule:
    return Rule(name=name, needed_for=needed_for.value, holds=holds, value=value, bound=bound)


def broken_rules(rules: list[Rule], target: SiteMode) -> list[Rule]:
    """Those that keep a site from a mode."""
    return [
        rule for rule in rules if not rule.holds and SiteMode(rule.needed_for).rank <= target.rank
    ]
