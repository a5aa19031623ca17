"""Prometheus's own checker; tests that need it are skipped, visibly, where it is not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from federator.testbed.layout import REPOSITORY

RULES: Final = REPOSITORY / "packaging" / "prometheus" / "federator.rules.yml"
BOARDS: Final = REPOSITORY / "packaging" / "grafana"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], input=stdin, text=True, capture_output=True, check=False
    )


def rules() -> list[dict[str, Any]]:
    """Every recording rule and alert, in order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def outcome_of(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """The outcome of ``promtool test rules``."""
    file = folder / "test.yml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}
    file.write_text(yaml.safe_dump(content))
    return promtool("test", "rules", str(file))
