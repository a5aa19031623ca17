"""The page over three real clusters: nodes, stories and acts, while the daemon serves."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import BIN, SOON_S, Running, within

pytestmark = pytest.mark.slurm
SLEEPS = "#!/bin/sh\nsleep 300\n"


class Page:
    """``federator web`` beside a daemon, asked as a proxy would."""

    def __init__(self, running: Running) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = running.folder / "web.log"
        self._log = self.log.open("ab")
        self.process = subprocess.Popen(
            [
                str(BIN / "federator"),
                "web",
                f"--config={running.config}",
                f"--listen=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={"PATH": os.environ["PATH"], "HOME": str(running.folder)},
        )

    def get(self, path: str, user: str = "", form: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and body."""
        data = None if form is None else urlencode(form).encode()
        headers = {"X-Remote-User": user} if user else {}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=80) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def act(self, user: str, verb: str, target: object) -> tuple[int, str]:
        _, text = self.get(f"/confirm?verb={verb}&target={target}", user)
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text))
        return self.get("/act", user, fields or {"verb": verb, "target": str(target)})

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._log.close()


@pytest.fixture(scope="module")
def running(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(Path(tmp_path_factory.mktemp("web")))
    settings = yaml.safe_load(made.config.read_text())
    settings["web"] = {
        "account": "root",
        "operators": ["nlp1"],
        "proxies": ["127.0.0.1"],
        "user_header": "X-Remote-User",
    }
    made.config.write_text(yaml.safe_dump(settings))
    yield from lasting(made)


@pytest.fixture
def page(running: Running) -> Iterator[Page]:
    opened = Page(running)
    try:
        try:
            within(30, lambda: opened.get("/healthz")[0] == 200)
        except AssertionError as error:
            said = opened.get("/healthz"), opened.process.poll(), opened.log.read_text()[-2000:]
            raise AssertionError(f"the page is not well: {said}") from error
        yield opened
    finally:
        assert opened.stop() in (0, -signal.SIGTERM)
        running.cancel_all()


def test_the_fleet_shows_every_node_of_three_real_clusters_in_its_rack(page: Page) -> None:
    fleet = page.json("/api/fleet")
    sites = {site["name"]: site for site in fleet["sites"]}
    assert set(sites) == {site.name for site in layout.SITES}
    for site in layout.SITES:
        detail = page.json(f"/api/sites/{site.name}")
        gpus = sum(sum(node["gpus"].values()) for node in detail["nodes"])
        assert gpus == sum(group.count * group.gpus for group in layout.NODE_GROUPS)
        assert any(node["rack"] for node in detail["nodes"])
        assert page.get(f"/sites/{site.name}")[0] == 200


def test_a_job_is_seen_held_on_its_node_and_its_story_told_to_its_end(
    running: Running, page: Page
) -> None:
    id_ = running.submit(SLEEPS, "-N1", "--gres=gpu:8", "-J", "<b>seen</b>")
    row = running.await_state(id_, "RUNNING")

    def held() -> bool:
        nodes = page.json(f"/api/sites/{row['site']}")["nodes"]
        uses = {node["name"]: node["gpus"] for node in nodes}
        use = uses[row["node_names"][0]]
        return bool(use["owner"] + use["guest"] == 8 and use["local"] == 0)

    within(40, held, 0.5)
    story = page.json(f"/api/jobs/{id_}")
    assert [s["site"] for s in story["sites"] if s["taken"]] == [row["site"]]
    assert [a["site_job_id"] for a in story["attempts"]] == [row["site_job_id"]]
    status, text = page.get(f"/jobs/{id_}")
    assert status == 200
    assert "<b>seen" not in text
    assert "&lt;b&gt;seen" in text

    status, text = page.act("bio1", "cancel", id_)  # another user's
    assert status == 409
    assert "belongs to another user" in text
    assert running.row(id_)["state"] == "RUNNING"
    status, text = page.act("vision1", "cancel", id_)
    assert status == 200, text
    running.await_state(id_, "CANCELLED")
    whats = [event["what"].partition(":")[0] for event in _story(page, id_, "CANCELLED")["events"]]
    assert whats[:3] == ["submitted", "awarded", "started"]


def _story(page: Page, id_: int, state: str) -> Any:
    def ended() -> Any:
        story = page.json(f"/api/jobs/{id_}")
        return story if story["job"]["state"] == state else None

    return within(30, ended, 0.5)


def test_an_operator_of_the_page_drains_a_site_and_a_user_may_not(
    running: Running, page: Page
) -> None:
    site = layout.SITES[0].name
    assert page.act("vision1", "drain", site)[0] == 409
    status, text = page.act("nlp1", "drain", site)
    assert status == 200, text
    try:
        drains = {row.name: row.drains for row in running.sites()}[site]
        assert [drain.by for drain in drains] == ["nlp1"]
        within(20, lambda: page.json("/api/operations")["drains"], SOON_S)
    finally:
        assert page.act("nlp1", "resume", site)[0] == 200
    assert not {row.name: row.drains for row in running.sites()}[site]


def test_a_stranger_sees_and_does_nothing_by_a_form(running: Running, page: Page) -> None:
    id_ = running.submit(SLEEPS, "-N1", "--gres=gpu:1")
    running.await_state(id_, "RUNNING")
    assert page.get("/act", "", {"verb": "cancel", "target": str(id_)})[0] == 403
    assert page.get("/act", "vision1", {"verb": "cancel", "target": str(id_)})[0] == 403
    assert running.row(id_)["state"] == "RUNNING"
