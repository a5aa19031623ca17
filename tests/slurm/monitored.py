"""A real Prometheus that scrapes a daemon and evaluates the shipped alerts, 30 times faster.

Windows and waits of the rules are divided by ``FASTER``, and no longer than ``LONGEST_WINDOW_S``
and ``LONGEST_WAIT_S``. Some thresholds are lowered: no test waits until a history is five minutes
behind.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, within
from tests.unit.monitoring.promtool import RULES

FASTER: Final = 30
LONGEST_WINDOW_S: Final = 60
LONGEST_WAIT_S: Final = 5
SCRAPED_S: Final = 1  # from scrape to scrape
LOWERED: Final = {
    "FederatorLogLong": ("> 2e6", "> 2e4"),
    "FederatorHistoryBehind": ("> 300", "> 3"),
    "FederatorScrapeCostly": ("/ 900 >", "/ 30 >"),  # its window; the test lowers the share
    "FederatorNoPass": ("> 1800", "> 20"),
    "FederatorSiteSweepOld": ("> 120", "> 6"),
    "FederatorQueueStalled": ("[60s]", "[20s]"),  # in which there was no award
    "FederatorOwnersWait": ("> 3600", "> 15"),
    "FederatorSiteJobIdsWentBack": ("< 6 * 3600", "< 60"),
}
_WINDOW: Final = re.compile(r"\[([^\]]+)\]")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def with_metrics(running: Running) -> str:
    """Have a daemon that is not started yet serve its metrics; the address."""
    settings = yaml.safe_load(running.config.read_text())
    address = f"127.0.0.1:{free_port()}"
    settings["metrics"] = {"listen": address}
    for site in settings["sites"].values():
        site["poll_interval_s"] = 1.0
    running.config.write_text(yaml.safe_dump(settings))
    return address


def shortened(text: str, longest_s: int = LONGEST_WINDOW_S) -> str:
    """A duration of Prometheus, divided."""
    seconds = int(text[:-1]) * _UNITS[text[-1]]
    return f"{min(max(1, seconds // FASTER), longest_s)}s"


def faster_rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):

        def window(found: re.Match[str]) -> str:
            return f"[{':'.join(map(shortened, found[1].split(':')))}]"

        rule["expr"] = _WINDOW.sub(window, rule["expr"])
        if "for" in rule:
            rule["for"] = shortened(rule["for"], LONGEST_WAIT_S)
        old, new = LOWERED.get(rule.get("alert", ""), ("", ""))
        assert old in rule["expr"]
        if old:
            rule["expr"] = rule["expr"].replace(old, new)
    return rules


class Prometheus:
    """The process of one, and what it says."""

    def __init__(self, folder: Path, *targets: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._targets = folder / "targets.json"
        self.scrape(*targets)
        self._rules = folder / "rules.yml"
        self._rules.write_text(yaml.safe_dump(faster_rules()))
        settings = {
            "global": {
                "scrape_interval": f"{SCRAPED_S}s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {
                    "job_name": "federator",
                    "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        argv = ["prometheus", f"--config.file={folder}/prometheus.yml", "--log.level=warn"]
        argv += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder)
        within(30, self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return bool(self._get("/-/ready"))
        except OSError:
            return False

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self._url}{path}", timeout=40) as answer:
            said: bytes = answer.read()
            return said

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(80)

    def lower(self, alert: str, old: str, new: str) -> None:
        """Write ``new`` for ``old`` in an alert's rule; those of other alerts keep their waits."""
        rules = yaml.safe_load(self._rules.read_text(encoding="utf-8"))
        (rule,) = (r for g in rules["groups"] for r in g["rules"] if r.get("alert") == alert)
        assert old in rule["expr"]
        rule["expr"] = rule["expr"].replace(old, new)
        self._rules.write_text(yaml.safe_dump(rules))
        self._process.send_signal(signal.SIGHUP)

    def scrape(self, *targets: str) -> None:
        """Scrape these from now on."""
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": targets}]))
        new.rename(self._targets)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        question = urllib.parse.urlencode({"query": query})
        found: dict[str, Any] = json.loads(self._get(f"/api/v1/query?{question}"))
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def value(self, query: str) -> float:
        """Of a query whose result is one sample; NaN while there is none."""
        result = self.ask(query)
        return float(result[0]["value"][1]) if result else float("nan")

    def names(self) -> set[str]:
        found: dict[str, Any] = json.loads(self._get("/api/v1/label/__name__/values"))
        return set(found["data"])

    def firing(self) -> dict[str, set[str]]:
        """The alerts that fire, each with its sites ("" where it has none)."""
        found: dict[str, Any] = json.loads(self._get("/api/v1/alerts"))
        alerts: dict[str, set[str]] = {}
        for each in found["data"]["alerts"]:
            if each["state"] == "firing":
                labels = each["labels"]
                alerts.setdefault(labels["alertname"], set()).add(labels.get("site", ""))
        return alerts

    def has_fired(self, alert: str) -> bool:
        """Whether an alert fired within the last ten minutes."""
        labels = f'alertname="{alert}",alertstate="firing"'
        return bool(self.ask(f"count_over_time(ALERTS{{{labels}}}[10m])"))

    def await_firing(self, alert: str, site: str = "", timeout_s: float = 150) -> None:
        within(timeout_s, lambda: site in self.firing().get(alert, set()), 0.5)

    def await_clear(self, alert: str, timeout_s: float = 240) -> None:
        within(timeout_s, lambda: alert not in self.firing(), 0.5)


class Watched:
    """A daemon, and the Prometheus that scrapes it."""

    def __init__(self, running: Running, address: str, prometheus: Prometheus) -> None:
        self.running, self.address, self.prometheus = running, address, prometheus


def watching(running: Running) -> Iterator[Watched]:
    """Start a daemon, with a Prometheus; leave no trace of them whatever happens meanwhile."""
    address = with_metrics(running)
    for each in lasting(running):
        prometheus = Prometheus(running.folder / "prometheus", address)
        try:
            yield Watched(each, address, prometheus)
        finally:
            prometheus.stop()


def at_once(watched: Watched, *faults: Callable[[Watched], None]) -> None:
    """All of these; what goes wrong with one is raised when all are over."""
    began_s = time.monotonic()

    def one(fault: Callable[[Watched], None]) -> None:
        fault(watched)
        print(f"{fault.__name__}: over after {time.monotonic() - began_s:.0f} s")

    with ThreadPoolExecutor(len(faults)) as pool:
        for over in [pool.submit(one, fault) for fault in faults]:
            over.result()
