"""``federator capacity replace``: suspect, lost, and a plan to read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from federator.cli import capacity, capacity_plan
from federator.cli.capacity_replace import NodesDown
from federator.errors import FederatorError, InvalidRequest, SiteUnavailable
from federator.model.site import Node, NodeState, Snapshot
from federator.model.workload import SiteName
from federator.wire.agent_protocol import packed
from federator.wire.client_protocol import Call, SnapshotCall, SnapshotReply

WANTS = "partitions:\n  train: {gpus: 16}\nspare: [burst]\n"
CONFIG = """
federation: demo
store: 'memory:'
regions: {north: {shared: /shared}}
sites: {alpine: {region: north, command: [x], partitions: [train, burst]}}
mail: {command: [MAILER]}
"""
HOUR_S = 3600.0


class Site:
    """Nodes of 8 GPUs: n1 and n2 in train, n3 and n4 in burst; the command, hour by hour."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now_s = folder, 1_000_000.0
        self.states: dict[str, NodeState] = {}
        self.reserved: set[str] = set()
        self.reasons: dict[str, str] = {}
        self.partitions = {"n1": "train", "n2": "train", "n3": "burst", "n4": "burst"}
        mailer = folder / "mailer"
        mailer.write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} >>{folder}/mails\n')
        mailer.chmod(0o755)
        (folder / "wants.yaml").write_text(WANTS)
        (folder / "federation.yaml").write_text(CONFIG.replace("MAILER", str(mailer)))
        monkeypatch.setattr(capacity_plan, "call", self.answer)
        monkeypatch.setattr(time, "time", lambda: self.now_s)

    def answer(self, message: Call) -> SnapshotReply:
        assert message == SnapshotCall(site="alpine")
        nodes = tuple(
            Node(
                name=name,
                partitions=(partition,),
                cpus=8,
                gpus=8,
                gpu_type="h100",
                state=self.states.get(name, NodeState.IDLE),
                reserved=name in self.reserved,
                drain_reason=self.reasons.get(name, ""),
            )
            for name, partition in self.partitions.items()
        )
        made = Snapshot(site=SiteName("alpine"), now_s=self.now_s, nodes=nodes)
        return SnapshotReply(snapshot=packed(made))

    def run(self, *, later_h: float = 0.0) -> str:
        """What a run of so much later says."""
        self.now_s += later_h * HOUR_S
        ended = self.result()
        if ended.exception is not None:
            raise ended.exception
        return ended.output

    def fails(self, error: type[FederatorError], says: str) -> None:
        """A run ends so."""
        with pytest.raises(error, match=says):
            self.run()

    def result(self) -> Result:
        words = ["--config", str(self.folder / "federation.yaml"), "--out", str(self.out)]
        words += ["--wants", str(self.folder / "wants.yaml"), "--mail", "ops"]
        return CliRunner().invoke(capacity.capacity, ["replace", *words], standalone_mode=False)

    def loses(self, *names: str) -> str:
        """What the run says by which these have been down for long enough."""
        self.states |= dict.fromkeys(names, NodeState.DOWN)
        self.run()
        return self.run(later_h=4.1)

    @property
    def script(self) -> str:
        return (self.out / "alpine.sh").read_text()

    @property
    def out(self) -> Path:
        return self.folder / "plan"

    @property
    def mails(self) -> str:
        path = self.folder / "mails"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_a_node_is_suspect_then_lost_and_a_plan_to_read_replaces_it(site: Site) -> None:
    assert site.run() == "every node of the partitions takes jobs\n"
    site.states["n2"] = NodeState.DOWN
    assert site.run() == "without jobs: alpine:n2 for 0.0 h; none of them lost so far\n"
    assert "alpine:n2 for 3.9 h; none of them lost" in site.run(later_h=3.9)
    assert (site.mails, list(site.out.glob("*.sh"))) == ("", [])
    said = site.run(later_h=0.2)
    assert "alpine:n2 for 4.1 h; 1 node of them lost" in said
    assert "alpine:n3: spare > train: train has 8 of 16 GPUs" in said
    assert "put train 'n[1-2]' 'n[1-3]'" in site.script
    assert "-s Federator demo: 1 node of partitions without jobs ops" in site.mails
    assert "Nodes that take no jobs: alpine:n2" in site.mails
    assert "alpine:n3: spare > train" in site.mails


def test_each_loss_is_told_once_and_again_if_it_was_well_between(site: Site) -> None:
    site.states["n2"] = NodeState.DRAINED
    site.run()
    site.run(later_h=5)
    told = site.mails
    assert "alpine:n2" in told
    site.run(later_h=5)
    assert site.mails == told
    del site.states["n2"]
    site.run(later_h=1)
    site.states["n2"] = NodeState.DOWN
    site.run(later_h=1)
    site.run(later_h=5)
    assert site.mails.count("Nodes that take no jobs: alpine:n2") == 2


def test_that_nothing_spare_is_left_is_mailed_too_and_once(site: Site) -> None:
    site.states |= dict.fromkeys(("n2", "n3", "n4"), NodeState.DOWN)
    site.run()
    site.now_s += 4 * HOUR_S
    site.fails(InvalidRequest, "no plan: train lacks 8 GPUs")
    assert "no plan: train lacks 8 GPUs" in site.mails
    told = site.mails
    site.fails(InvalidRequest, "no plan: train lacks 8 GPUs")
    assert site.mails == told


