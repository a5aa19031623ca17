"""Reads from the history how much of its GPU time a site's training spends on kept steps."""

from __future__ import annotations

from sqlalchemy import Engine

from federator.history.doctor_answer import MOST_SUMS
from federator.history.tier_use import DAYS
from federator.history.usage_query import find, question_of
from federator.model.prices import PriceList
from federator.usage.days import DAY_MS
from federator.usage.training_time import BY, training_ratios
from federator.wire.usage_messages import UsageCall

_DAY_S = DAY_MS / 1000


def site_ratios(engine: Engine, now_s: float) -> dict[str, float]:
    """See ``training_ratios``, of the last whole days (UTC).

    Args:
        engine: of one who reads.
        now_s: Unix time; its own day does not count.

    Raises:
        InvalidRequest: there are more sums than are read.
        HistoryError: the database cannot be read, or is of another release.
    """
    end_s = now_s // _DAY_S * _DAY_S
    asked = UsageCall(start_s=end_s - DAYS * _DAY_S, end_s=end_s, by=BY)
    return training_ratios(find(engine, question_of(asked, None, PriceList()), MOST_SUMS))
