"""The public CI runs every tier of ./test, and may write nothing."""

from __future__ import annotations

import re
from typing import Any

import yaml

from federator.testbed.layout import REPOSITORY

# fast is a part of unit, all is all of them, bench asserts nothing, explore runs at night.
ELSEWHERE = {"fast", "all", "bench", "explore"}


def workflow() -> dict[str, Any]:
    text = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_every_tier_runs() -> None:
    usage = (REPOSITORY / "test").read_text(encoding="utf-8")
    (tiers,) = re.findall(r"usage: \./test \[([a-z |]+)\]", usage)
    run = set(workflow()["jobs"]["ubuntu"]["strategy"]["matrix"]["tier"])
    assert run == set(tiers.split(" | ")) - ELSEWHERE


def test_laws_are_explored_every_night() -> None:
    explore = workflow()["jobs"]["explore"]
    assert explore["if"] == "github.event_name == 'schedule'"
    assert explore["steps"][-1] == {"run": "./test explore"}


def test_it_may_only_read() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
