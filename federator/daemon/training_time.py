"""Looks once an hour how much of its GPU time each site's training spends on kept steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sqlalchemy import Engine

from federator.daemon.hourly_look import HourlyLook
from federator.history.service import JobHistory
from federator.history.training_time import site_ratios

FIRST_S: Final = 360.0  # not with the doctor's look, nor with that of quotas

Ratios = Mapping[str, float]


def training_look(
    history: JobHistory, clock: Callable[[], float], tell: Callable[[Ratios], None]
) -> HourlyLook[Ratios]:
    """Measures the effective training time ratio of sites, for metrics.

    Args:
        history: is read.
        clock: Unix time.
        tell: takes the ratios by site.
    """

    def question() -> Callable[[Engine], Ratios]:
        return partial(site_ratios, now_s=clock())

    return HourlyLook("training time", FIRST_S, history, question, tell)
