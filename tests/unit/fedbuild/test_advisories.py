"""Pins with known weaknesses are named, from a dump and offline; others are not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fedbuild import advisories
from fedbuild.advisories import found_in, records_of
from fedbuild.libraries import pinned
from fedbuild.release import check_advisories

from federator.errors import ConfigError, FederatorError
from federator.testbed.layout import REPOSITORY


def record(name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": name}
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    affected = [{"package": package, "ranges": ranges}]
    return {"id": "GHSA-1", "summary": "reads too\nmuch", "affected": affected} | more


@pytest.mark.parametrize(
    ("events", "is_meant"),
    [
        ([{"introduced": "0"}, {"fixed": "2.0"}], True),
        ([{"introduced": "0"}, {"fixed": "1.9.9"}], False),
        ([{"introduced": "0"}, {"fixed": "1.10"}], False),
        ([{"introduced": "0"}, {"last_affected": "1.10"}], True),
        ([{"introduced": "0"}, {"last_affected": "1.9"}], False),
        ([{"introduced": "1.11"}], False),
        ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.10"}], True),
        ([{"introduced": "1.10"}, {"fixed": "1.11"}, {"introduced": "0"}, {"fixed": "1.2"}], True),
    ],
)
def test_a_version_is_meant_by_the_ranges_that_it_lies_in(
    events: list[dict[str, str]], is_meant: bool
) -> None:
    found = found_in([record("Some_Lib", *events)], {"some-lib": "1.10"})
    assert [each.library for each in found] == (["some-lib"] if is_meant else [])


def test_an_advisory_is_one_line_that_says_what_mends_it() -> None:
    (found,) = found_in([record("a", {"introduced": "0"}, {"fixed": "2"})], {"a": "1"})
    assert str(found) == "a 1: GHSA-1: mended in 2: reads too much"


def test_a_version_may_be_named_itself() -> None:
    named = record("a")
    named["affected"][0] |= {"ranges": [], "versions": ["1"]}
    assert len(found_in([named], {"a": "1"})) == 1
    assert found_in([named], {"a": "1.1"}) == []


def test_what_was_withdrawn_or_is_of_another_ecosystem_is_left_out() -> None:
    other = record("a", {"introduced": "0"})
    other["affected"][0]["package"]["ecosystem"] = "npm"
    gone = record("a", {"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z")
    assert found_in([other, gone], {"a": "1"}) == []


def test_the_command_reads_a_dump_and_says_by_its_status_whether_there_are_some(
    tmp_path: Path,
) -> None:
    name, (_, version) = next(iter(pinned().items()))
    for events, status in (([{"introduced": "0"}], 1), ([{"introduced": "9999"}], 0)):
        dump = tmp_path / "all.zip"
        with zipfile.ZipFile(dump, "w") as file:
            file.writestr("GHSA-1.json", json.dumps(record(name, *events)))
        # As docs/packaging.md says: python -m fedbuild.advisories all.zip
        done = subprocess.run(
            [sys.executable, "-m", "fedbuild.advisories", str(dump)],
            env=os.environ | {"PYTHONPATH": "packaging/build"},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert (f"{name} {version}: GHSA-1" in done.stdout) == bool(status)


AS_PYPA_WRITES_IT = """\
id: PYSEC-2021-66
details: A regular expression of jinja2's
  urlize takes long.
affected:
- package:
    name: jinja2
    ecosystem: PyPI
    purl: pkg:pypi:jinja2
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: "0"
    - fixed: 2.11.3
  versions:
  - "2.10"
  - 2.11.2
aliases:
- CVE-2020-28493
modified: "2021-03-22T16:34:00Z"
"""


@pytest.mark.parametrize(("version", "is_meant"), [("2.11.2", True), ("2.11.3", False)])
def test_a_record_of_pypas_database_is_read_as_it_lies_there(
    tmp_path: Path, version: str, is_meant: bool
) -> None:
    (tmp_path / "vulns" / "jinja2").mkdir(parents=True)
    (tmp_path / "vulns" / "jinja2" / "PYSEC-2021-66.yaml").write_text(AS_PYPA_WRITES_IT)
    (tmp_path / "README.md").write_text("no record")
    (tmp_path / "settings.yaml").write_text("rules: []")
    found = found_in(records_of(tmp_path), {"jinja2": version})
    line = f"jinja2 {version}: PYSEC-2021-66: mended in 2.11.3: A regular expression of"
    assert [str(each).startswith(line) for each in found] == ([True] if is_meant else [])


def test_a_release_is_refused_where_a_pin_has_a_known_weakness(tmp_path: Path) -> None:
    name, (_, version) = next(iter(pinned().items()))
    (tmp_path / "GHSA-1.json").write_text(json.dumps(record(name, {"introduced": "0"})))
    with pytest.raises(FederatorError, match=f"{name} {re.escape(version)}: GHSA-1"):
        check_advisories(tmp_path)
    (tmp_path / "GHSA-1.json").write_text(json.dumps(record(name, {"introduced": "9999"})))
    check_advisories(tmp_path)


def test_a_dump_without_records_is_not_taken_for_a_clean_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(advisories.main, [str(tmp_path)])
    assert done.exit_code == os.EX_CONFIG
    assert "it has no records" in done.output


def test_a_file_that_is_no_dump_is_refused_in_one_line(tmp_path: Path) -> None:
    dump = tmp_path / "all.zip"
    dump.write_text("no")
    with pytest.raises(ConfigError, match="no dump of OSV"):
        list(records_of(dump))
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ConfigError, match="no dump of OSV"):
        list(records_of(tmp_path))
