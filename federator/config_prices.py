"""The key ``prices`` of federation.yaml: what an hour costs."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from federator.config_services import Strict
from federator.model.prices import PriceList, PriceRule, Rates
from federator.usage.prices import of_weights

Money = Annotated[float, Field(ge=0, le=1e9)]
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


class PriceRuleConfig(Strict):
    """Prices and tier of the hours that it matches; of each the first rule that has it counts."""

    site: str = ""  # this and the next two: "" matches any
    partition: str = ""
    gpu_type: str = ""
    gpu_h: Money | None = None  # of one GPU, for an hour
    cpu_h: Money | None = None
    mem_gib_h: Money | None = None
    weights: str = ""  # as Slurm's TRESBillingWeights, in place of the three
    unit_h: Money = 1.0  # of one billing unit, for an hour
    tier: Literal["", "reserved", "on-demand", "spot"] = ""  # "": as a later rule says
    since: date | None = None  # the first day, UTC; None: always
    until: date | None = None  # the first day on which it does not hold any more

    @field_validator("weights")
    @classmethod
    def _known(cls, text: str) -> str:
        of_weights(text, 1.0)
        return text

    @model_validator(mode="after")
    def _one_way(self) -> PriceRuleConfig:
        plain = (self.gpu_h, self.cpu_h, self.mem_gib_h)
        has_plain = any(price is not None for price in plain)
        if bool(self.weights) == has_plain and (has_plain or not self.tier):
            raise ValueError("give either 'weights', or some of 'gpu_h', 'cpu_h' and 'mem_gib_h'")
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise ValueError("expected an 'until' after 'since'")
        return self

    def rules(self) -> list[PriceRule]:
        """The same, with a rule for each GPU type that has a weight of its own before the rest."""
        if not self.weights:
            rates = Rates(self.gpu_h, self.cpu_h, self.mem_gib_h)
            return [self._rule(self.gpu_type, rates)]
        by_type = of_weights(self.weights, self.unit_h)
        rest = by_type.pop("")
        if self.gpu_type:
            return [self._rule(self.gpu_type, by_type.get(self.gpu_type, rest))]
        own = [self._rule(name, rates) for name, rates in by_type.items()]
        return [*own, self._rule("", rest)]

    def _rule(self, gpu_type: str, rates: Rates) -> PriceRule:
        return PriceRule(
            site=self.site,
            partition=self.partition,
            gpu_type=gpu_type,
            rates=rates,
            tier=self.tier,
            since_day=_day_number(self.since),
            until_day=_day_number(self.until),
        )


def _day_number(day: date | None) -> int | None:
    return None if day is None else day.toordinal() - _FIRST_DAY


class PricesConfig(Strict):
    """What is charged; without rules reports have no costs."""

    currency: Annotated[str, Field(max_length=8)] = ""  # for people: nothing is converted
    rules: tuple[PriceRuleConfig, ...] = ()

    def price_list(self) -> PriceList:
        """The same, as reports use it."""
        return PriceList([rule for each in self.rules for rule in each.rules()], self.currency)
