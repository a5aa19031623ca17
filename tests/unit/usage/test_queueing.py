"""How long work waits by load and variation."""

from __future__ import annotations

from math import inf

import pytest

from federator.usage.queueing import variation_of, wait_ratio


def test_the_chapters_case_waits_twenty_times_its_run_time() -> None:
    assert wait_ratio(0.8, 3.0) == pytest.approx(20.0)


def test_many_servers_wait_less_and_a_full_pool_for_ever() -> None:
    waits = [wait_ratio(0.8, 1.0, servers) for servers in (1, 2, 8, 64)]
    assert waits == sorted(waits, reverse=True)
    assert waits[1] == pytest.approx(1.778, rel=0.05), "Erlang's C for two servers: 16/9"
    assert wait_ratio(1.0, 1.0, 64) == inf
    assert wait_ratio(0.0, 1.0) == 0.0


def test_the_variation_of_equal_times_is_none() -> None:
    assert variation_of([]) == variation_of([5.0, 5.0]) == 0.0
    assert variation_of([1.0, 3.0]) == pytest.approx(0.5)
