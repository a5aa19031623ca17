"""A new log holds what the sites remember and what the export adds; a daemon starts from it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

from federator.agent.journal import Served
from federator.cli import recover as command
from federator.config import Connect, FederationConfig, load_config
from federator.daemon.own_config import new_federation
from federator.daemon.recover import (
    TRIES,
    WITHOUT_EXPORT_S,
    Recovered,
    ask_all,
    led_empty_store,
    rebuild,
)
from federator.errors import SiteUnavailable, StoreError
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.event import Awarded, EpochBegan, decode_event, encode_event
from federator.model.lifecycle import WorkloadState
from federator.model.message import LaunchAt, Remembered
from federator.model.site_message import Report
from federator.model.site_mode import SiteMode
from federator.model.submission import pack_submission, unpack_submission
from federator.model.tagged import Message
from federator.model.workload import SiteName, WorkloadId
from federator.store.export import write_export
from federator.store.replaying import replay_log
from federator.store.sqlite import SqliteStore
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Hello,
    LaunchOrder,
    Origin,
    RecoverDone,
    RememberedAttempt,
    Welcome,
    to_agent_decoder,
)
from federator.wire.attaching import ATTACHED, door_beside
from federator.wire.client_protocol import BANNER, frame
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_links import FakeChannel, FakeTransport

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
TERM = Served(10, "demo", 3)
BEGAN_S = 1_795_000_000.0  # ids grow with time
CONFIG = """
federation: demo
store: "sqlite://{folder}/queue.db"
socket: daemon.sock
regions: {{west: {{shared: /shared}}}}
sites:
  alpine: {{region: west, command: ["true"], partitions: [gpu]}}
  baker: {{region: west, command: ["true"], partitions: [gpu]}}
tenants:
  vision: {{priority: 3, users: [ada]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> FederationConfig:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return load_config(path)


class Lost:
    """A federation that ran for a while: what its sites remember, and exports of its log."""

    def __init__(self) -> None:
        self.f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 1)}, began_s=BEGAN_S)
        self.ids: list[WorkloadId] = []

    def submit(self, nodes: int = 1) -> WorkloadId:
        id_ = self.f.submit(draft(gang(nodes)), key=f"key-{len(self.ids)}")
        self.ids.append(id_)
        self.f.run_for(1.0)
        return id_

    def export(self) -> list[bytes]:
        return [encode_event(event) for event in self.f.log]

    def told(self) -> dict[SiteName, list[Remembered]]:
        told: dict[SiteName, list[Remembered]] = {ALPINE: [], BAKER: []}
        orders = {c.attempt: c for c in self.f.commands if isinstance(c, LaunchAt)}
        for attempt, order in orders.items():
            reports = self.f.slurm(order.site).reports()
            found = next((r for r in reports if r.attempt == attempt), None)
            told[order.site].append(
                Remembered(
                    attempt=attempt,
                    user=order.workload.user,
                    workload=order.workload,
                    jobs=order.jobs,
                    key=order.key,
                    priority=order.priority,
                    report=found,
                    site_job_id=found.site_job_id if found is not None else 0,
                    void=found is None,
                )
            )
        return told


def states(config: FederationConfig, found: Recovered) -> dict[WorkloadId, WorkloadState]:
    """As a daemon reads them."""
    federation = new_federation(config)
    replay_log(federation, found.records)
    entries = federation.ledger.entries
    return {id_: entry.state for id_, entry in entries.items()}


def test_with_an_export_everything_is_as_it_was(config: FederationConfig) -> None:
    lost = Lost()
    for _ in range(5):
        lost.submit()
    exported = lost.export()
    before = {id_: lost.f.state(id_) for id_ in lost.ids}
    found = rebuild(config, exported, lost.told(), lost.f.clock.now_s, 0)
    assert states(config, found) == before
    assert (found.at_sites, found.pending, found.from_sites, found.ended) == (3, 2, 0, 0)


