"""An audit finds a space that gives a GPU twice."""

from __future__ import annotations

import pytest

from federator.sim.node_pool import AuditedSpace, CountSpace, Held, NodeSpace


class _Careless:
    """Gives node 0 to everyone."""

    def take(self, gpus: int) -> Held | None:
        return 0, 1, gpus

    def give(self, held: Held) -> None:
        """Nothing is kept."""


def test_a_gpu_given_twice_is_found() -> None:
    space = AuditedSpace(_Careless(), 2, 4)
    space.take(3)
    with pytest.raises(AssertionError, match="node 0 is used twice"):
        space.take(2)


def test_what_is_not_held_cannot_be_given_back() -> None:
    space = AuditedSpace(CountSpace(4), 1, 4)
    held = space.take(3)
    assert held is not None
    assert space.take(2) is None
    space.give(held)
    with pytest.raises(ValueError, match="not in list"):
        space.give(held)


def test_a_pool_of_very_many_nodes() -> None:
    space = NodeSpace(100_000, 8)
    assert space.take(8 * 99_999 + 3) is not None
    assert space.take(6) is None
    assert space.take(5) == (0, 1 << 99_999, 5)
    assert space.take(1) is None
