"""Lists the libraries of a release as CycloneDX 1.6, which scanners for known weaknesses read.

One list for all that is released: a component's scope says whether it is needed, needed by an extra
of the wheel, or only by developers; a property names the package that brings it. Equal pins and
equal installed libraries give equal bytes.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from fedbuild import libraries
from fedbuild.libraries import FOR_DEVELOPERS, PROJECT, normal
from fedbuild.package_contents import DAEMON_LIBRARIES, RELEASED_AT_S
from federator import __version__
from federator.testbed.images import LIBRARIES

SCHEMA: Final = "http://cyclonedx.org/schema/bom-1.6.schema.json"
BUNDLED_IN: Final = "federator:bundled-in"
"""The property of a component that names the package, Debian's or RPM's, that brings it."""

_LICENCE: Final = "BSD-3-Clause"
_PACKAGES: Final = (("federator-common", LIBRARIES), ("federator-server", DAEMON_LIBRARIES))


def text() -> str:
    """Return the list as a file holds it."""
    return json.dumps(document(), indent=2, sort_keys=True) + "\n"


def document() -> dict[str, Any]:
    """Return the list as a JSON value."""
    pins = libraries.pinned()
    scopes = _scopes()
    graph = libraries.needed(["", *libraries.extras()])
    released = datetime.fromtimestamp(RELEASED_AT_S, UTC)
    found: dict[str, Any] = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": released.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "name": PROJECT,
                "version": __version__,
                "licenses": [{"expression": _LICENCE}],
                **_named(PROJECT, __version__),
            },
        },
        "components": [
            _component(key, *pins[key], scopes.get(key, "excluded")) for key in sorted(pins)
        ],
        "dependencies": [
            _edges(key, version, graph.get(key, set()), pins)
            for key, version in [
                (PROJECT, __version__),
                *((key, pins[key][1]) for key in sorted(pins)),
            ]
        ],
    }
    content = json.dumps(found, sort_keys=True)
    found["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return found


def _component(key: str, name: str, version: str, scope: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "scope": scope,
        **_named(key, version),
    }
    if found := libraries.licence(name):
        declared, is_expression = found
        made["licenses"] = (
            [{"expression": declared}] if is_expression else [{"license": {"name": declared}}]
        )
    bundled = [package for package, names in _PACKAGES if key in map(normal, names)]
    if bundled:
        made["properties"] = [{"name": BUNDLED_IN, "value": package} for package in bundled]
    return made


def _scopes() -> dict[str, str]:
    """The scope of every library but those that are for developers."""
    for_users = libraries.needed(set(libraries.extras()) - FOR_DEVELOPERS)
    return dict.fromkeys(for_users, "optional") | dict.fromkeys(libraries.needed([""]), "required")


def _edges(
    key: str, version: str, needs: set[str], pins: dict[str, tuple[str, str]]
) -> dict[str, Any]:
    known = sorted(_purl(one, pins[one][1]) for one in needs if one in pins)
    return {"ref": _purl(key, version), "dependsOn": known}


def _named(key: str, version: str) -> dict[str, str]:
    return {"bom-ref": _purl(key, version), "purl": _purl(key, version)}


def _purl(key: str, version: str) -> str:
    return f"pkg:pypi/{key}@{version}"
