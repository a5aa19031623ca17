"""Rules by which a site or a tenant goes one step up: by figures, not by date.

Each step needs what the steps below it need, and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from federator.model.drain import DatedDrill
from federator.model.site_mode import SiteMode
from federator.sim.report.bootstrap import Interval
from federator.sim.report.divergence_counts import Divergence, DivergenceCount

WATCHED_S: Final = 14 * 86_400.0
MOST_UNWATCHED_FRAC: Final = 0.01
MOST_LEFT_OUT_FRAC: Final = 0.01
FEWEST_JOBS: Final = 100
LEAST_WITH_REASON_FRAC: Final = 0.99
MOST_NEVER_FRAC: Final = 0.01
MOST_ERROR_FRAC: Final = 0.017  # as the simulator of Slurm at BSC comes to reality
MOST_LEAVE_S: Final = 300.0
DRILL_HOLDS_DAYS: Final = 90  # then a site has changed too much to go by it


class Rule(Struct, frozen=True):
    """One rule, and how a site or a tenant stands by it.

    ``needed_for``: the lowest mode that needs it. ``value``: the figure, as ``bound`` is written.
    ``unsure``: what is known does not tell; then it does not hold.
    """

    name: str
    needed_for: str
    holds: bool
    value: str
    bound: str
    unsure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFigures:
    """What the rules look at, of one site, or of one tenant at all sites.

    ``response_error_frac``, ``response_error``: as of ``SiteReport``. ``never_frac``: of the
    measured jobs, those that the replay of their site by itself never starts; the error does not
    count them. ``worse``: accounts that would wait longer.
    """

    watched_s: float
    unwatched_frac: float
    left_out_frac: float
    jobs: int
    response_error_frac: float | None
    response_error: Interval | None
    divergences: DivergenceCount
    worse: tuple[str, ...]
    never_frac: float = 0.0


def promotion_rules(of: RuleFigures) -> list[Rule]:
    """All rules, in the order of the steps that need them."""
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
        _simulator_rule(of),
        _rule(
            "divergences",
            opt_in,
            of.divergences.with_reason_frac >= LEAST_WITH_REASON_FRAC,
            divergences_text(of.divergences),
            "99 % with a reason or more",
        ),
        _rule("accounts", enforced, not of.worse, ", ".join(of.worse) or "none", "none worse off"),
    ]


def _simulator_rule(of: RuleFigures) -> Rule:
    """It holds, or does not, where the whole interval says so; else the days seen do not tell.

    Where too many jobs never start in the replay it does not: the rest may be the easy ones.
    """
    value, holds, unsure = "no job", False, False
    if of.response_error_frac is not None:
        value, within = f"{of.response_error_frac:.2%}", of.response_error
        if within is None:
            value, unsure = f"{value}, of too few days to tell", True
        else:
            value += f" ({within.low:+.2%} to {within.high:+.2%})"
            holds = within.low >= -MOST_ERROR_FRAC and within.high <= MOST_ERROR_FRAC
            outside = within.low > MOST_ERROR_FRAC or within.high < -MOST_ERROR_FRAC
            unsure = not holds and not outside
            value += ", not certain yet" if unsure else ""
    if of.never_frac > MOST_NEVER_FRAC:
        value, holds, unsure = f"{value}; {of.never_frac:.2%} never start in it", False, False
    bound = "within 1.7 % of what happened"
    return Rule("simulator", SiteMode.OPT_IN.value, holds, value, bound, unsure)


def leave_rule(drill: DatedDrill | None, unknown: str = "") -> Rule:
    """How fast the federation left a site when that was last tried; of an empty one: not known.

    Args:
        drill: the last of ``DRILL_HOLDS_DAYS``; None: there was none.
        unknown: why that is not known; "": it is.
    """
    value, holds, unsure = unknown or f"none in {DRILL_HOLDS_DAYS} days", False, drill is None
    if drill is not None:
        done = drill.drill
        day = datetime.fromtimestamp(drill.at_s, UTC).strftime("%Y-%m-%d")
        value = f"{done.took_s:.0f} s (workloads there: {done.workloads}), on {day}"
        value += f"; {done.wrong}" if done.wrong else ""
        unsure = not (done.workloads or done.wrong)
        value += ", so that nothing was left" if unsure else ""
        holds = done.took_s <= MOST_LEAVE_S and not (done.wrong or unsure)
    bound = f"{MOST_LEAVE_S:.0f} s or less, with nothing left there"
    enforced = SiteMode.ENFORCED.value
    return Rule("leave drill", enforced, holds, value, bound, unsure)


def divergences_text(count: DivergenceCount) -> str:
    """How many have a reason, and examples of those that have none."""
    if not count.divergences:
        return "none"
    said = f"{count.with_reason} of {count.divergences} with a reason"
    if count.interval is not None:
        said += f" ({count.interval.low:.1%} to {count.interval.high:.1%})"
    examples = "; ".join(map(_example, count.examples))
    return f"{said}; without one: {examples}" if examples else said


def _example(each: Divergence) -> str:
    job = f"job {each.job_id} at {each.site} ({each.account}, {each.gpus} GPUs)"
    words = ", ".join(word for word in (each.held_by, each.federated_code) if word)
    because = f", {words}" if words else ""
    if each.federated_start_s is None:
        return f"{job} would never have started{because}"
    change_s = each.federated_start_s - each.start_s
    when = "later" if change_s > 0 else "sooner"
    return f"{job} would have started {abs(change_s):.0f} s {when}{because}"


def _rule(name: str, needed_for: SiteMode, holds: bool, value: str, bound: str) -> Rule:
    return Rule(name=name, needed_for=needed_for.value, holds=holds, value=value, bound=bound)


def broken_rules(rules: list[Rule], target: SiteMode) -> list[Rule]:
    """Those that keep a site or a tenant from a mode."""
    return [
        rule for rule in rules if not rule.holds and SiteMode(rule.needed_for).rank <= target.rank
    ]
