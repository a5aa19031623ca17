"""Lists of nodes and constraints are bounded before anything works them out."""

from __future__ import annotations

import tracemalloc

import pytest

from federator.errors import InvalidRequest
from federator.slurm.options.node_options import MOST_NAMES, node_names, node_wish


def test_names_ranges_and_sites_are_read() -> None:
    assert node_names("alpine:g[1-2],c1,h[1,3]") == ("alpine:g1", "alpine:g2", "c1", "h1", "h3")


@pytest.mark.parametrize("text", ["a,,b", "g[1-3", "g1]", "a b", ":g1", "x" * 256, ","])
def test_what_is_no_list_is_refused_in_sbatchs_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid node name specified"):
        node_names(text)


@pytest.mark.parametrize(
    "text",
    ["x[1-99999]", "x[1-4000],y[1-200]", "x[1-100]y[1-100]", ",".join(map(str, range(9999)))],
)
def test_a_list_of_too_many_names_is_never_expanded(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match=f"more than {MOST_NAMES}"):
        node_names(text)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 8 * 2**20


@pytest.mark.parametrize(
    "constraint",
    [
        "&".join(f"(a|q{k})*1" for k in range(20)),
        "[" + "|".join(f"w{k}" for k in range(17)) + "]",
        "[a|b|c|d|e|f|g|h|i]&x*1&y*1",
        "a|" * 200 + "a",
    ],
)
def test_a_constraint_that_every_node_would_be_held_against_too_often_is_refused(
    constraint: str,
) -> None:
    with pytest.raises(InvalidRequest, match="--constraint"):
        node_wish(None, None, constraint)
