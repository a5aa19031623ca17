"""A release can be verified with gpg and sha256sum, and with nothing else.

Packages of Debian and RPM have tests of their own; here the release is without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fedbuild import release, rpms, wheel

from federator import __version__
from federator.errors import FederatorError
from federator.testbed.layout import StateDir

pytestmark = pytest.mark.packages

KEY = "releases@federator.invalid"


def quiet(_what: str, _doing: str) -> None:
    return None


@pytest.fixture(scope="module")
def key() -> Iterator[str]:
    """A key that is thrown away; gpg's sockets want a short path."""
    with tempfile.TemporaryDirectory(prefix="gpg") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNUPGHOME", home)
        argv = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key"]
        subprocess.run([*argv, KEY, "ed25519", "sign", "1d"], check=True)
        yield KEY
        subprocess.run(["gpgconf", "--kill", "all"], check=True)


@pytest.fixture(scope="module")
def made(key: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpms, "make", lambda *_: None)
        release.make(folder, (), StateDir.default(), quiet)
    release.sign(folder, key)
    return folder


@pytest.fixture
def received(made: Path, tmp_path: Path) -> Path:
    """What somebody has fetched."""
    return Path(shutil.copytree(made, tmp_path / "received"))


def verified(folder: Path) -> bool:
    """Tell whether signature and checksums hold, as docs/packaging.md has it."""
    script = (
        f"gpg --batch --verify {release.SIGNATURE} {release.SUMS}"
        f" && sha256sum --check --strict {release.SUMS}"
    )
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, capture_output=True, check=False, env=os.environ
    )
    return done.returncode == 0


def test_it_has_wheel_sources_components_checksums_and_signature(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == sorted(
        [
            f"federator-{__version__}-py3-none-any.whl",
            f"federator-{__version__}.tar.gz",
            f"federator-{__version__}.cdx.json",
            release.SUMS,
            release.SIGNATURE,
        ]
    )


def test_the_source_distribution_makes_the_same_wheel(made: Path, tmp_path: Path) -> None:
    (own,) = made.glob("*.whl")
    again = wheel.build_from(made / f"federator-{__version__}.tar.gz", tmp_path)
    assert wheel.contents(again) == wheel.contents(own)


def test_as_it_was_made_it_can_be_verified(received: Path) -> None:
    assert verified(received)


def test_a_changed_file_is_noticed(received: Path) -> None:
    with (received / release.COMPONENTS).open("a") as file:
        file.write(" ")
    assert not verified(received)


def test_changed_checksums_are_noticed(received: Path) -> None:
    (received / release.COMPONENTS).unlink()
    lines = (received / release.SUMS).read_text().splitlines(keepends=True)
    (received / release.SUMS).write_text("".join(lines[1:]))
    assert not verified(received)


def test_without_its_key_nothing_is_signed(received: Path) -> None:
    with pytest.raises(FederatorError, match="nobody@federator"):
        release.sign(received, "nobody@federator.invalid")
    assert not (received / release.SIGNATURE).exists()
