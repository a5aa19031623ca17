"""Lists of nodes are written and read as Slurm's host lists."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from federator.cli.node_lists import expanded, folded
from federator.errors import InvalidRequest


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n1",), "n1"),
        (("n1", "n2", "n3"), "n[1-3]"),
        (("n3", "n1"), "n[1,3]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("g1", "c2", "c1"), "c[1-2],g1"),
        (("login", "n1", "n2"), "login,n[1-2]"),
        (("n[1", "n2"), "n[1,n2"),  # what is no name stays as it is
    ],
)
def test_names_are_folded(names: tuple[str, ...], text: str) -> None:
    assert folded(names) == text


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,3}", fullmatch=True), unique=True, max_size=20))
def test_what_is_folded_is_read_as_the_same_nodes(names: list[str]) -> None:
    text = folded(names)
    assert (expanded(text, "-w") if names else frozenset()) == set(names)
    assert set(NodeSet(text)) == set(names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", {"n1"}),
        ("n[1-3,7]", {"n1", "n2", "n3", "n7"}),
        ("n[08-10],m", {"n08", "n09", "n10", "m"}),
        ("r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}),
        ("n[1-2]x", {"n1x", "n2x"}),
    ],
)
def test_lists_are_read(text: str, names: set[str]) -> None:
    assert expanded(text, "-w") == names


@pytest.mark.parametrize("text", ["", "n[1", "n[2-1]", "n[a]", "n]", "n[]", "[1]" * 300])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="invalid entry for -w"):
        expanded(text, "-w")


@pytest.mark.parametrize("text", ["n[0-999999999]", "[0-999]" * 20])
def test_a_list_without_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="more than 65536 nodes"):
        expanded(text, "-w")