def test_sites_know_the_log_by_the_export_or_else_by_the_epoch_of_recover(
    config: FederationConfig,
) -> None:
    lost = Lost()
    lost.submit()
    began = lost.f.federation.ledger.log_began
    assert began
    for exported, known in ((lost.export(), began), ([], began + 50)):
        found = rebuild(config, exported, lost.told(), lost.f.clock.now_s + 90.0, began + 50)
        assert found.log_began == known
        federation = new_federation(config)
        replay_log(federation, found.records)
        assert (federation.ledger.log_began, federation.ledger.epoch) == (
            known,
            int(lost.f.clock.now_s) + 90,
        )


def test_what_ran_is_known_without_an_export_and_what_waited_is_not(
    config: FederationConfig,
) -> None:
    lost = Lost()
    for _ in range(5):
        lost.submit()
    found = rebuild(config, [], lost.told(), lost.f.clock.now_s, 0)
    assert set(states(config, found)) == set(lost.ids[:3])
    assert (found.at_sites, found.pending, found.from_sites) == (3, 0, 3)


def test_what_was_launched_or_ended_after_the_export_is_not_run_again(
    config: FederationConfig,
) -> None:
    lost = Lost()
    first, second = lost.submit(2), lost.submit(2)
    exported = lost.export()
    assert lost.f.state(second) is WorkloadState.PENDING
    lost.f.slurm("alpine").end(lost.f.entry(first).attempt_id)
    lost.f.run_for(20.0)
    third = lost.submit()
    assert lost.f.state(second) is WorkloadState.RUNNING
    found = rebuild(config, exported, lost.told(), lost.f.clock.now_s, 0)
    assert states(config, found) == {
        first: WorkloadState.COMPLETED,
        second: WorkloadState.RUNNING,
        third: WorkloadState.RUNNING,
    }
    assert (found.from_sites, found.ended) == (1, 1)


def test_an_order_that_no_site_has_is_given_again_by_the_daemon(config: FederationConfig) -> None:
    """It was awarded in the export, and never arrived."""
    lost = Lost()
    id_ = lost.submit()
    awarded = [r for r in lost.export() if type(decode_event(r)).__name__ != "Changed"]
    found = rebuild(config, awarded, {ALPINE: [], BAKER: []}, lost.f.clock.now_s, 0)
    assert states(config, found) == {id_: WorkloadState.AWARDED}


def test_of_several_attempts_the_last_one_counts(config: FederationConfig) -> None:
    lost = Lost()
    id_ = lost.submit()
    told = lost.told()
    (first,) = told[ALPINE]
    second = replace(first.attempt, attempt=2)
    assert first.report is not None
    told[BAKER].append(replace(first, attempt=second, report=replace(first.report, attempt=second)))
    found = rebuild(config, lost.export(), told, lost.f.clock.now_s, 0)
    assert states(config, found) == {id_: WorkloadState.RUNNING}
    events = [decode_event(record) for record in found.records]
    assert [e.site for e in events if isinstance(e, Awarded)] == ["alpine", "baker"]


def test_a_job_without_an_order_keeps_its_workload_from_starting_elsewhere(
    config: FederationConfig,
) -> None:
    lost = Lost()
    id_ = lost.submit()
    exported = [r for r in lost.export() if type(decode_event(r)).__name__ == "Submitted"]
    (told,) = lost.told()[ALPINE]
    bare = replace(told, workload=None, jobs=())
    forged = replace(bare, user="mallory", attempt=replace(told.attempt, attempt=9))
    for told_of in ({ALPINE: [bare, forged]}, {ALPINE: [bare], BAKER: [forged]}):
        found = rebuild(config, exported, told_of, lost.f.clock.now_s, 0)
        assert states(config, found) == {id_: WorkloadState.RUNNING}
    found = rebuild(config, [], {ALPINE: [bare]}, lost.f.clock.now_s, 0)
    assert found.unknown == (f"{told.attempt} at alpine",)


def test_an_export_that_cannot_be_read_is_refused(config: FederationConfig) -> None:
    with pytest.raises(StoreError, match="record 1"):
        rebuild(config, [b"?"], {}, 0.0, 0)


