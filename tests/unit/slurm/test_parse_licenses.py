"""Licences as scontrol shows them; recorded on three releases."""

from __future__ import annotations

import pytest

from federator.model.license import SiteLicense
from federator.slurm.parse_licenses import parse_licenses

OLDER = """LicenseName=fluent Total=2 Used=0 Free=2 Reserved=0 Remote=no
LicenseName=matlab Total=4 Used=1 Free=3 Reserved=1 Remote=no
"""  # of 22.05 and 24.11; 26.05 has another order


def test_what_is_reserved_is_not_free_though_slurm_counts_it() -> None:
    reading = parse_licenses(OLDER)
    assert reading.complete
    assert reading.records == (
        SiteLicense(name="fluent", total=2, free=2),
        SiteLicense(name="matlab", total=4, free=2),
    )


def test_the_deficit_of_a_remote_licence_is_not_free() -> None:
    line = (
        "LicenseName=abaqus@srv Total=10 Used=2 Free=8 Reserved=0 Remote=yes LastConsumed=5 "
        "LastDeficit=3 LastUpdate=2026-11-25T17:00:00"
    )
    assert parse_licenses(line).records == (SiteLicense(name="abaqus@srv", total=10, free=5),)


@pytest.mark.parametrize("text", ["", "No licenses configured in Slurm.\n"])
def test_a_site_may_have_none(text: str) -> None:
    assert parse_licenses(text).records == ()


def test_a_line_that_cannot_be_read_is_a_problem() -> None:
    reading = parse_licenses("LicenseName=x Total=many Used=0\n" + OLDER)
    assert (len(reading.records), len(reading.problems), reading.complete) == (2, 1, False)
