"""What Debian wants of a package beside its files: versions, control data, declared settings."""

from __future__ import annotations

import pytest
from fedbuild import deb_contents, package_contents
from fedbuild.package_contents import PackageContents, Sources

from federator import __version__
from federator.testbed.layout import SITES, SiteLayout


def packages(site: SiteLayout, sources: Sources) -> list[PackageContents]:
    return package_contents.contents(deb_contents.platform_of(site), sources)


def test_a_later_release_of_debian_has_the_higher_version() -> None:
    versions = [deb_contents.version_for(site) for site in SITES]
    assert versions == [f"{__version__}+deb{number}" for number in (12, 13, 14)]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.suite)
def test_no_placeholder_is_left_and_configuration_is_declared_as_such(
    site: SiteLayout, sources: Sources
) -> None:
    for one in packages(site, sources):
        tree = {
            file.path: file.data.decode()
            for file in deb_contents.tree(one, site, "amd64")
            if "/DEBIAN/" in file.path
        }
        assert "@" not in tree[f"{one.name}/DEBIAN/control"].replace("maintainers@", "")
        declared = tree.get(f"{one.name}/DEBIAN/conffiles", "").split()
        assert declared == [f"/{file.path}" for file in one.files if file.path.startswith("etc/")]


def test_a_plugin_fits_one_release_of_slurm_only(sources: Sources) -> None:
    (slurm,) = [one for one in packages(SITES[0], sources) if one.spank]
    (control,) = [
        f for f in deb_contents.tree(slurm, SITES[0], "amd64") if f.path.endswith("/control")
    ]
    assert b"plugins (>= 22.05), slurm-wlm-basic-plugins (<< 22.06~)" in control.data
