"""Makes up labelled months of tenants: what a review of quotas should say is known."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from federator.usage.diagnosis import OF_QUOTAS
from federator.usage.quota_review import DailyUse, QueuedWorkload, review
from federator.usage.report import Quota
from tests.fakes.doctor_series import DAY_S, Score

FIRST_DAY: Final = 20_000
DAYS: Final = 28
QUOTA: Final = 100.0
SORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": (),
    "unused": ("unused-quota",),
    "quiet weekend": (),
    "small": ("small-quota",),
    "full": (),
    "hoards": ("hoarding",),
    "hoards from itself": ("self-hoarding",),
    "holds idle, none wait": (),
    "unwatched": (),
    "surges": ("surge",),
    "grows": (),
    "piles up": ("backlog",),
    "one bad day": (),
    "falls": ("fall",),
    "room": ("over-commit",),
    "works less": ("busy-fall", "power-fall"),
    "waits in collectives": ("power-fall",),
    "works a little less": (),
    "swings": (),
    "rests two days a week": (),
}
"""Sorts of fleets with two tenants, and the findings that are right."""


def daily(rng: random.Random, mean: float, noise: float = 0.12) -> list[float]:
    """GPUs by day around a mean; a fifth less at weekends."""
    week = [0.8 if k % 7 > 4 else 1.0 for k in range(DAYS)]
    return [max(0.0, mean * part * rng.gauss(1, noise)) for part in week]


def waits(
    rng: random.Random, tenant: str, day: int, number: int, hours: float, left: float = 1.0
) -> list[QueuedWorkload]:
    """Jobs of 8 GPUs that came on a day and waited; of which a part has left the queue."""
    start_s = (FIRST_DAY + day) * DAY_S
    found = []
    for k in range(number):
        came_s = start_s + rng.uniform(0, DAY_S / 2)
        gone = k < left * number
        gone_s = came_s + rng.uniform(0.5, 1.5) * hours * 3600 if gone else 0.0
        found.append(QueuedWorkload(tenant, 8, came_s, gone_s))
    return found


def fleet(sort: str, rng: random.Random) -> tuple[DailyUse, list[Quota], list[QueuedWorkload]]:
    """A month of a fleet of 200 GPUs with two quotas of 100.

    How busy GPUs are varies from day to day, and what they draw with it.
    """
    held, queue = _held(sort, rng), _queue(sort, rng)
    frac, watched = rng.uniform(0.35, 0.9), 0.9
    if sort in ("hoards", "hoards from itself", "holds idle, none wait", "unwatched"):
        frac, watched = rng.uniform(0.01, 0.22), 0.1 if sort == "unwatched" else 0.9
    rng = random.Random(f"{sort} {held['a'][0]}")  # of its own: what is held stays as it was
    parts = {"a": _parts(frac, rng, sort), "b": _parts(0.66, rng)}
    drawn = {name: [0.12 + 0.7 * part for part in parts[name]] for name in parts}
    if sort in ("works less", "waits in collectives"):
        drawn["a"][-1] = rng.uniform(0.1, 0.55) * (0.12 + 0.7 * frac)
    seen = {"a": [x * watched for x in held["a"]], "b": [x * 0.9 for x in held["b"]]}
    use = DailyUse(
        days=range(FIRST_DAY, FIRST_DAY + DAYS),
        held=held,
        busy={name: _times(seen[name], parts[name]) for name in held},
        watched=seen,
        supply=[200.0] * DAYS,
        powered=seen,
        power={name: _times(seen[name], drawn[name]) for name in held},
    )
    return use, [Quota(name, QUOTA, frozenset({name})) for name in held], queue


def _times(gpus: Sequence[float], parts: Sequence[float]) -> list[float]:
    return [amount * part for amount, part in zip(gpus, parts, strict=True)]


def _parts(mean: float, rng: random.Random, sort: str = "") -> list[float]:
    """How busy the GPUs were, by day."""
    noise = 0.25 if sort == "swings" else 0.1
    found = [min(1.0, max(0.0, mean * rng.gauss(1, noise))) for _ in range(DAYS)]
    if sort == "works less":
        found[-1] = mean * rng.uniform(0.1, 0.55)
    elif sort == "works a little less":
        found[-1] = mean * rng.uniform(0.65, 0.8)
    return found


def _held(sort: str, rng: random.Random) -> dict[str, list[float]]:
    a, b = daily(rng, rng.uniform(70, 90)), daily(rng, 80)
    if sort == "unused":
        days = rng.randint(3, 20)
        a[-days:] = [rng.uniform(0, 17) for _ in range(days)]
    elif sort == "quiet weekend":
        a[-3:-1] = [0.0, rng.uniform(0, 10)]
    elif sort in ("small", "full"):
        a = [100 * rng.uniform(0.96, 1.0) for _ in range(DAYS)]
    elif sort in ("surges", "grows"):
        a = [amount / 3 for amount in a]
        a[-1] *= rng.uniform(3.2, 6) if sort == "surges" else rng.uniform(1.2, 2.2)
    elif sort == "falls":
        part = rng.uniform(0.1, 0.55)
        a[-1], b[-1] = a[-1] * part, b[-1] * part
    elif sort == "rests two days a week":
        a = [0.0 if k % 7 < 2 else amount for k, amount in enumerate(a)]
    elif sort == "room":
        a, b = [x * 0.7 for x in a], [x * 0.7 for x in b]
    return {"a": a, "b": b}


def _queue(sort: str, rng: random.Random) -> list[QueuedWorkload]:
    queue = []
    for day in range(DAYS):
        queue += waits(rng, "a", day, 12, 0.3) + waits(rng, "b", day, 12, 0.3)
        if sort == "small":
            queue += waits(rng, "a", day, rng.randint(8, 20), rng.uniform(4, 10))
        elif sort in ("hoards", "unwatched"):
            queue += waits(rng, "b", day, 6, 8)
        elif sort == "hoards from itself":
            queue += waits(rng, "a", day, 6, 8)
    last = {"piles up": 3, "one bad day": 1}.get(sort, 0)
    for back in range(1, 1 + last):
        queue += waits(rng, "a", DAYS - back, 40, 1, left=rng.uniform(0.1, 0.7))
    return queue


def scores(seed: int, fleets: int = 100) -> dict[str, Score]:
    """How well each kind is found, of so many fleets of each sort."""
    rng = random.Random(seed)
    counts: dict[str, list[int]] = {kind: [0, 0, 0] for kind in OF_QUOTAS}
    for sort, right in SORTS.items():
        for _ in range(fleets):
            made = {each.kind for each in review(*fleet(sort, rng))}
            for kind in OF_QUOTAS:
                if kind == "over-commit" and sort in COMMITS_TOO:
                    continue
                counts[kind][0] += kind in right
                counts[kind][1] += kind in right and kind in made
                counts[kind][2] += kind not in right and kind in made
    return {kind: Score(*found) for kind, found in counts.items()}


COMMITS_TOO: Final = frozenset({"unused", "surges", "grows", "rests two days a week"})
"""Sorts in which half of a quota is not used, so that there is room beside their own finding."""
