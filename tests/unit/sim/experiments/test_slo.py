"""Figures of service: who was late."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from federator.sim.experiments import slo
from federator.sim.scenario import JobTrace

pytestmark = pytest.mark.slow


def test_a_workload_that_never_started_waited_without_end() -> None:
    arrival: Any = SimpleNamespace(at_s=5.0)
    assert slo._wait_s(arrival, JobTrace()) == inf
    assert slo._wait_s(arrival, JobTrace(first_start_s=7.0)) == 2.0
