"""A wheel and libraries, as small as can be."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from fedbuild.package_contents import Sources


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    wheel = tmp_path / "federator.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("federator/__init__.py", "")
        archive.writestr(
            "federator-1.dist-info/entry_points.txt",
            "[console_scripts]\nfsinfo = federator.cli.fsinfo:main\n",
        )
    for name in ("agent", "daemon"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / "__init__.py").write_text("")
        (tmp_path / name / name / "tests").mkdir()
        (tmp_path / name / name / "tests" / "test_it.py").write_text("")
    return Sources(
        wheel=wheel, agent_libraries=tmp_path / "agent", daemon_libraries=tmp_path / "daemon"
    )
