"""Makes the dashboards for Grafana in packaging/grafana: ``python -m fedbuild.dashboards``.

A panel is a title, a description, a unit and queries; the rest is the same for all. Counters are
wrapped in ``rate`` over Grafana's own interval, and every query is limited to the chosen job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fedbuild.boards import BOARDS
from fedbuild.panels import Board, Panel
from federator.daemon.metrics.catalogue import BY_NAME
from federator.testbed.layout import REPOSITORY

FOLDER: Final = REPOSITORY / "packaging" / "grafana"
SCHEMA: Final = 39  # of Grafana 10.4 and later
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT, _COLUMNS = 8, 24
_METRIC: Final = re.compile(r"\b(federator_\w+|process_\w+)(\{[^}]*\})?")
_SAMPLES: Final = re.compile(r"_(bucket|sum|count)$")


def metrics_in(expr: str) -> set[str]:
    """The metrics that a query or rule names, as the catalogue has them."""
    names = {found[1] for found in _METRIC.finditer(expr)}
    return {name if name in BY_NAME else _SAMPLES.sub("", name) for name in names}


def _of_job(expr: str) -> str:
    """The query, of the chosen job and instance."""

    def limited(found: re.Match[str]) -> str:
        more = (found[2] or "{}")[1:-1]
        chosen = 'job="$job", instance=~"$instance"'
        return f"{found[1]}{{{chosen}{', ' if more else ''}{more}}}"

    return _METRIC.sub(limited, expr)


def _variable(name: str, metric: str, label: str, *, many: bool) -> dict[str, Any]:
    of_job = "" if label == "job" else '{job="$job"}'
    query = f"label_values({metric}{of_job}, {label})"
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # when the time range changes
        "multi": many,
        "includeAll": many,
        "allValue": ".+" if many else None,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if many else {},
        "sort": 1,
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    height = 4 if panel.kind == "stat" else _HEIGHT
    custom = {"stacking": {"mode": "normal" if panel.stacked else "none"}, "fillOpacity": 10}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "gridPos": {"h": height, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom if panel.kind == "timeseries" else {},
            },
            "overrides": [],
        },
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + k),
                "datasource": _DATASOURCE,
                "expr": _of_job(query.expr),
                "legendFormat": query.legend,
            }
            for k, query in enumerate(panel.queries)
        ],
    }


def _laid_out(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + int(found[-1]["gridPos"]["h"])
        found.append(_panel(number, panel, x, y))
        x += panel.width
    return found


def dashboard(board: Board) -> dict[str, Any]:
    """A board as Grafana imports it."""
    variables = [
        {"name": "datasource", "label": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("job", "federator_build_info", "job", many=False),
        _variable("instance", "federator_build_info", "instance", many=True),
    ]
    if board.chosen is not None:
        label, metric = board.chosen
        variables.append(_variable(label, metric, label, many=True))
    return {
        "uid": board.name,
        "title": board.title,
        "tags": ["federator"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "templating": {"list": variables},
        "panels": _laid_out(board.panels),
        "links": [],
    }


def text_of(board: Board) -> str:
    """The file of a board."""
    return json.dumps(dashboard(board), indent=1, ensure_ascii=False) + "\n"


def write(folder: Path = FOLDER) -> None:
    """Write all of them anew."""
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (folder / f"{board.name}.json").write_text(text_of(board), encoding="utf-8")


if __name__ == "__main__":
    write()
