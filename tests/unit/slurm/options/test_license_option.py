"""``--licenses`` is read as sbatch reads it.

``wished_values.json`` holds what sbatch of 22.05, 24.11 and 26.05 made of options that depend on
what a site has, at one with ``Licenses=matlab:4,fluent:2``: the kind, the options, the releases
that took them, and what the others said.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.model.gres import covers
from federator.model.license import Licenses
from federator.slurm.options.license_option import INVALID, licenses, words_of_licenses

RECORDED = json.loads((Path(__file__).parent / "wished_values.json").read_text())
THERE = {"matlab": 4, "fluent": 2}
ANSWERS = [(words[2], takers, said) for kind, words, takers, said in RECORDED if kind == "licenses"]


@pytest.mark.parametrize(("text", "takers", "said"), ANSWERS)
def test_a_site_has_what_its_sbatch_takes(text: str, takers: list[str], said: list[str]) -> None:
    if "|" in text:  # only 26.05 lets a job choose
        assert takers == ["26.05"]
        with pytest.raises(InvalidRequest, match="cannot be planned"):
            licenses(text)
    elif takers:
        assert covers(THERE, licenses(text))
    else:
        with suppress(InvalidRequest):
            assert not covers(THERE, licenses(text)), said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ()),
        ("", ()),
        ("matlab", (("matlab", 1),)),
        ("matlab=2;fluent", (("fluent", 1), ("matlab", 2))),
        ("matlab:1,matlab:3", (("matlab", 4),)),
        ("matlab:0", ()),
        ("abaqus@srv:5", (("abaqus@srv", 5),)),
    ],
)
def test_numbers_of_one_name_add_up(text: str | None, expected: Licenses) -> None:
    assert licenses(text) == expected


def test_they_are_passed_on_in_the_words_of_every_release() -> None:
    assert words_of_licenses(licenses("matlab=2;fluent")) == "fluent:1,matlab:2"
    with pytest.raises(InvalidRequest, match=INVALID):
        licenses(",".join(f"x{k}" for k in range(99)))
