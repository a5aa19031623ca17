"""Lending plans: forecasts of owners' load to come, and the decisions that rest on them."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from federator.model.reason import Reason

MOST_WINDOWS: Final = 8
MOST_FORECASTS: Final = 10_000
"""Of one plan: tenants times GPU types."""

Owners = dict[str, int]
"""GPUs by the tenant from whose quota they are lent; "" has those of nobody's quota."""


class Lending(Enum):
    """Whether work over quota that cannot be evicted waits for a forecast: ``policy.lending``."""

    OFF = "off"  # it never does
    ADVISORY = "advisory"  # it does not; awards say whether it would have been held
    ON = "on"


class LoadForecast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPUs that one tenant is expected to ask for besides, within its quota; tuples by window.

    A promise is one earlier forecast of a window that is over by now; it was kept if no more came.
    """

    tenant: str
    new_gpus: tuple[int, ...]
    gpu_type: str = ""  # of a quota that counts this type; "": of all its GPUs
    off: tuple[bool, ...] = ()  # nothing is lent on it: too few promises were kept
    kept: tuple[int, ...] = ()  # promises, of the last that are over
    promises: tuple[int, ...] = ()  # the number of these

    def is_off(self, window: int) -> bool:
        """Tell whether it is not to be relied on for one window."""
        return window < len(self.off) and self.off[window]

    def precision_frac(self, window: int) -> float:
        """The part of the promises of one window that was kept; 1 while there are none."""
        made = self.promises[window] if window < len(self.promises) else 0
        return self.kept[window] / made if made else 1.0


class LendingPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forecasts of one moment. A tenant that it does not name lends nothing."""

    made_at_s: float  # Unix time, as the next
    expires_at_s: float  # from then on it is as if there were none
    windows_s: tuple[float, ...]  # how far ahead, ascending
    forecasts: tuple[LoadForecast, ...] = ()
    source: str = ""  # of the forecasts, in a word

    def holds(self, now_s: float) -> bool:
        """Tell whether it has not expired."""
        return now_s < self.expires_at_s

    def window_for(self, run_s: float) -> int | None:
        """The shortest window that a run is over in; None: it is longer than all."""
        return next((k for k, window_s in enumerate(self.windows_s) if run_s <= window_s), None)


class LendingDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one start over quota that cannot be evicted: on what forecast it was lent, or not.

    With ``held`` it was, or by advice would have been, refused for that reason.
    """

    owners: Owners = {}
    until_s: float = 0.0  # Unix time: so long it is predicted to run, and the GPUs to be free
    window_s: float = 0.0
    planned_at_s: float = 0.0  # when the plan was made
    held: Reason | None = None
    advisory: bool = False  # nothing follows from it

    @property
    def is_lent(self) -> bool:
        """Whether it runs on GPUs that were lent by a forecast."""
        return self.held is None and not self.advisory
