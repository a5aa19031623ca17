"""Packages bring what their programs import, and the same paths as an installation by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from fedbuild import libraries, package_contents, rpm_contents
from fedbuild.deb_contents import platform_of
from fedbuild.package_contents import PackageContents, Platform, Sources

from federator.testbed import images
from federator.testbed.layout import SITES


def needed_anywhere(extra: str = "") -> set[str]:
    """What the project needs under the Python of one release of Debian at least."""
    return set(libraries.needed([extra])) - {libraries.PROJECT}


def names(found: Iterable[str]) -> set[str]:
    return set(map(libraries.normal, found))


PLATFORMS = {**{site.suite: platform_of(site) for site in SITES}, "el": rpm_contents.PLATFORM}
any_platform = pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)


def package(name: str, platform: Platform, sources: Sources) -> PackageContents:
    (found,) = [one for one in package_contents.contents(platform, sources) if one.name == name]
    return found


def test_a_site_brings_all_that_the_project_needs_without_extras() -> None:
    assert names(images.LIBRARIES) == needed_anywhere()


def test_the_daemons_host_brings_what_the_extra_needs_beside_it() -> None:
    wanted = needed_anywhere("daemon") | needed_anywhere("postgresql") | needed_anywhere("web")
    assert names(package_contents.DAEMON_LIBRARIES) == wanted - needed_anywhere()


def test_the_daemon_reaches_redis_under_the_python_of_every_release() -> None:
    """redis 8 imports async_timeout before Python 3.11.3; bookworm has 3.11.2."""
    (bookworm,) = [site for site in SITES if site.suite == "bookworm"]
    assert "async-timeout" in libraries.needed(["daemon"], [bookworm.python])["redis"]
    assert "async-timeout" in package_contents.DAEMON_LIBRARIES


@any_platform
def test_no_two_packages_bring_one_file(platform: Platform, sources: Sources) -> None:
    paths = [
        path
        for one in package_contents.contents(platform, sources)
        for path in (*(file.path for file in one.files), *(link for link, _ in one.links))
    ]
    assert len(paths) == len(set(paths))


@any_platform
def test_programs_run_apart_from_what_their_user_has_set_up(
    platform: Platform, sources: Sources
) -> None:
    common = package("federator-common", platform, sources)
    launchers = {file.path: file for file in common.files if "/bin/" in file.path}
    assert launchers["opt/federator/bin/fsinfo"].data.startswith(
        b"#!/opt/federator/bin/python3 -I\n"
    )
    assert launchers["opt/federator/bin/fsinfo"].mode == 0o755
    assert ("usr/bin/fsinfo", "/opt/federator/bin/fsinfo") in common.links
    assert ("opt/federator/bin/python3", f"/usr/bin/python{platform.python}") in common.links


def test_the_nodes_package_is_the_same_for_every_release(sources: Sources) -> None:
    made = [package("federator-node", platform, sources) for platform in PLATFORMS.values()]
    assert all(one == made[0] for one in made)
    assert made[0].portable


def test_libraries_come_without_their_own_tests(sources: Sources) -> None:
    server = package("federator-server", PLATFORMS["bookworm"], sources)
    paths = [file.path for file in server.files]
    assert "opt/federator/lib/python3.11/site-packages/daemon/__init__.py" in paths
    assert not [path for path in paths if "/tests/" in path]


def test_the_daemons_host_brings_rules_dashboards_and_what_to_do_about_alerts(
    sources: Sources,
) -> None:
    files = {
        file.path: file.data
        for file in package("federator-server", PLATFORMS["bookworm"], sources).files
    }
    share, doc = "opt/federator/share", "usr/share/doc/federator-server"
    rules = files[f"{share}/prometheus/federator.rules.yml"].decode()
    assert sorted(path for path in files if path.startswith(f"{share}/grafana/")) == [
        f"{share}/grafana/federator-{name}.json"
        for name in ("daemon", "data", "fleet", "sites", "tenants")
    ]
    (pages,) = {url.split("#")[0] for url in re.findall(r"runbook_url: (\S+)", rules)}
    assert pages == f"file:///{doc}/alerts.md"
    assert f"{doc}/alerts.md" in files
    assert f"{doc}/metrics.md" in files
