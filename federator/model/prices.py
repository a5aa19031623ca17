"""Prices of hours, and tiers, by site, partition, GPU type and day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

SPOT: Final = "spot"


class Rates(NamedTuple):
    """What an hour costs; None: no price is known."""

    gpu_h: float | None = None
    cpu_h: float | None = None
    mem_gib_h: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRule:
    """Prices and the tier of what it matches; "" matches anything. Days: since 1970, UTC."""

    site: str = ""
    partition: str = ""
    gpu_type: str = ""
    rates: Rates = Rates()
    tier: str = ""  # "": it says nothing of it
    since_day: int | None = None
    until_day: int | None = None  # the first that it does not hold for

    @property
    def is_dated(self) -> bool:
        """Whether it holds for some days only."""
        return self.since_day is not None or self.until_day is not None

    def matches(self, site: str, partition: str, gpu_type: str, day: int = 0) -> bool:
        """Whether it says what an hour there costs; of several partitions any may be meant."""
        return (
            (self.since_day is None or self.since_day <= day)
            and (self.until_day is None or day < self.until_day)
            and self.site in ("", site)
            and (not self.partition or self.partition in partition.split(","))
            and self.gpu_type in ("", gpu_type)
        )


class PriceList:
    """Rules in their order: of each price the first rule that matches and has it counts.

    Args:
        rules: as in the configuration.
        currency: for people; nothing is converted.
    """

    def __init__(self, rules: Sequence[PriceRule] = (), currency: str = "") -> None:
        self.rules, self.currency = tuple(rules), currency
        self._is_dated = any(rule.is_dated for rule in self.rules)
        self._rates = lru_cache(maxsize=4096)(self._find)
        self._tiers = lru_cache(maxsize=4096)(self._find_tier)

    def periods(self, first_day: int, end_day: int) -> tuple[int, ...]:
        """The first days of the times in which prices stay the same; none if all days have one.

        Args:
            first_day: of those that are asked for.
            end_day: the first that is not.
        """
        days = {day for rule in self.rules for day in (rule.since_day, rule.until_day)}
        inside = sorted(day for day in days if day is not None and first_day < day < end_day)
        return (first_day, *inside) if inside else ()

    def rates(self, site: str, partition: str, gpu_type: str, day: int = 0) -> Rates:
        """The prices of an hour of a day."""
        return self._rates(site, partition, gpu_type, day if self._is_dated else 0)

    def tier(self, site: str, partition: str, gpu_type: str, day: int = 0) -> str:
        """The tier by the first rule that matches and has one; "": none has."""
        return self._tiers(site, partition, gpu_type, day if self._is_dated else 0)

    def _find_tier(self, site: str, partition: str, gpu_type: str, day: int) -> str:
        tiers = (r.tier for r in self.rules if r.tier and r.matches(site, partition, gpu_type, day))
        return next(tiers, "")

    def _find(self, site: str, partition: str, gpu_type: str, day: int) -> Rates:
        found = Rates()
        for rule in self.rules:
            if rule.matches(site, partition, gpu_type, day):
                found = Rates(
                    *(a if a is not None else b for a, b in zip(found, rule.rates, strict=True))
                )
        return found
