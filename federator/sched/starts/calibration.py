"""Corrects estimated waits so that nine of ten of the intervals hold, whatever the queue does.

A play gives three quantiles of a wait. They are moved by a *shift*, towards where starts came, and
each end of the interval by a *spread* of its own, so that of the starts half of what ``COVERAGE``
leaves come before it, and half after it. All count in logarithms of the wait and ``GRAIN_S``, and
all are sums of parts: one of all workloads, and one for each class that a workload is in (its
size, its quota class, its tenant, how long it has waited). A start beyond an end moves that end of
those classes outwards, any other a little inwards. So of each class by itself one in ten fails in
the long run, as long as the parts stay bounded (``tests/property/test_start_laws.py``), with no
assumption on how starts come about.

Source:
    Adaptive conformal inference as quantile tracking: Gibbs and Candes, NeurIPS 2021;
    Angelopoulos, Candes and Tibshirani, NeurIPS 2023. Conformalised quantiles: Romano, Patterson
    and Candes, NeurIPS 2019. The parts, the steps and the logarithms are chosen here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from math import exp, inf, isfinite, log
from typing import Annotated, Final, NamedTuple

import msgspec

COVERAGE: Final = 0.9
OF_ALL: Final = "all"
GRAIN_S: Final = 30.0  # below it waits hardly differ
JUDGED_KEPT: Final = 500  # the latest, of which the hit rate is told
KEPT_OF_CLASS: Final = 100  # the same of a class by which it is told
RATED_CLASSES: Final = 64
CLASSES_KEPT: Final = 10_000
_AT_FIRST: Final = (
    0.75  # so far apart are the ends moved before anything is known: plays know little
)
_FIRST_STEP: Final = 0.2
_LEAST_STEP: Final = 0.06  # of each part
_SLOWING: Final = 0.1  # from the first step to the least
_SHIFT: Final = 0.1  # of a step
_BEYOND: Final = (1.0 - COVERAGE) / 2.0  # of starts, at each end
_MOST_OFF: Final = 1.0  # as a logarithm: what is further off counts no more
_MOST: Final = 3.0  # of a part: some 20 times
_MOST_SHIFT: Final = 3.0  # of all parts together
_MOST_SPREAD: Final = 5.0
_TOGETHER: Final = 4.0  # so many open at a time count one by one

Classes = tuple[str, ...]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Wait(NamedTuple):
    """Seconds from now until a start: an interval, and what is likely within it."""

    earliest_s: float
    likely_s: float
    latest_s: float

    def holds(self, wait_s: float) -> bool:
        return self.earliest_s <= wait_s <= self.latest_s


class HitRate(NamedTuple):
    """How many of the latest estimates of a class held.

    Attributes:
        of: the class.
        latest: how many there are, at least one.
        hit_frac: of them, held.
    """

    of: str
    latest: int
    hit_frac: float


class SavedCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """What one ``Calibration`` knows, for another to go on with.

    Attributes:
        parts: of each class its shift, the spreads of both its ends, and how often it was judged.
        hits: of the latest that count, "1" for each that held, else "0".
        judged: estimates whose outcome was known.
        hits_of: of each class by which the hit rate is told, as ``hits``.

    Raises:
        ValueError: a shift or a spread is no finite number.
    """

    parts: tuple[tuple[str, float, float, float, _Count], ...] = ()
    hits: str = ""
    judged: _Count = 0
    hits_of: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for key, *corrections, _ in self.parts:
            if not all(map(isfinite, corrections)):
                raise ValueError(f"class {key!r}: {corrections} are not all finite")


class _Part:
    """The corrections of one class."""

    __slots__ = ("early", "judged", "late", "open", "shift")

    def __init__(self) -> None:
        self.shift = self.early = self.late = 0.0
        self.judged = 0
        self.open = 0  # given, and not judged yet

    @property
    def step(self) -> float:
        """The step of one judgement; many that were given together count as few."""
        step = max(_LEAST_STEP, _FIRST_STEP / (1.0 + _SLOWING * self.judged))
        return step / max(1.0, self.open / _TOGETHER)


class Calibration:
    """What is known of how good estimates are.

    Attributes:
        judged: estimates whose outcome is known.
    """

    def __init__(self) -> None:
        self._parts: OrderedDict[str, _Part] = OrderedDict()  # the latest judged at the end
        self._hits: deque[bool] = deque(maxlen=JUDGED_KEPT)
        self._hits_of: OrderedDict[str, deque[bool]] = OrderedDict()  # the latest at the end
        self.judged = 0

    @property
    def latest(self) -> int:
        """Of how many ``hit_frac`` tells."""
        return len(self._hits)

    @property
    def hit_frac(self) -> float:
        """Of the latest that were judged and count; 0 if none was."""
        return sum(self._hits) / len(self._hits) if self._hits else 0.0

    def rates(self) -> tuple[HitRate, ...]:
        """The hit rate of each class by which it is told; the latest judged at the end."""
        return tuple(map(self._rate, self._hits_of))

    def rate_of(self, rated: str) -> HitRate | None:
        """The hit rate of one of them; None: none of it was shown and judged."""
        return self._rate(rated) if rated in self._hits_of else None

    def _rate(self, rated: str) -> HitRate:
        hits = self._hits_of[rated]
        return HitRate(rated, len(hits), sum(hits) / len(hits))

    def corrected(self, played: Wait, classes: Classes) -> Wait:
        """The interval to show.

        Args:
            played: quantiles of the plays; ``latest_s`` may be inf.
            classes: of the workload, beside that of all.
        """
        known = [self._parts[key] for key in (OF_ALL, *classes) if key in self._parts]
        shift = _bounded(sum(p.shift for p in known), _MOST_SHIFT)
        early = _bounded(_AT_FIRST + sum(p.early for p in known), _MOST_SPREAD)
        late = _bounded(_AT_FIRST + sum(p.late for p in known), _MOST_SPREAD)
        likely = _log(played.likely_s) + shift
        low = min(likely, _log(played.earliest_s) + shift - early)
        high = max(likely, _log(played.latest_s) + shift + late)
        return Wait(_exp(low), _exp(likely), _exp(high))

    def gave(self, classes: Classes) -> None:
        """An interval was given in these classes; ``judge`` or ``forget`` follows."""
        for key in (OF_ALL, *classes):
            self._parts.setdefault(key, _Part()).open += 1

    def forget(self, classes: Classes) -> None:
        """What was given will never be judged."""
        for key in (OF_ALL, *classes):
            part = self._parts.setdefault(key, _Part())
            part.open = max(0, part.open - 1)

    def judge(
        self,
        given: Wait,
        classes: Classes,
        wait_s: float,
        *,
        counts: bool = True,
        rated: str = "",
    ) -> None:
        """The outcome of an estimate is known.

        Args:
            given: as ``corrected`` gave it.
            classes: as then.
            wait_s: from when it was given until the start; of one that still waits, until now.
            counts: whether the hit rate is of it, too.
            rated: the class whose hit rate then is of it, too; "": none is.
        """
        early, late = wait_s < given.earliest_s, wait_s > given.latest_s
        off = _log(wait_s) - _log(given.likely_s)
        shift = _SHIFT * min(_MOST_OFF, max(-_MOST_OFF, off))
        self.judged += 1
        if counts:
            self._hit(rated, not early and not late)
        for key in (OF_ALL, *classes):
            part = self._parts.setdefault(key, _Part())
            self._parts.move_to_end(key)
            step = part.step
            part.judged += 1
            part.open = max(0, part.open - 1)
            part.early = _bounded(part.early + step * (early - _BEYOND))
            part.late = _bounded(part.late + step * (late - _BEYOND))
            part.shift = _bounded(part.shift + step * shift)
        while len(self._parts) > CLASSES_KEPT:
            self._parts.popitem(last=False)

    def _hit(self, rated: str, hit: bool) -> None:
        self._hits.append(hit)
        if rated:
            self._hits_of.setdefault(rated, deque(maxlen=KEPT_OF_CLASS)).append(hit)
            self._hits_of.move_to_end(rated)
            if len(self._hits_of) > RATED_CLASSES:
                self._hits_of.popitem(last=False)

    def saved(self) -> SavedCalibration:
        """All but what was given and is not judged yet: that is never judged by another."""
        return SavedCalibration(
            parts=tuple((k, p.shift, p.early, p.late, p.judged) for k, p in self._parts.items()),
            hits=_saved(self._hits),
            judged=self.judged,
            hits_of=tuple((rated, _saved(hits)) for rated, hits in self._hits_of.items()),
        )

    def restore(self, saved: SavedCalibration) -> None:
        """Correct as the one that ``saved`` was asked of; nothing was judged before."""
        for key, shift, early, late, judged in saved.parts[-CLASSES_KEPT:]:
            part = self._parts.setdefault(key, _Part())
            part.shift, part.judged = _bounded(shift), judged
            part.early, part.late = _bounded(early), _bounded(late)
        self._hits.extend(hit == "1" for hit in saved.hits)
        for rated, hits in saved.hits_of[-RATED_CLASSES:]:
            if hits:
                held = (hit == "1" for hit in hits)
                self._hits_of[rated] = deque(held, maxlen=KEPT_OF_CLASS)
        self.judged = saved.judged


def _saved(hits: Iterable[bool]) -> str:
    return "".join("01"[hit] for hit in hits)


def _log(wait_s: float) -> float:
    return inf if wait_s == inf else log(wait_s + GRAIN_S)


def _exp(of: float) -> float:
    return inf if of > 700.0 else max(0.0, exp(of) - GRAIN_S)


def _bounded(part: float, most: float = _MOST) -> float:
    return min(most, max(-most, part))
