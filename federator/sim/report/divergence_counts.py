"""Counts divergences by site, by account and by reason, and how many of them have a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import log, log1p
from typing import Final

import numpy as np
from msgspec import Struct

from federator.sim.local_replay import LocalFate
from federator.sim.report.bootstrap import Interval
from federator.sim.report.divergence import DivergenceReason

MOST_EXAMPLES: Final = 3
_TAIL: Final = 0.05  # beyond each end of an interval
_HALVINGS: Final = 50


class Divergence(Struct, frozen=True):
    """A job that started otherwise. Times are Unix times.

    ``federated_start_s``: null: it would never have started, and ``federated_site`` is "".
    ``held_by``: Slurm's last word for why it waited. ``federated_code``: why the federation would
    not have started it when its site did; "": it would have.
    """

    job_id: str
    site: str
    account: str
    gpus: int
    start_s: float
    federated_site: str
    federated_start_s: float | None
    held_by: str
    federated_code: str
    reason: str


class DivergenceCount(Struct, frozen=True):
    """Of a site, an account, or of all.

    Attributes:
        jobs: that are measured.
        divergences: of those.
        with_reason: of those.
        with_reason_frac: 1 where there is no divergence.
        interval: of that, by Clopper and Pearson, in which it is in nine of ten cases; null: none.
        reasons: how many there are of each, the most frequent first; by name.
        examples: some without a reason, the first that came.
    """

    name: str
    jobs: int
    divergences: int
    with_reason: int
    with_reason_frac: float
    interval: Interval | None
    reasons: dict[str, int]
    examples: list[Divergence]


class DivergenceReport(Struct, frozen=True):
    """All divergences of a report."""

    in_all: DivergenceCount
    sites: list[DivergenceCount]
    accounts: list[DivergenceCount]


Found = Sequence[tuple[LocalFate, DivergenceReason | None]]
"""The jobs that are measured, each with its reason; None: it started as it would have."""


def divergence_report(found: Found, sites: Iterable[str]) -> DivergenceReport:
    """Count them; ``sites``: each has a row, whether it has jobs or not."""
    of_site = _grouped(found, lambda fate: str(fate.past.site))
    of_account = _grouped(found, lambda fate: fate.tenant)
    return DivergenceReport(
        in_all=count_divergences("ALL", found),
        sites=[count_divergences(site, of_site.get(site, ())) for site in sites],
        accounts=[count_divergences(name, of_account[name]) for name in sorted(of_account)],
    )


def count_divergences(name: str, found: Found) -> DivergenceCount:
    """Count those of some jobs."""
    diverging = [(fate, reason) for fate, reason in found if reason is not None]
    reasons = Counter(reason for _, reason in diverging)
    unexplained = reasons[DivergenceReason.UNKNOWN]
    examples = [
        _shown(fate, reason) for fate, reason in diverging if reason is DivergenceReason.UNKNOWN
    ]
    known, total = len(diverging) - unexplained, len(diverging)
    return DivergenceCount(
        name=name,
        jobs=len(found),
        divergences=total,
        with_reason=known,
        with_reason_frac=known / total if total else 1.0,
        interval=clopper_pearson(known, total) if total else None,
        reasons={reason.name: count for reason, count in reasons.most_common()},
        examples=examples[:MOST_EXAMPLES],
    )


def _grouped(found: Found, key: Callable[[LocalFate], str]) -> dict[str, Found]:
    groups: dict[str, list[tuple[LocalFate, DivergenceReason | None]]] = {}
    for each in found:
        groups.setdefault(key(each[0]), []).append(each)
    return dict(groups)


def _shown(fate: LocalFate, reason: DivergenceReason) -> Divergence:
    code = fate.federated_code
    return Divergence(
        job_id=fate.past.job_id,
        site=fate.past.site,
        account=fate.tenant,
        gpus=fate.past.gpus,
        start_s=fate.past.start_s,
        federated_site=fate.federated_stays[0].site if fate.federated_stays else "",
        federated_start_s=fate.federated_start_s,
        held_by=fate.held_by,
        federated_code="" if code is None else code.value,
        reason=reason.name,
    )


def clopper_pearson(hits: int, tries: int) -> Interval:
    """The exact interval of a binomial share: each end leaves 5 % beyond it.

    C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits illustrated in the case
    of the binomial, Biometrika 26 (1934).
    """
    low = 0.0 if hits == 0 else _share(_Tail(tries - hits, tries))
    high = 1.0 if hits == tries else 1 - _share(_Tail(hits, tries))
    return Interval(low, high)


def _share(tail: Callable[[float], float]) -> float:
    """The share at which a tail that grows with it is as large as ``_TAIL``."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) < _TAIL else (low, middle)
    return (low + high) / 2


class _Tail:
    """How likely so many misses are, or fewer, at a share of hits; it grows with that."""

    def __init__(self, misses: int, tries: int) -> None:
        first = misses + 1 if 2 * misses < tries else tries - misses
        self._is_rest = 2 * misses >= tries  # then those beyond are fewer to add up
        k = np.arange(1, first)
        self._counts = np.arange(first)
        self._ways = np.concatenate(([0.0], np.cumsum(np.log((tries - k + 1) / k))))
        self._tries = tries

    def __call__(self, share: float) -> float:
        miss = share if self._is_rest else 1 - share
        terms = self._ways + self._counts * log(miss) + (self._tries - self._counts) * log1p(-miss)
        likely = float(np.exp(terms).sum())
        return 1 - likely if self._is_rest else likely
