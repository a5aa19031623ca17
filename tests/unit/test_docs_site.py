"""The documents as a site: each page is reached, each link leads somewhere, nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
_FETCHED = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)=["'](?:https?:)?//[^"']+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built as docs/packaging.md says; a warning of Sphinx is an error."""
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            Path(sys.executable).with_name("sphinx-build"),
            "-q",
            "-W",
            "--keep-going",
            str(DOCS),
            str(out),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert (built.returncode, built.stderr) == (0, "")
    return out


def test_every_document_is_a_page(site: Path) -> None:
    """Sphinx warns of a page that no list leads to, and of a link that leads nowhere."""
    sources = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert sources - pages == {Path("README")}


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = {
        f"{page.relative_to(site)}: {found}"
        for page in site.rglob("*.html")
        for found in _FETCHED.findall(page.read_text())
    }
    assert fetched == set()


def test_files_of_the_repository_are_named_and_not_linked(site: Path) -> None:
    architecture = (site / "reliability.html").read_text()
    assert "federator/faults" in architecture
    assert 'href="../federator' not in architecture
