"""Prices of GPU, CPU and memory hours, and tiers, by site, partition, GPU type and day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

_WEIGHT: Final = re.compile(r"([^=,]+)=([0-9]*\.?[0-9]+)([KMGTP]?)", re.ASCII | re.IGNORECASE)
_UNITS_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_GPU: Final = "gres/gpu"


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


def cost(rates: Rates, gpu_ms: int, cpu_ms: int, mem_mib_s: int) -> float | None:
    """What an amount costs; None: nothing of it has a price."""
    parts = [
        amount * rate
        for amount, rate in zip(
            (gpu_ms / 3.6e6, cpu_ms / 3.6e6, mem_mib_s / 3600 / 1024), rates, strict=True
        )
        if rate is not None
    ]
    return sum(parts) if parts else None


def of_weights(text: str, unit_h: float) -> dict[str, Rates]:
    """Prices by GPU type ("": any other) by Slurm's ``TRESBillingWeights``.

    Args:
        text: ``CPU=1.0,Mem=0.25G,GRES/gpu=2.0,GRES/gpu:a100=3.0``; a unit behind a weight of memory
            says that the weight is of so much. The billing of a job is the sum of its TRES, each
            times its weight, as Slurm's without ``MAX_TRES``.
        unit_h: what one billing unit costs for an hour.

    Raises:
        ValueError: it is not of this form, or weighs what is not accounted here.
    """
    cpu_h = mem_gib_h = None
    gpus: dict[str, float] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        match = _WEIGHT.fullmatch(word)
        if match is None:
            raise ValueError(f"expected TRES=WEIGHT, found {word[:40]!r}")
        name, weight, unit = match[1].lower(), float(match[2]), match[3].upper()
        if unit and name != "mem":
            raise ValueError(f"a unit is for Mem alone, found {word[:40]!r}")
        if name == "cpu":
            cpu_h = weight * unit_h
        elif name == "mem":
            mem_gib_h = weight / _UNITS_MIB[unit] * 1024.0 * unit_h
        elif name == _GPU or name.startswith(f"{_GPU}:"):
            gpus[match[1][len(_GPU) + 1 :]] = weight * unit_h
        else:
            raise ValueError(f"{match[1][:40]!r} is not accounted: CPU, Mem, GRES/gpu[:TYPE] are")
    types = {"": gpus.get(""), **gpus}
    return {name: Rates(gpu_h, cpu_h, mem_gib_h) for name, gpu_h in types.items()}
