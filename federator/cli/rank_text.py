"""Texts about a rank: position, priority and credit with what they come from."""

from __future__ import annotations

from federator.wire.queue_rows import QueueRank, ShortfallRow


def counted(number: int, unit: str) -> str:
    """``1 GPU``, ``8 GPUs``, ``1,024 CPUs``; the unit is given as for many."""
    return f"{number:,} {unit.removesuffix('s') if number == 1 else unit}"


def ordinal(number: int) -> str:
    """``1st``, ``12th``, ``4,012th``."""
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else last}"


def duration(seconds: float) -> str:
    """Its two largest units: ``45 s``, ``7 h 12 min``, ``3 d 4 h``."""
    minutes, s = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (s, "s")]
    first = next((k for k, (number, _) in enumerate(parts) if number), 3)
    shown = [f"{number} {unit}" for number, unit in parts[first : first + 2] if number]
    return " ".join(shown) or "0 s"


def position_text(rank: QueueRank) -> str:
    """``17th of 4,012``."""
    return f"{ordinal(rank.position)} of {rank.of:,}"


def priority_text(rank: QueueRank, tenant: str) -> str:
    """Say at which priority it ranks and why, e.g. ``priority 2, tenant vision's``."""
    head = f"priority {rank.priority}"
    if not rank.by_quota:
        fifo = rank.policy in ("global-fifo", "fifo")
        orders = f"; {rank.policy} orders by priority, then submission" if fifo else ""
        return f"{head}{orders}"
    if not rank.within_quota:
        return f"{head}: {_over_quota(rank.shortfall, tenant)}"
    if rank.asked_priority > rank.tenant_priority:
        return (
            f"{head}: within quota, its user asked for priority {rank.asked_priority} at most "
            f"(tenant {tenant}'s is {rank.tenant_priority})"
        )
    return f"{head}, tenant {tenant}'s"


def _over_quota(short: ShortfallRow | None, tenant: str) -> str:
    if short is None:
        return "over quota"
    if not short.tenant:
        return f"tenant {tenant} has no quota"
    quota = counted(short.quota, short.unit)
    if short.asked > short.quota:
        asked = counted(short.asked, short.unit)
        return (
            f"over quota: it asks for {asked}, more than the whole quota of {short.tenant}, {quota}"
        )
    text = f"over quota: {short.tenant} holds {short.held:,} of {quota}"
    if not short.asked:  # what is held alone is too much
        return text
    promised = f", {short.promised:,} promised to others" if short.promised else ""
    return f"{text}{promised}, this one asks for {short.asked:,}"


def credit_text(rank: QueueRank, tenant: str) -> str:
    """Say what the credit consists of; "" for a policy without credit.

    The sum is that of the terms as they are shown, so that it can be checked by eye.
    """
    if not rank.by_quota:
        return ""
    terms = (rank.age_term, rank.fair_share_term, -rank.nice_term, -rank.non_preemptible_term)
    age, fair_share, nice, price = (round(term, 2) for term in terms)
    paid = f" - {-price:.2f} for not being evicted" if price else ""
    return (
        f"credit {age + fair_share + nice + price:.2f} = "
        f"{age:.2f} for {duration(rank.waited_s)} of waiting "
        f"({number(rank.per_hour_waited)} an hour, at most {number(rank.age_cap_h)} h) "
        f"+ {fair_share:.2f} fair share ({tenant} used {100 * rank.usage_share_frac:.1f} % of all) "
        f"- {-nice:.2f} nice{paid}"
    )


def number(value: float) -> str:
    """A setting as an admin would write it: ``1``, ``0.5``, ``168``."""
    return f"{value:.6g}"


def rank_text(rank: QueueRank, tenant: str) -> str:
    """All about a pending workload's rank in one line."""
    parts = (position_text(rank), priority_text(rank, tenant), credit_text(rank, tenant))
    return "; ".join(part for part in parts if part)


def standing_text(rank: QueueRank) -> str:
    """How a workload at a site stands, and at which standing it went there."""
    if not rank.by_quota:
        return f"awarded at priority {rank.awarded_priority or rank.priority}"
    if rank.away:
        return f"a guest, at priority {rank.priority}: this site is not its tenant's home"
    now = f"priority {rank.priority}, {_side(rank.within_quota)}"
    if not rank.awarded_priority:
        return f"now {now}; awarded by an older release, which kept no standing"
    then = f"priority {rank.awarded_priority}, {_side(rank.awarded_within_quota)}"
    went = f"awarded at {then}, with credit {rank.credit:.2f}"
    return f"{went}; still so" if now == then else f"{went}; now {now}"


def _side(within_quota: bool) -> str:
    return "within quota" if within_quota else "over quota"
