"""A site for each release of Lua that a slurmctld may bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.job_submit.site import VERSIONS, Site


@pytest.fixture(params=VERSIONS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path, request.param)
