"""Rules, dashboards and documents name metrics that exist, and all of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fedbuild.boards import BOARDS
from fedbuild.dashboards import FOLDER, dashboard, metrics_in, text_of
from fedbuild.panels import Board

from federator.daemon.metrics.catalogue import BY_NAME, CATALOGUE, MetricType
from federator.daemon.metrics.gauges import standby_metrics
from federator.daemon.metrics.text import MetricsText
from federator.testbed.layout import REPOSITORY
from tests.unit.daemon.metrics.test_counts import lending
from tests.unit.monitoring.promtool import RULES, alerts, needs_promtool, promtool, rules

DOCS = REPOSITORY / "docs"
OF_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def queries(board: Board) -> list[str]:
    return [q["expr"] for panel in dashboard(board)["panels"] for q in panel["targets"]]


# ---- the catalogue ----


@needs_promtool
def test_promtool_finds_nothing_to_say_of_what_a_leader_and_a_standby_serve() -> None:
    leader = lending()
    assert leader.metrics is not None
    for found in (leader.metrics.collect(leader.config), standby_metrics(up_to_date=False)):
        text, _ = MetricsText().of(found, "")
        said = promtool("check", "metrics", stdin=text.decode())
        assert (said.returncode, said.stdout + said.stderr) == (0, "")


@needs_promtool
def test_promtool_would_say_something() -> None:
    bad = "# HELP queue_ms Queue\n# TYPE queue_ms counter\nqueue_ms 1\n"
    assert promtool("check", "metrics", stdin=bad).returncode == 3


def test_names_follow_the_rules_of_prometheus() -> None:
    for spec in CATALOGUE:
        assert re.fullmatch(r"federator_[a-z]+(_[a-z]+)*", spec.name)
        assert spec.name.endswith("_total") == (spec.kind is MetricType.COUNTER), spec.name
        assert bool(spec.buckets) == (spec.kind is MetricType.HISTOGRAM)
        assert list(spec.buckets) == sorted(spec.buckets)
        if spec.kind is MetricType.HISTOGRAM:
            assert spec.name.endswith("_seconds")


def test_the_page_of_metrics_has_every_metric_as_it_is() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*?) \| (.*) \|$", page, re.MULTILINE)
    wanted = [
        (m.name, m.kind.value, ", ".join(f"`{label}`" for label in m.labels), m.about)
        for m in CATALOGUE
    ]
    lines = "\n".join(
        f"| `{n}` | {kind} | {labels} | {about} |" for n, kind, labels, about in wanted
    )
    assert rows == wanted, f"the rows should be:\n{lines}"


# ---- rules ----


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_metrics_that_exist(rule: dict[str, Any]) -> None:
    expr = re.sub(r"\w+:federator_\w+:\w+", "", rule["expr"])
    assert metrics_in(expr) <= set(BY_NAME)
    assert set(re.findall(r"\w+:federator_\w+:\w+", rule["expr"])) <= RECORDED
    assert metrics_in(expr) or rule["expr"] != expr or "up{" in expr


def test_every_alert_has_a_severity_a_summary_and_a_section_of_its_own() -> None:
    page = (DOCS / "alerts.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(alerts())
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        url = rule["annotations"]["runbook_url"]
        assert url == f"file:///usr/share/doc/federator-server/alerts.md#{name.lower()}"
        assert sections[name].startswith(f"*{rule['labels']['severity']}*. "), name
        assert "\n1. " in sections[name], f"{name}: what is to be done?"


def test_every_alert_is_fired_by_a_fault_which_the_page_names() -> None:
    page = (DOCS / "alerts.md").read_text(encoding="utf-8")
    _, _, table = page.partition("## How each was tried")
    assert re.findall(r"^\| (\w+) \| [^|]+ \|$", table, re.MULTILINE)[1:] == list(alerts())
    files = (REPOSITORY / "tests" / "slurm").glob("test_*alerts.py")
    faults = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in alerts() if f'"{name}"' not in faults] == []


# ---- dashboards ----


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_as_its_file_has_it(board: Board) -> None:
    file = FOLDER / f"{board.name}.json"
    assert file.read_text(encoding="utf-8") == text_of(board), "run python -m fedbuild.dashboards"


def test_there_is_no_other_dashboard() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == {board.name for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_names_metrics_that_exist_and_rates_its_counters(board: Board) -> None:
    for expr in queries(board):
        found = metrics_in(expr)
        assert found
        assert found <= set(BY_NAME) | OF_PROCESS, expr
        counters = {name for name in found if name.endswith("_total")}
        counters |= {n for n in found if n in BY_NAME and BY_NAME[n].kind is MetricType.HISTOGRAM}
        assert not counters or "[$__rate_interval]" in expr, expr
        assert expr.count('job="$job"') == len(re.findall(r"\b(?:federator|process)_\w+", expr))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_what_grafanas_linter_asks_for(board: Board) -> None:
    found = json.loads((FOLDER / f"{board.name}.json").read_text())
    variables = {each["name"]: each for each in found["templating"]["list"]}
    assert {"datasource", "job", "instance"} <= set(variables)
    assert all(v["refresh"] == 2 for v in variables.values() if v["type"] == "query")
    assert found["editable"] is False
    for panel in found["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in found["panels"]}
    assert len(places) == len(found["panels"])


@needs_promtool
def test_every_query_of_the_dashboards_is_promql(tmp_path: Any) -> None:
    exprs = [expr for board in BOARDS for expr in queries(board)]
    exprs = [re.sub(r"\$__rate_interval", "5m", expr) for expr in exprs]
    recorded = [{"record": f"q{k}", "expr": expr} for k, expr in enumerate(exprs)]
    file = tmp_path / "queries.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "boards", "rules": recorded}]}))
    said = promtool("check", "rules", str(file))
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_metric_is_on_a_dashboard_or_in_a_rule_or_explains_itself() -> None:
    seen = {name for board in BOARDS for expr in queries(board) for name in metrics_in(expr)}
    seen |= {name for rule in rules() for name in metrics_in(rule["expr"])}
    details = {  # for those who look closer
        "federator_build_info",
        "federator_federation_info",
        "federator_site_info",
        "federator_site_login_node",
        "federator_submissions_total",
        "federator_submissions_refused_total",
        "federator_denied_calls_total",
        "federator_steps_total",
        "federator_partition_gpus_stranded",
        "federator_bid_requests_total",
        "federator_bids_total",
        "federator_launch_seconds",
        "federator_evictions_total",
        "federator_claimed_gpus",
        "federator_claims_made_total",
        "federator_lending_plan_timestamp_seconds",
        "federator_data_plan_timestamp_seconds",
        "federator_data_plan_in_force",
        "federator_data_moved_bytes",
        "federator_data_move_quota_bytes",
    }
    assert set(BY_NAME) - seen == details
