"""``--reservation`` is a list of names, each of a site or of any."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.slurm.options.reservation_option import reservation


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ()),
        ("", ()),
        ("resa", ("resa",)),
        ("resa,", ("resa",)),
        ("alpine:resa,resb,resb", ("alpine:resa", "resb")),
    ],
)
def test_names_are_read_in_their_order(text: str | None, names: tuple[str, ...]) -> None:
    assert reservation(text) == names


@pytest.mark.parametrize("text", ["a b", ":a", "a:", "a:b:c", ",".join(map(str, range(99)))])
def test_what_is_no_name_is_refused_in_sbatchs_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Requested reservation is invalid"):
        reservation(text)
