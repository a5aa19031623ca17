"""The scripts of packaging/ set up what is missing, then hand their arguments to what builds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from fedbuild import release

from federator.cli.main import federator
from federator.testbed.layout import REPOSITORY

SETUP = 'make_venv() { echo "venv $*"; }\nstart_dockerd() { echo dockerd; }\n'
SAYS = '#!/bin/sh\necho "${0##*/}" "$@"\n'


def said(folder: Path, script: str, *words: str) -> list[str]:
    """What a copy of the script calls, where every program only says how it was called."""
    for name in ("packaging", "containers", ".venv/bin"):
        (folder / name).mkdir(parents=True)
    shutil.copy(REPOSITORY / "packaging" / script, folder / "packaging")
    (folder / "containers" / "setup.sh").write_text(SETUP)
    for program in ("federator", "python"):
        (folder / ".venv" / "bin" / program).write_text(SAYS)
        (folder / ".venv" / "bin" / program).chmod(0o755)
    done = subprocess.run(
        [folder / "packaging" / script, *words], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("script", "words", "called"),
    [
        ("build-deb.sh", (), "federator testbed debs"),
        ("build-deb.sh", ("--suite", "trixie"), "federator testbed debs --suite trixie"),
        ("build-rpm.sh", (), "python -m fedbuild.rpms dist"),
        (
            "release.sh",
            ("--key", "releases@example.org", "--advisories", "all.zip"),
            "python -m fedbuild.release --key releases@example.org --advisories all.zip",
        ),
    ],
)
def test_a_script_hands_its_arguments_to_what_builds(
    tmp_path: Path, script: str, words: tuple[str, ...], called: str
) -> None:
    assert said(tmp_path, script, *words) == ["venv dev", "dockerd", called]


def test_what_builds_knows_these_options() -> None:
    debs = CliRunner().invoke(federator, ["testbed", "debs", "--help"])
    assert (debs.exit_code, "--suite" in debs.output) == (0, True)
    made = CliRunner().invoke(release.main, ["--help"])
    assert (made.exit_code, "--key" in made.output, "--advisories" in made.output) == (
        (0, True, True)
    )