def test_a_loss_for_which_no_spare_was_there_is_planned_for_once_there_is_one(site: Site) -> None:
    site.states |= dict.fromkeys(("n2", "n3", "n4"), NodeState.DOWN)
    site.run()
    site.now_s += 4 * HOUR_S
    site.fails(InvalidRequest, "no plan")
    del site.states["n3"]
    assert "alpine:n3: spare > train" in site.run(later_h=1)
    assert "put train 'n[1-2]' 'n[1-3]'" in site.script
    assert site.mails.count("alpine:n3: spare > train") == 1
    assert "so far" in site.run(later_h=1)
    assert site.mails.count("alpine:n3: spare > train") == 1


def test_a_spare_of_the_plan_that_is_lost_before_it_moves_is_replaced(site: Site) -> None:
    site.loses("n2")
    assert "alpine:n3: spare > train" in site.mails
    said = site.loses("n3")
    assert "2 nodes of them lost" in said
    assert "alpine:n4: spare > train" in said
    assert "alpine:n4: spare > train" in site.mails


@pytest.mark.parametrize("suspect", [True, False])
def test_a_plan_replaces_neither_what_is_suspect_nor_what_is_reserved(
    site: Site, suspect: bool
) -> None:
    site.states["n2"] = NodeState.DOWN
    site.run()
    if suspect:
        site.states["n1"] = NodeState.DOWN
    else:
        site.reserved = {"n1"}
    said = site.run(later_h=5)
    assert "1 node of them lost" in said
    assert "train has 8 of 16 GPUs" in said
    assert "1 move, 0 of them out of a partition" in said


def test_what_is_suspect_or_reserved_is_not_given_away(site: Site) -> None:
    site.partitions = {"n1": "train", "n2": "train", "n5": "dev", "n6": "dev"}
    wants = "partitions:\n  train: {gpus: 16}\n  dev: {gpus: 8}\nspare: [burst]\n"
    (site.folder / "wants.yaml").write_text(wants)
    site.reserved = {"n5"}
    assert "alpine:n6: dev > train" in site.loses("n2")
    site.reserved = {"n5", "n6"}
    del site.states["n2"]
    site.run(later_h=1)
    with pytest.raises(InvalidRequest, match="no plan"):
        site.loses("n2")


def test_a_node_that_a_script_empties_is_not_lost_and_may_be_planned_again(site: Site) -> None:
    site.loses("n2")
    told = site.mails
    assert "'capacity plan: to train'" in site.script
    site.reasons["n3"] = site.reasons["n1"] = "capacity plan: to train"
    site.states |= dict.fromkeys(("n1", "n3"), NodeState.DRAINED)
    assert "without jobs: alpine:n2 for" in site.run(later_h=1)
    site.run(later_h=9)
    assert site.mails == told
    site.reasons["n1"] = "fan"
    site.run(later_h=1)
    said = site.run(later_h=5)
    assert "alpine:n3: spare > train" in said
    assert "alpine:n4: spare > train" in said


def test_scripts_of_an_earlier_plan_do_not_stay_beside_the_new_one(site: Site) -> None:
    (site.folder / "wants.yaml").write_text(WANTS.replace("16", "8"))
    site.out.mkdir()
    for name in ("alpine.sh", "notes.sh"):
        (site.out / name).write_text("earlier")
    assert "nothing to move" in site.loses("n2")
    assert sorted(path.name for path in site.out.iterdir()) == ["down.json", "notes.sh"]


def test_a_file_of_an_earlier_build_is_read(site: Site) -> None:
    site.out.mkdir()
    seen = {"since_s": {"alpine:n2": 0.0}, "proposed": ["alpine:n2"]}
    (site.out / "down.json").write_text(json.dumps(seen))
    site.states["n2"] = NodeState.DOWN
    assert "1 node of them lost" in site.run()
    assert site.mails == ""


def test_a_spare_or_a_reserved_node_is_not_suspect(site: Site) -> None:
    site.states |= {"n1": NodeState.DRAINED, "n4": NodeState.DOWN}
    site.reserved = {"n1"}
    assert site.run() == "every node of the partitions takes jobs\n"


def test_a_mail_that_was_not_sent_is_sent_by_the_next_run(site: Site) -> None:
    site.states["n2"] = NodeState.DOWN
    site.run()
    mailer = (site.folder / "mailer").read_text()
    (site.folder / "mailer").write_text("#!/bin/sh\nexit 1\n")
    site.now_s += 4 * HOUR_S
    site.fails(SiteUnavailable, "mail: 0 of 1 sent")
    assert json.loads((site.out / "down.json").read_text())["proposed"] == []
    (site.folder / "mailer").write_text(mailer)
    site.run(later_h=1)
    assert "alpine:n2" in site.mails


@pytest.mark.parametrize("text", ["", "[]", '{"since_s": {"a": "b"}}', '{"other": 1}', "\x00"])
def test_a_file_that_makes_no_sense_is_one_line(site: Site, text: str) -> None:
    site.out.mkdir()
    (site.out / "down.json").write_text(text)
    said = str(site.result().exception)
    assert "down.json" in said
    assert "\n" not in said


def test_a_clock_that_goes_back_confirms_nothing_too_early() -> None:
    seen = NodesDown({"alpine:n1": 5000.0}).after({"alpine:n1"}, 1000.0)
    assert seen.confirmed(1000.0 + HOUR_S, 2) == ()
    assert seen.confirmed(1000.0 + 2 * HOUR_S, 2) == ("alpine:n1",)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=NodesDown) == seen
