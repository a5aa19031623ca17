"""Packages bring what their programs import, and the same paths as an installation by hand."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from fedbuild import deb_contents
from fedbuild.deb_contents import DebContents, Sources
from packaging.requirements import Requirement

from federator import __version__
from federator.testbed import images
from federator.testbed.layout import SITES, SiteLayout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


INSTALLED = {normal(found.name) for found in metadata.distributions()}


def needed_by(name: str, extra: str, python: str) -> set[str]:
    """All that a distribution needs under ``python``, with one extra of it or none.

    The first release of that Python: what any release of it may need is needed.
    """
    marked = {
        "extra": extra,
        "platform_machine": "x86_64",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    found: set[str] = set()
    for wanted in map(Requirement, metadata.requires(name) or ()):
        if wanted.marker is None or wanted.marker.evaluate(marked):
            found.add(normal(wanted.name))
            # What another Python needs is not installed here, and cannot be looked into.
            if normal(wanted.name) in INSTALLED:
                for inner in wanted.extras or {""}:
                    found |= needed_by(wanted.name, inner, python)
    return found


def needed_anywhere(extra: str = "") -> set[str]:
    """What the project needs under the Python of one release of Debian at least."""
    return set().union(*(needed_by("federator", extra, site.python) for site in SITES))


def names(libraries: Iterable[str]) -> set[str]:
    return {normal(name) for name in libraries}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """A wheel and libraries, as small as can be."""
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


def package(name: str, site: SiteLayout, sources: Sources) -> DebContents:
    (found,) = [one for one in deb_contents.contents(site, sources) if one.name == name]
    return found


def test_a_site_brings_all_that_the_project_needs_without_extras() -> None:
    assert names(images.LIBRARIES) == needed_anywhere()


def test_the_daemons_host_brings_what_the_extra_needs_beside_it() -> None:
    wanted = needed_anywhere("daemon") | needed_anywhere("postgresql") | needed_anywhere("web")
    assert names(deb_contents.DAEMON_LIBRARIES) == wanted - needed_anywhere()


def test_the_daemon_reaches_redis_under_the_python_of_every_release() -> None:
    """redis 8 imports async_timeout before Python 3.11.3; bookworm has 3.11.2."""
    (bookworm,) = [site for site in SITES if site.suite == "bookworm"]
    assert "async-timeout" in needed_by("redis", "", bookworm.python)
    assert "async-timeout" in deb_contents.DAEMON_LIBRARIES


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.suite)
def test_no_two_packages_bring_one_file(site: SiteLayout, sources: Sources) -> None:
    paths = [
        path
        for one in deb_contents.contents(site, sources)
        for path in (*(file.path for file in one.files), *(link for link, _ in one.links))
    ]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.suite)
def test_programs_run_apart_from_what_their_user_has_set_up(
    site: SiteLayout, sources: Sources
) -> None:
    common = package("federator-common", site, sources)
    launchers = {file.path: file for file in common.files if "/bin/" in file.path}
    assert launchers["opt/federator/bin/fsinfo"].data.startswith(
        b"#!/opt/federator/bin/python3 -I\n"
    )
    assert launchers["opt/federator/bin/fsinfo"].mode == 0o755
    assert ("usr/bin/fsinfo", "/opt/federator/bin/fsinfo") in common.links
    assert ("opt/federator/bin/python3", f"/usr/bin/python{site.python}") in common.links


def test_the_nodes_package_is_the_same_for_every_release(sources: Sources) -> None:
    made = [package("federator-node", site, sources) for site in SITES]
    assert made[0] == made[1] == made[2]
    assert made[0].version == __version__


def test_a_later_release_of_debian_has_the_higher_version() -> None:
    versions = [deb_contents.version_for(site) for site in SITES]
    assert versions == [f"{__version__}+deb{number}" for number in (12, 13, 14)]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.suite)
def test_no_placeholder_is_left_and_configuration_is_declared_as_such(
    site: SiteLayout, sources: Sources
) -> None:
    for one in deb_contents.contents(site, sources):
        tree = {
            file.path: file.data.decode()
            for file in one.tree(site, "amd64")
            if "/DEBIAN/" in file.path
        }
        assert "@" not in tree[f"{one.name}/DEBIAN/control"].replace("maintainers@", "")
        declared = tree.get(f"{one.name}/DEBIAN/conffiles", "").split()
        assert declared == [f"/{file.path}" for file in one.files if file.path.startswith("etc/")]


def test_a_plugin_fits_one_release_of_slurm_only(sources: Sources) -> None:
    slurm = package("federator-slurm", SITES[0], sources)
    (control,) = [f for f in slurm.tree(SITES[0], "amd64") if f.path.endswith("/control")]
    assert b"plugins (>= 22.05), slurm-wlm-basic-plugins (<< 22.06~)" in control.data


def test_libraries_come_without_their_own_tests(sources: Sources) -> None:
    server = package("federator-server", SITES[0], sources)
    paths = [file.path for file in server.files]
    assert "opt/federator/lib/python3.11/site-packages/daemon/__init__.py" in paths
    assert not [path for path in paths if "/tests/" in path]


def test_the_daemons_host_brings_rules_dashboards_and_what_to_do_about_alerts(
    sources: Sources,
) -> None:
    files = {file.path: file.data for file in package("federator-server", SITES[0], sources).files}
    share, doc = "opt/federator/share", "usr/share/doc/federator-server"
    rules = files[f"{share}/prometheus/federator.rules.yml"].decode()
    assert sorted(path for path in files if path.startswith(f"{share}/grafana/")) == [
        f"{share}/grafana/federator-{name}.json" for name in ("daemon", "fleet", "sites", "tenants")
    ]
    (pages,) = {url.split("#")[0] for url in re.findall(r"runbook_url: (\S+)", rules)}
    assert pages == f"file:///{doc}/alerts.md"
    assert f"{doc}/alerts.md" in files
    assert f"{doc}/metrics.md" in files
