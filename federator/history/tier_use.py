"""Says by the history how much GPU time a productive hour takes in each tier of a site."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine

from federator.history.doctor_answer import MOST_SUMS
from federator.history.usage_query import find, question_of
from federator.model.prices import PriceList
from federator.usage.days import DAY_MS
from federator.usage.tiers import time_factors
from federator.wire.usage_messages import UsageCall

DAYS: Final = 28
_DAY_S: Final = DAY_MS / 1000


def tier_factors(engine: Engine, prices: PriceList, now_s: float) -> dict[tuple[str, str], float]:
    """See ``time_factors``, of the last whole days (UTC).

    Args:
        engine: of one who reads.
        prices: whose tiers are meant.
        now_s: Unix time; its own day does not count.

    Raises:
        InvalidRequest: there are more sums than are read.
        HistoryError: the database cannot be read, or is of another release.
    """
    end_s = now_s // _DAY_S * _DAY_S
    asked = UsageCall(start_s=end_s - DAYS * _DAY_S, end_s=end_s, by=("site",))
    return time_factors(find(engine, question_of(asked, None, prices), MOST_SUMS), prices)
