"""Predicts whether a job will come to a pool soon, by gradient-boosted trees over past counts.

One model for each window, over all pools, with xgboost's defaults, on one thread, so that the same
history gives the same model. It learns only from what it has seen: the first time after
``FIRST_S``, then every ``AGAIN_S``, from the steps of the last ``LOOK_BACK_S`` whose window is over
by then. Until the first time, and where all that was seen had the same outcome, it says what
``LatelyForecast`` says.

Source:
    SIA sec. 5.4.1: XGBoost with the default hyper-parameters "for skewed datasets", which is read
    as its advice for such data, to weigh the rarer outcome up (``scale_pos_weight``). The paper
    trains on three weeks (CloudML) or five months (Helios) that came before its experiments. A
    trace has nothing before it, so its first days serve, and are replayed with the plain rule.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from federator.errors import InvalidRequest
from federator.planner.forecast import LatelyForecast, Said
from federator.planner.history import FEATURES, Features, PoolHistory

FIRST_S: Final = 3 * 86_400
AGAIN_S: Final = 7 * 86_400
LOOK_BACK_S: Final = 21 * 86_400
MOST_EXAMPLES: Final = 500_000
"""Of one model. Of more, as some hundred pools give, only each second or third step counts."""
_ROUNDS: Final = 100  # xgboost's own default in its scikit-learn interface


def xgboost() -> ModuleType:
    """The library, which is an extra.

    Raises:
        InvalidRequest: it is not installed.
    """
    try:
        import xgboost as library  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"forecasts need {error.name}, which is not installed here; install federator[forecast]"
        ) from error
    found: ModuleType = library
    return found


class BoostedForecast:
    """WillJobsArrive by boosted trees."""

    def __init__(self) -> None:
        xgboost()  # an extra: without it nothing is forecast
        self._plain = LatelyForecast()
        self._models: dict[int, Any] = {}
        self._due_s = FIRST_S

    def says(self, history: PoolHistory, window: int) -> Said:
        if (history.steps - 1) * history.step_s >= self._due_s:
            self._learn(history)
        model = self._models.get(window)
        if model is None:
            return self._plain.says(history, window)
        features = history.features(window, history.steps, history.steps)[0]
        chance = model.inplace_predict(features)
        said: Said = chance > 0.5
        return said

    def _learn(self, history: PoolHistory) -> None:
        self._due_s = (history.steps - 1) * history.step_s + AGAIN_S
        self._models.clear()
        for window, length in enumerate(history.windows):
            last = history.steps - length
            first = max(1, last - LOOK_BACK_S // history.step_s + 1)
            if last < first:
                continue
            every = 1 + (last - first) * history.pools // MOST_EXAMPLES
            seen = history.features(window, first, last, every).reshape(-1, FEATURES)
            came = history.any_came(window, first, last, every).reshape(-1)
            if came.any() and not came.all():
                self._models[window] = trained(seen, came)


def trained(seen: Features, came: Said) -> Any:
    """A model of whether jobs came; its ``inplace_predict`` has the chances for other features.

    Args:
        seen: shape (examples, features).
        came: by example; some are true and some are not.
    """
    library = xgboost()
    chosen = {
        "objective": "binary:logistic",
        "nthread": 1,
        "seed": 0,
        "verbosity": 0,
        "scale_pos_weight": float((~came).sum() / came.sum()),
    }
    data = library.DMatrix(seen, label=came, nthread=1)
    return library.train(chosen, data, num_boost_round=_ROUNDS)
