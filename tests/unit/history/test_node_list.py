"""Lists of nodes are short where they can be, and never wrong."""

from __future__ import annotations

import pytest

from federator.history.node_list import node_list


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ((), ""),
        (("g1", "g2", "g3"), "g1,g2,g3"),
        (("g01", "g02", "g03", "g10"), "g[01-03,10]"),
        (("a", "b", "c", "d"), "a,b,c,d"),
        (("a[1", "b", "c", "d e"), "a[1,b,c,d e"),
    ],
)
def test_names_are_folded_unless_slurm_could_not_have_them(
    names: tuple[str, ...], folded: str
) -> None:
    assert node_list(names) == folded