def test_what_was_over_when_the_export_was_made_does_not_come_back(
    config: FederationConfig,
) -> None:
    """It was refused by a site, and then cancelled, weeks ago: its site knows the first alone."""
    lost = Lost()
    id_ = lost.submit()
    (told,) = lost.told()[ALPINE]
    void = replace(told, void=True, report=None, site_job_id=0)
    later = [encode_event(EpochBegan(at_s=lost.f.clock.now_s + 1.0, epoch=5))]
    found = rebuild(config, later, {ALPINE: [void]}, lost.f.clock.now_s + 2.0, 0)
    assert states(config, found) == {}
    found = rebuild(config, later, {ALPINE: [told]}, lost.f.clock.now_s + 2.0, 0)
    assert states(config, found) == {id_: WorkloadState.RUNNING}
    for now_s, waits in ((100.0, True), (WITHOUT_EXPORT_S + 100.0, False)):
        found = rebuild(config, [], {ALPINE: [void]}, lost.f.clock.now_s + now_s, 0)
        assert bool(states(config, found)) is waits


# ---- the store ----


def test_a_log_that_holds_something_is_not_written_over(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.lead(1)
    store.append([b"x"])
    with pytest.raises(StoreError, match="a daemon leads"):
        led_empty_store(SqliteStore(tmp_path / "queue.db"), 1)
    store.close()
    with pytest.raises(StoreError, match="not empty: move it away"):
        led_empty_store(SqliteStore(tmp_path / "queue.db"), 1)


# ---- asking sites ----


def test_the_agent_of_a_site_in_shadow_mode_hears_of_the_mode(config: FederationConfig) -> None:
    site = config.sites[ALPINE].model_copy(update={"mode": SiteMode.SHADOW})
    shadow = config.model_copy(update={"sites": {**config.sites, ALPINE: site}})

    async def asking() -> object:
        made = FakeChannel()
        answers = ("shadow",)
        made.say(
            Hello(protocol=PROTOCOL_VERSION, site="alpine", slurm_version="", answers=answers),
            RecoverDone(ask_id=1, last=True),
        )
        await ask_all(shadow, [ALPINE], TERM, lambda _: FakeTransport([made]))
        return to_agent_decoder.decode(made.written[0][4:])

    welcome = run_virtual(VirtualClock(), asking())
    assert isinstance(welcome, Welcome)
    assert welcome.mode is SiteMode.SHADOW


def channel(*messages: Message, last_epoch: int = 9) -> FakeChannel:
    made = FakeChannel()
    hello = Hello(protocol=PROTOCOL_VERSION, site="alpine", slurm_version="", last_epoch=last_epoch)
    made.say(hello, *messages)
    return made


def test_a_site_tells_in_parts(config: FederationConfig) -> None:
    lost = Lost()
    lost.submit()
    (told,) = lost.told()[ALPINE]
    assert told.workload is not None
    typed = unpack_submission(told.workload.submission)
    empty = pack_submission(structs.replace(typed, components=(), script="", environment={}))
    order = LaunchOrder(
        attempt=told.attempt,
        user=told.user,
        tenant="vision",
        name="train",
        jobs=told.jobs,
        submission=typed,
        origin=Origin(
            workload=replace(told.workload, submission=empty), key=told.key, priority=told.priority
        ),
    )
    kept = RememberedAttempt(
        attempt=told.attempt,
        user=told.user,
        site_job_id=told.site_job_id,
        order=order,
        report=told.report,
    )
    other = RememberedAttempt(attempt=replace(told.attempt, attempt=7), user="ada", void=True)

    async def asking() -> object:
        made = channel(
            RecoverDone(ask_id=1, kept=(kept,)),
            Report(attempts=()),
            RecoverDone(ask_id=1, kept=(other,)),
            RecoverDone(ask_id=1, last=True),
        )
        answers = await ask_all(config, [ALPINE], TERM, lambda _: FakeTransport([made]))
        assert made.closed
        return answers

    found = asyncio.run(asking())
    assert found == {ALPINE: [told, Remembered(attempt=other.attempt, user="ada", void=True)]}


@pytest.mark.parametrize(
    ("last_epoch", "message", "why"),
    [
        (11, RecoverDone(ask_id=1, last=True), "served epoch 11"),
        (9, RecoverDone(ask_id=1, last=True, detail="slurmctld does not answer"), "slurmctld"),
    ],
)
def test_a_site_that_does_not_tell_stops_everything(
    config: FederationConfig, last_epoch: int, message: Message, why: str
) -> None:
    async def asking() -> None:
        twice = FakeTransport([channel(message, last_epoch=last_epoch) for _ in range(TRIES)])
        await ask_all(config, [ALPINE], TERM, lambda _: twice)

    said = rf"alpine: .*{why}.*Nothing was written.*served epoch 10 now"
    with pytest.raises(SiteUnavailable, match=said):
        run_virtual(VirtualClock(), asking())


def test_a_site_that_dials_is_waited_for_and_asked(
    config: FederationConfig, tmp_path: Path
) -> None:
    entry = config.sites[ALPINE].model_copy(
        update={"connect": Connect.OUTBOUND, "ssh": None, "command": ()}
    )
    dials = config.model_copy(update={"sites": {ALPINE: entry}, "socket": tmp_path / "daemon.sock"})
    door = door_beside(dials.socket)

    async def asking() -> object:
        asked = asyncio.create_task(command.ask_sites(dials, [ALPINE], TERM))
        while not door.exists():
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_unix_connection(door)
        writer.write(b"alpine login1\n")
        assert await reader.readline() == ATTACHED
        hello = Hello(protocol=PROTOCOL_VERSION, site="alpine", slurm_version="")
        said = (frame(hello), frame(RecoverDone(ask_id=1, last=True)))
        writer.writelines((BANNER, *said))
        found = await asked
        writer.close()
        return found

    assert asyncio.run(asyncio.wait_for(asking(), 20.0)) == {ALPINE: []}


# ---- the command ----


@pytest.mark.parametrize(
    ("way", "levels"), [("command: [agent]", []), ("connect: outbound", ["info"])]
)
def test_who_dials_is_told_on_standard_error_and_not_within_the_result(
    way: str, levels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(
        f"federation: demo\nstore: 'memory:'\nregions: {{west: {{shared: /shared}}}}\n"
        f"sites: {{alpine: {{region: west, partitions: [gpu], {way}}}}}\n"
        "tenants: {vision: {quota: {gpus: 8}}}\n"
    )
    said: list[str] = []
    monkeypatch.setattr("federator.cli.services.log_to_stderr", said.append)
    found = rebuild(load_config(path), (), {}, 100.0, 10)
    monkeypatch.setattr(command, "_recovered", lambda *_: found)
    done = CliRunner().invoke(command.recover, ["--config", str(path), "--json"])
    assert json.loads(done.stdout)["pending"] == 0
    assert said == levels


def test_the_command_says_what_it_found(
    config: FederationConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Lost()
    for _ in range(4):
        lost.submit()

    async def answers(*_: object) -> object:
        return lost.told()

    def refused(*_: object) -> None:
        raise StoreError("too many at once")

    monkeypatch.setattr("federator.daemon.recover.ask_all", answers)
    monkeypatch.setattr(SqliteStore, "append", refused)
    with (tmp_path / "queue.jsonl").open("wb") as file:
        write_export(lost.export(), file)
    arguments = [
        "--config",
        str(tmp_path / "federation.yaml"),
        "--export",
        str(tmp_path / "queue.jsonl"),
    ]
    done = CliRunner().invoke(command.recover, [*arguments, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["told"] == {"alpine": 2, "baker": 1}
    assert (found["at_sites"], found["pending"], found["unknown"]) == (3, 1, [])
    store = SqliteStore(tmp_path / "queue.db")
    assert len(list(store.records())) == found["records"]
    federation = new_federation(config)
    replay_log(federation, store.records())
    assert {id_: e.state for id_, e in federation.ledger.entries.items()} == {
        id_: lost.f.state(id_) for id_ in lost.ids
    }


def test_a_bad_export_and_an_unknown_site_are_refused_before_any_site_is_asked(
    tmp_path: Path, config: FederationConfig
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("nonsense\n")
    arguments = ["--config", str(tmp_path / "federation.yaml")]
    done = CliRunner().invoke(command.recover, [*arguments, "--export", str(path)])
    assert f"{path}:1" in str(done.exception)
    done = CliRunner().invoke(command.recover, [*arguments, "--without", "dune"])
    assert "there is no site 'dune'; one of alpine, baker" in str(done.exception)
    assert not list(tmp_path.glob("queue.db*"))
