"""The list of components has the shape of CycloneDX 1.6 and says what each library is for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fedbuild import libraries, sbom

from federator import __version__


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sbom.text())
    return found


@pytest.fixture(scope="module")
def components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in document["components"]}


def test_it_says_what_it_is(document: dict[str, Any]) -> None:
    assert (document["bomFormat"], document["specVersion"], document["version"]) == (
        "CycloneDX",
        "1.6",
        1,
    )
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"]
    )
    about = document["metadata"]["component"]
    assert (about["type"], about["name"], about["version"]) == (
        "application",
        "federator",
        __version__,
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["metadata"]["timestamp"])


def test_every_pin_is_a_component_with_name_version_and_address(
    components: dict[str, dict[str, Any]],
) -> None:
    pins = libraries.pinned()
    assert {name: one["version"] for name, one in components.items()} == dict(pins.values())
    for key, (name, version) in pins.items():
        one = components[name]
        assert one["purl"] == one["bom-ref"] == f"pkg:pypi/{key}@{version}"
        assert set(one) <= {
            *("type", "name", "version", "scope", "licenses", "purl", "bom-ref", "properties"),
        }


def test_a_licence_is_an_expression_or_a_name(components: dict[str, dict[str, Any]]) -> None:
    assert components["click"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert components["PyYAML"]["licenses"] == [{"license": {"name": "MIT"}}]
    for one in components.values():
        for licence in one.get("licenses", ()):
            assert set(licence) in ({"expression"}, {"license"})
    unknown = [name for name, one in components.items() if "licenses" not in one]
    assert len(unknown) < 4, unknown  # not installed under this Python, or without a word of it


def test_scopes_tell_what_users_get(components: dict[str, dict[str, Any]]) -> None:
    assert components["click"]["scope"] == "required"
    assert components["numpy"]["scope"] == "optional"
    assert components["pytest"]["scope"] == "excluded"
    assert {one["scope"] for one in components.values()} == {"required", "optional", "excluded"}


def test_the_package_that_brings_a_library_is_named(components: dict[str, dict[str, Any]]) -> None:
    named = {"name": sbom.BUNDLED_IN, "value": "federator-common"}
    assert components["msgspec"]["properties"] == [named]
    assert components["asyncssh"]["properties"] == [{**named, "value": "federator-server"}]
    assert "properties" not in components["pytest"]


def test_dependencies_lead_from_the_project_to_every_component(document: dict[str, Any]) -> None:
    edges = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    seen: set[str] = set()
    to_see = [document["metadata"]["component"]["bom-ref"]]
    while to_see:
        ref = to_see.pop()
        if ref not in seen:
            seen.add(ref)
            to_see += edges[ref]
    assert seen == set(edges)
    assert {one["bom-ref"] for one in document["components"]} < seen


def test_equal_pins_make_equal_bytes() -> None:
    assert sbom.text() == sbom.text()
