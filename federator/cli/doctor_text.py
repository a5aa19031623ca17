"""Puts the findings of ``federator doctor`` into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from federator.cli.text import span
from federator.usage.diagnosis import Diagnosis

Evidence = Mapping[str, float]


class Wording(NamedTuple):
    """What a kind is called, what was seen, and what to do about it."""

    title: str
    seen: Callable[[Evidence], str]
    remedy: Callable[[Evidence], str]


def finding_lines(made: Diagnosis) -> Iterator[str]:
    """A finding, in three lines or four."""
    wording = WORDINGS.get(made.kind)
    title = wording.title if wording is not None else made.kind
    whose = " ".join(filter(None, (_whose(made), repr(made.family) if made.family else "")))
    hours = f", {made.gpu_h:.1f} GPU hours" if made.gpu_h else ""
    yield f"{made.kind}: {whose}: {title}{hours}"
    if wording is not None:
        yield f"  {wording.seen(made.evidence)}"
        yield f"  do: {wording.remedy(made.evidence)}"
    if made.jobs:
        yield f"  jobs: {', '.join(map(str, made.jobs))}"


def _whose(made: Diagnosis) -> str:
    if not made.tenant and not made.user:
        return "the fleet"
    return f"{made.user} ({made.tenant})" if made.user else f"tenant {made.tenant}"


def _power_fall(seen: Evidence) -> str:
    busy = f"; they were {seen['busy_frac']:.0%} busy" if "busy_frac" in seen else ""
    return (
        f"they drew {seen['power_frac']:.0%} of their power on the last day, "
        f"{seen['norm_frac']:.0%} in the week before{busy}"
    )


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f}G"


def _idle(seen: Evidence) -> str:
    return (
        f"in {seen['idle_attempts']:.0f} of the {seen['watched_attempts']:.0f} attempts that were "
        f"watched the GPUs were busy {seen['busy_frac']:.1%} of the time"
    )


def _failing(seen: Evidence) -> str:
    memory = f", {seen['out_of_memory']:.0f} for want of memory" if seen["out_of_memory"] else ""
    return (
        f"{seen['failed']:.0f} of {seen['ended']:.0f} failed by themselves{memory}; "
        f"the last {seen['in_a_row']:.0f} in a row"
    )


def _failing_remedy(seen: Evidence) -> str:
    if seen["out_of_memory"] > seen["failed"] / 2:
        return "ask for more memory (--mem), and try one job first"
    return "read the output of the latest job, and try one job before the next batch"


def _checkpoint(seen: Evidence) -> str:
    text = (
        f"{seen['interruptions']:.0f} interruptions, one in {span(seen['between_s'])} of work; "
        f"each lost {span(seen['lost_each_s'])}"
    )
    if "best_interval_s" not in seen:
        return f"{text}, and no save is known"
    return f"{text}, with saves of {span(seen['save_most_s'])} at most"


def _checkpoint_remedy(seen: Evidence) -> str:
    if "best_interval_s" not in seen:
        return "save now and then (docs/checkpointing.md)"
    return f"save every {span(seen['best_interval_s'])} or more often (Young and Daly)"


def _share(seen: Evidence) -> str:
    return f"in {seen['attempts']:.0f} of the {seen['watched_attempts']:.0f} attempts that tell"


def _starved(seen: Evidence) -> str:
    parts = []
    if "load_s" in seen:
        parts.append(f"{seen['load_s']:.3g} s of a step of {seen['step_s']:.3g} s wait for a batch")
    if "spread_frac" in seen:
        parts.append(
            f"the GPUs swing (deviation {seen['spread_frac']:.0%}): they hardly work in "
            f"{seen['low_frac']:.0%} of the looks, work in {seen['high_frac']:.0%}, and fell "
            f"{seen['falls']:.0f} times"
        )
    return f"{_share(seen)}: {'; '.join(parts)}"


def _of_ranks(seen: Evidence) -> str:
    return (
        f"{_share(seen)}: a step takes {seen['step_s']:.3g} s, of which {seen['ranks']:.0f} ranks "
        f"compute {seen['own_least_s']:.3g} to {seen['own_most_s']:.3g} s; "
        f"the slowest was rank {seen['slow_rank']:.0f}"
    )


def _straggler_remedy(seen: Evidence) -> str:
    if seen["attempts"] > 1 and seen["same_rank"] > seen["attempts"] / 2:
        return "it mostly is the same rank: balance its part (data, pipeline stages)"
    return "look at the node of that rank (clocks, other processes, its loader)"


def _gpu_size(seen: Evidence) -> str:
    how = [f"{seen['busy_frac']:.0%} busy"] if "busy_frac" in seen else []
    how += [f"at {seen['power_frac']:.0%} of their power"] if "power_frac" in seen else []
    return (
        f"{seen['attempts']:.0f} jobs used {_gib(seen['most_gpu_mib'])} of "
        f"{_gib(seen['given_gpu_mib'])} on a GPU at the most, the GPUs {', '.join(how)}"
    )


WORDINGS: Final[Mapping[str, Wording]] = {
    "zombie": Wording(
        "runs on beyond its time limit",
        lambda e: f"{span(e['beyond_end_s'])} beyond its limit of {span(e['time_limit_s'])}",
        lambda _: "look at its site (squeue, scontrol show job) and end it (fscancel)",
    ),
    "idle": Wording(
        "GPUs that do nothing",
        _idle,
        lambda _: "ask for no GPUs, or find out what the job waits for (input, a hung process)",
    ),
    "starved": Wording(
        "GPUs that wait for input",
        _starved,
        lambda _: "more loader workers, data nearer to it; or rarer pauses, if those are meant",
    ),
    "communication": Wording(
        "ranks that wait for each other's data",
        _of_ranks,
        lambda _: "fewer or nearer nodes, larger batches, or overlap computing and exchange",
    ),
    "straggler": Wording("all ranks wait for one", _of_ranks, _straggler_remedy),
    "failing": Wording("fails again and again", _failing, _failing_remedy),
    "timeout": Wording(
        "its time limit always ends it",
        lambda e: (
            f"{e['timed_out']:.0f} of {e['ended']:.0f} were ended by their limit, "
            f"{span(e['longest_s'])} at the most, and no save is known"
        ),
        lambda _: "ask for more time (--time), or save and go on (docs/checkpointing.md)",
    ),
    "checkpoint": Wording("loses more than it need", _checkpoint, _checkpoint_remedy),
    "memory": Wording(
        "asks for much more memory than it uses",
        lambda e: (
            f"{e['attempts']:.0f} jobs used {_gib(e['most_node_mib'])} of "
            f"{_gib(e['given_node_mib'])} on a node at the most"
        ),
        lambda e: f"--mem={e['would_do_node_mib'] / 1024:.0f}G would do",
    ),
    "cpus": Wording(
        "asks for many more CPUs than it uses",
        lambda e: (
            f"{e['attempts']:.0f} jobs used {e['most_node_cpus']:.1f} of "
            f"{e['given_node_cpus']:.0f} CPUs on a node at the most"
        ),
        lambda e: f"{e['would_do_node_cpus']:.0f} CPUs on a node would do (-n, -c)",
    ),
    "gpu-size": Wording(
        "a smaller type of GPU would do",
        _gpu_size,
        lambda e: f"a GPU with {_gib(e['would_do_gpu_mib'])} would do, or several jobs on one",
    ),
    "unused-quota": Wording(
        "hardly uses its quota",
        lambda e: (
            f"{e['used_gpus']:.1f} of {e['quota_gpus']:.0f} GPUs in the last 3 days, "
            f"under a fifth for {e['days_below']:.0f} of {e['known_days']:.0f}; "
            f"{e['most_day_gpus']:.1f} on its best day"
        ),
        lambda e: f"ask the tenant; a quota of {e['would_do_gpus']:.0f} would have done",
    ),
    "small-quota": Wording(
        "needs more than its quota",
        lambda e: (
            f"uses {e['used_gpus']:.1f} of {e['quota_gpus']:.0f} GPUs while work for "
            f"{e['waiting_gpus']:.1f} waits ({e['long_waits']:.0f} jobs over an hour)"
        ),
        lambda e: (
            f"its demand is {e['demand_low_gpus']:.0f} to {e['demand_high_gpus']:.0f} GPUs; "
            "see whose quota is not used"
        ),
    ),
    "hoarding": Wording(
        "holds GPUs that it hardly uses while others wait",
        lambda e: (
            f"holds {e['held_gpus']:.1f} GPUs that are {e['busy_frac']:.0%} busy "
            f"({e['watched_frac']:.0%} of the time was watched); others wait for "
            f"{e['others_wait_gpus']:.1f} ({e['others_long_waits']:.0f} jobs over an hour)"
        ),
        lambda _: "ask the tenant; federator doctor --tenant NAME shows which jobs",
    ),
    "self-hoarding": Wording(
        "holds GPUs that it hardly uses while its own work waits",
        lambda e: (
            f"holds {e['held_gpus']:.1f} GPUs that are {e['busy_frac']:.0%} busy "
            f"({e['watched_frac']:.0%} of the time was watched) while its own jobs wait for "
            f"{e['own_wait_gpus']:.1f} ({e['own_long_waits']:.0f} jobs over an hour)"
        ),
        lambda _: "end what does nothing; federator doctor --tenant NAME shows which jobs",
    ),
    "over-commit": Wording(
        "quotas could promise more than there is",
        lambda e: (
            f"of {e['promised_gpus']:.0f} GPUs promised, {e['top_gpus']:.1f} at most are used on "
            f"19 of 20 days: a factor of {e['factor']:.2f} "
            f"({e['factor_low']:.2f} to {e['factor_high']:.2f})"
        ),
        lambda e: f"quotas may sum to {e['advised_factor']:.2f} times what they do",
    ),
    "surge": Wording(
        "holds several times what it is used to",
        lambda e: (
            f"{e['used_gpus']:.1f} GPUs on the last day, {e['norm_gpus']:.1f} in the week before"
        ),
        lambda _: "ask the tenant whether that is meant",
    ),
    "backlog": Wording(
        "its queue grows faster than it drains",
        lambda e: (
            f"{e['came']:.0f} jobs came in {e['days']:.0f} days and {e['left']:.0f} left; "
            f"{e['waiting']:.0f} wait"
        ),
        lambda _: "see fsqueue --why for what they wait for",
    ),
    "fall": Wording(
        "much less of it is held than usual",
        lambda e: f"{e['held_frac']:.0%} on the last day, {e['norm_frac']:.0%} in the week before",
        lambda _: "see federator status: is a site down, drained, or not awarded to?",
    ),
    "busy-fall": Wording(
        "its GPUs do much less than usual",
        lambda e: (
            f"they were {e['busy_frac']:.0%} busy on the last day, {e['norm_frac']:.0%} in the "
            f"week before ({e['watched_gpus']:.1f} GPUs were watched)"
        ),
        lambda _: "ask the tenant; federator doctor --tenant NAME shows which jobs",
    ),
    "power-fall": Wording(
        "its GPUs draw much less than usual",
        _power_fall,
        lambda _: (
            "see whether ranks wait for one another (busy, and little drawn), or GPUs are held "
            "back (nvidia-smi -q -d PERFORMANCE); else ask the tenant"
        ),
    ),
}
"""By kind; a kind of a later release is shown by its name."""
