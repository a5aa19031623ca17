"""RPM packages bring the files of the Debian packages, and say what they need and bring."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import replace

import pytest
from fedbuild import deb_contents, package_contents, rpm_contents
from fedbuild.package_contents import PackageContents, Sources

from federator import __version__
from federator.errors import FederatorError
from federator.testbed.archive import ArchivedFile
from federator.testbed.images import LIBRARIES
from federator.testbed.layout import SITES

NAMES = [
    "federator-common",
    "federator-server",
    "federator-site",
    "federator-node",
    "federator-slurm",
]


@pytest.fixture
def packages(sources: Sources) -> dict[str, PackageContents]:
    made = package_contents.contents(rpm_contents.PLATFORM, sources)
    return {one.name: one for one in made}


def listed(package: PackageContents) -> dict[str, str]:
    """How the spec's list calls each path, but folders."""
    lines = [line.rpartition(" /") for line in rpm_contents.listing(package).splitlines()]
    return {path.lstrip("/"): how for how, _, path in lines if not how.startswith("%dir")}


def test_both_kinds_of_package_bring_the_same_files(
    packages: dict[str, PackageContents], sources: Sources
) -> None:
    (bookworm,) = [site for site in SITES if site.suite == "bookworm"]
    debian = package_contents.contents(deb_contents.platform_of(bookworm), sources)
    assert [one.name for one in debian] == list(packages) == NAMES
    for one in debian:
        there = {
            file.path.replace("etc/default/", "etc/sysconfig/").replace(
                "/zsh/vendor-completions/", "/zsh/site-functions/"
            )
            for file in one.files
        }
        assert there == {file.path for file in packages[one.name].files}
        assert one.links == packages[one.name].links


@pytest.mark.parametrize("name", NAMES)
def test_every_file_and_link_is_listed_once(
    packages: dict[str, PackageContents], name: str
) -> None:
    package = packages[name]
    paths = [file.path for file in rpm_contents.installed(package)]
    paths += [path for path, _ in package.links]
    assert len(paths) == len(set(paths))
    assert set(listed(package)) == set(paths)


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_has_what_the_spec_installs(
    packages: dict[str, PackageContents], name: str
) -> None:
    package = packages[name]
    with tarfile.open(fileobj=io.BytesIO(rpm_contents.source(package))) as tar:
        members = {member.name: member for member in tar if member.isfile()}
    for file in rpm_contents.installed(package):
        assert members[f"root/{file.path}"].mode == file.mode
    assert {"files", "links"} <= set(members)


def test_only_our_own_folders_are_owned(packages: dict[str, PackageContents]) -> None:
    for package in packages.values():
        lines = rpm_contents.listing(package).splitlines()
        folders = [line.rpartition(" ")[2] for line in lines if line.startswith("%dir")]
        ours = re.compile(rf"/opt/federator(/.*)?|/usr/share/(doc|licenses)/{package.name}(/.*)?")
        assert [folder for folder in folders if not ours.fullmatch(folder)] == []


def test_an_upgrade_keeps_changed_settings(packages: dict[str, PackageContents]) -> None:
    settings = listed(packages["federator-server"])["etc/sysconfig/federator-daemon"]
    assert settings.startswith("%config(noreplace) ")


@pytest.mark.parametrize("name", NAMES)
def test_no_placeholder_is_left_in_a_spec(packages: dict[str, PackageContents], name: str) -> None:
    text = rpm_contents.spec(packages[name])
    assert re.findall(r"@[A-Z_]+@", text) == []
    assert f"\nName: {name}\nVersion: {__version__}\n" in text


def test_the_program_needs_the_python_that_its_libraries_are_for(
    packages: dict[str, PackageContents],
) -> None:
    text = rpm_contents.spec(packages["federator-common"])
    assert "\nRequires: python3.11\n" in text
    assert "/usr/bin/python3.11 -m compileall" in text
    assert ("opt/federator/bin/python3", "/usr/bin/python3.11") in packages[
        "federator-common"
    ].links


def test_bundled_libraries_are_named_with_their_versions(
    packages: dict[str, PackageContents],
) -> None:
    found = re.findall(
        r"^Provides: bundled\(python3dist\((\S+)\)\) = [\d.]+$",
        rpm_contents.spec(packages["federator-common"]),
        re.MULTILINE,
    )
    assert found == sorted(name.lower() for name in LIBRARIES)


def test_no_unit_is_enabled_or_started_by_a_package(packages: dict[str, PackageContents]) -> None:
    for package in packages.values():
        asked = re.findall(r"systemctl (.*?) *(?:\|\||$)", rpm_contents.spec(package), re.MULTILINE)
        assert [words for words in asked if re.match(r"(enable|start|preset)\b", words)] == []


def test_the_plugin_comes_as_source(packages: dict[str, PackageContents]) -> None:
    paths = {file.path for file in rpm_contents.installed(packages["federator-slurm"])}
    assert "opt/federator/share/slurm_plugins/spank_federator.c" in paths


def test_a_name_that_rpm_would_take_for_a_pattern_is_refused(
    packages: dict[str, PackageContents],
) -> None:
    strange = ArchivedFile(path="opt/federator/a[1].py", data=b"")
    package = replace(packages["federator-node"], files=(strange,))
    with pytest.raises(FederatorError, match=r"a\[1\]\.py"):
        rpm_contents.listing(package)
