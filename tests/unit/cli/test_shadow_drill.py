"""A drill leaves a site, looks whether all is gone, comes back, and is known to the rules."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, event

from federator.audit.acts import act_of
from federator.audit.file import AuditFile
from federator.cli import shadow_drill
from federator.cli.client import NoAnswer
from federator.cli.shadow_drill import SURE_S, drill
from federator.cli.shadow_record import leave_rules
from federator.config import load_config
from federator.errors import AuditError, FederatorError, InvalidRequest, SiteUnavailable
from federator.history import schema
from federator.history.database import open_reader, open_writer, transaction
from federator.history.local_jobs import LocalBatch, note_watched, put
from federator.model.drain import LeaveDrill
from federator.model.event import SiteResumed
from federator.model.local_record import LocalRecord
from federator.model.workload import SiteName
from federator.wire.client_protocol import (
    DrainCall,
    DrainReply,
    ErrorReply,
    ReloadCall,
    ReloadReply,
    ResumeCall,
    SiteRow,
    StatusCall,
    StatusReply,
)
from federator.wire.replies import Reply
from federator.wire.status_rows import BudgetRow, DrainRow

CONFIG = """\
federation: demo
store: "sqlite://{folder}/queue.db"
regions: {{west: {{shared: /shared}}}}
sites:
  alpine: {{region: west, partitions: [gpu], mode: {mode}, command: ["true"]}}  # keep this
tenants: {{bio: {{quota: {{gpus: 8}}}}}}
"""
ALPINE = SiteName("alpine")
NOW_S = 1_795_000_000.0


class Clock:
    """Stands for ``time``; to sleep takes no time but its own."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s


class World:
    """A daemon with one site, where some workloads run that leave one a second."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.clock = Clock()
        self.path = folder / "federation.yaml"
        self.path.write_text(CONFIG.format(folder=folder, mode=mode))
        self.text = self.path.read_text()
        self.audit = AuditFile(folder / "queue-audit")
        self.audit.open(NOW_S)
        self.history = open_writer(f"sqlite://{folder}/queue-history.db")
        with transaction(self.history) as connection:
            schema.prepare(connection)
        self.modes = [mode]
        self.left, self.stay, self.not_requeued = 3, False, 0
        self.drains: tuple[DrainRow, ...] = ()
        self.in_queue: list[int] = []  # jobs of the federation that a look shows
        self.up, self.comes_up, self.takes_drills = True, True, True
        self.refuses_mode = ""
        self.asked: list[object] = []
        self.in_shadow: Callable[[], object] = lambda: None  # what others do then
        self.on_way_back: Callable[[], object] = lambda: None

    def __call__(self, asked: object) -> Reply:
        if not isinstance(asked, StatusCall):
            self.asked.append(asked)
        answers: dict[type, Callable[[object], Reply]] = {
            StatusCall: lambda _: self._status(),
            ReloadCall: self._reload,
            DrainCall: self._drain,
            ResumeCall: self._resume,
        }
        return answers[type(asked)](asked)

    def _status(self) -> Reply:
        if self.drains and not self.drains[0].cordon and not self.stay:
            self.left = max(0, self.left - 1)
        self.up = self.up or self.comes_up
        if self.up and self.modes[-1] == "shadow":
            self._look()
        rows = tuple(DrainRow(reason=d.reason, left=self.left) for d in self.drains)
        row = SiteRow(name="alpine", region="west", up=self.up, mode=self.modes[-1], drains=rows)
        return StatusReply(
            federation="demo",
            now_s=self.clock.now_s,
            policy="mast",
            epoch=1,
            sites=(row,),
            queue={},
            budget=BudgetRow(window_s=600.0),
        )

    def _look(self) -> None:
        """What the agent sees is written, and then a note that it looks."""
        seen = tuple(
            LocalRecord(
                job_id=job_id,
                shown=str(job_id),
                user="ada",
                account="bio",
                partition="gpu",
                state="RUNNING",
                submitted_at_s=NOW_S,
                federated=job_id < 100,
            )
            for job_id in (*self.in_queue, 100)
        )
        put(self.history, [LocalBatch(ALPINE, self.clock.now_s, seen, complete=True)])
        note_watched(self.history, {ALPINE: None}, self.clock.now_s + SURE_S)

    def _reload(self, asked: object) -> Reply:
        assert isinstance(asked, ReloadCall)
        if asked.dry_run:
            return ReloadReply(path=str(self.path), dry_run=True)
        mode = load_config(self.path).sites[ALPINE].mode.value
        if mode == self.refuses_mode:
            return ErrorReply(message="sites.alpine.mode: live workloads")
        self.modes.append(mode)
        self.up = False
        if mode == "shadow":
            self.in_shadow()
        elif "shadow" in self.modes:
            self.on_way_back()
        return ReloadReply(path=str(self.path))

    def _drain(self, asked: object) -> Reply:
        assert isinstance(asked, DrainCall)
        self.drains = (DrainRow(reason=asked.reason, cordon=asked.cordon),)
        return DrainReply(
            site="alpine",
            running=max(0, self.left - 1),
            withdrawn=int(self.left > 0),
            not_requeued=self.not_requeued,
        )

    def _resume(self, asked: object) -> Reply:
        assert isinstance(asked, ResumeCall)
        self.drains = ()
        given = asked.drill if self.takes_drills else None
        act = act_of(SiteResumed(at_s=self.clock.now_s, site=ALPINE, by="root", drill=given), 1)
        assert act is not None
        self.audit.append([act], None)
        return DrainReply(site="alpine")

    @property
    def drills(self) -> list[LeaveDrill | None]:
        return [each.drill for each in self.asked if isinstance(each, ResumeCall)]

    def rule(self) -> str:
        rule = leave_rules(load_config(self.path), [ALPINE], self.clock.now_s)[ALPINE]
        return f"{'holds' if rule.holds else 'UNSURE' if rule.unsure else 'FAILS'}: {rule.value}"

    def is_as_before(self) -> bool:
        return self.path.read_text() == self.text and not self.drains


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], World]:
    def make(mode: str) -> World:
        world = World(tmp_path, mode)
        for module in ("shadow_drill", "shadow_step", "reload"):
            monkeypatch.setattr(f"federator.cli.{module}.call", world)
        monkeypatch.setattr(shadow_drill, "time", world.clock)
        return world

    return make


@pytest.fixture
def world(made: Callable[[str], World]) -> World:
    return made("opt-in")


def run(world: World, *words: str) -> Result:
    argv = ["alpine", "--config", str(world.path), *words]
    return CliRunner().invoke(drill, argv, catch_exceptions=False)


def test_a_drill_leaves_comes_back_and_is_known_to_the_rules(world: World) -> None:
    assert world.rule() == "UNSURE: none in 90 days"
    done = run(world)
    assert done.exit_code == 0
    first, *_, last = done.stdout.splitlines()
    assert first == "0 s: drained, with 2 workloads running and 1 about to start"
    said = "holds: leave drill: 2 s (workloads there: 3), on 2026-11-18; needed: 300 s or less"
    assert last == f"alpine {said}, with nothing left there"
    cordon, drain = (each for each in world.asked if isinstance(each, DrainCall))
    assert (cordon.reason, cordon.cordon, cordon.deadline_s) == ("leave drill", True, 0.0)
    assert (drain.reason, drain.cordon, drain.deadline_s) == ("leave drill", False, NOW_S + 240)
    assert world.modes == ["opt-in", "shadow", "opt-in"]
    assert world.is_as_before()
    assert world.rule() == "holds: 2 s (workloads there: 3), on 2026-11-18"


def test_from_enforced_the_limits_are_taken_out_of_the_admission_rules_first(
    made: Callable[[str], World],
) -> None:
    world = made("enforced")
    assert run(world).exit_code == 0
    assert world.modes == ["enforced", "opt-in", "shadow", "enforced"]
    kinds = [type(each) for each in world.asked if getattr(each, "dry_run", False) is False]
    assert kinds == [ReloadCall, DrainCall, DrainCall, ReloadCall, ReloadCall, ResumeCall]
    assert world.is_as_before()


def test_what_stays_there_is_said_and_noted_and_the_last_drill_counts(world: World) -> None:
    run(world)
    world.left, world.stay = 3, True
    done = run(world, "--deadline", "now+3minutes")
    assert done.exit_code == 1
    said = "240 s (workloads there: 3), on 2026-11-18; 3 workloads were there still"
    assert f"alpine FAILS: leave drill: {said}" in done.stdout
    assert world.rule() == f"FAILS: {said}"
    assert world.is_as_before()


def test_no_look_at_the_queue_leaves_a_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Engine] = []
    disposed: list[Engine] = []

    def reader(url: str) -> Engine:
        made.append(open_reader(url))
        event.listen(made[-1], "engine_disposed", disposed.append)
        return made[-1]

    monkeypatch.setattr("federator.history.database.open_reader", reader)
    assert run(world).exit_code == 0
    assert made == disposed != []


def test_a_drill_that_takes_too_long_fails(world: World) -> None:
    world.left = 400
    done = run(world, "--deadline", "now+10minutes")
    assert done.exit_code == 1
    assert world.rule() == "FAILS: 399 s (workloads there: 400), on 2026-11-18"


def test_a_job_of_ours_in_the_sites_own_queue_is_seen(world: World) -> None:
    world.in_queue = [7, 8]
    assert run(world).exit_code == 1
    assert world.rule().endswith("; jobs of the federation in its queue: 7, 8")
    assert world.is_as_before()


def test_a_site_that_does_not_come_up_was_not_seen_left(world: World) -> None:
    world.comes_up = False
    assert run(world).exit_code == 1
    assert world.rule().endswith("; the site did not come up again in mode shadow")


def test_work_that_may_not_be_requeued_is_not_cancelled_unasked(world: World) -> None:
    world.not_requeued = 2
    with pytest.raises(InvalidRequest, match=r"2 workloads at alpine may not be requeued, and"):
        run(world)
    assert world.drills == [None]
    assert world.is_as_before()
    assert all(each.cordon for each in world.asked if isinstance(each, DrainCall))
    assert run(world, "--cancel").exit_code == 0


def test_of_an_empty_site_a_drill_would_show_nothing(world: World) -> None:
    """The drill before it counts on."""
    run(world)
    known = world.rule()
    world.left = 0
    with pytest.raises(InvalidRequest, match="no workload of the federation is at alpine: a drill"):
        run(world)
    assert world.rule() == known
    assert world.is_as_before()
    assert world.modes == ["opt-in", "shadow", "opt-in"]


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("cordon", [True, False])
def test_a_drain_without_answer_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, cordon: bool, is_taken: bool
) -> None:
    """It may stand: the daemon went away after it was in the log."""

    def away(asked: object) -> Reply:
        if not isinstance(asked, DrainCall) or asked.cordon is not cordon:
            return world(asked)
        if is_taken:
            world(asked)
        raise NoAnswer("the daemon went away")

    monkeypatch.setattr("federator.cli.shadow_drill.call", away)
    with pytest.raises(NoAnswer, match=r"^the daemon went away$"):
        run(world)
    assert world.is_as_before()


def test_a_drain_of_others_is_not_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It began between the look at the site and the drill's own, which is refused."""

    def refused(asked: object) -> Reply:
        if isinstance(asked, DrainCall):
            return ErrorReply(message="alpine is drained already")
        return world(asked)

    monkeypatch.setattr("federator.cli.shadow_drill.call", refused)
    with pytest.raises(FederatorError, match=r"^alpine is drained already$"):
        run(world)
    assert world.drills == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_drill_that_a_signal_ends_comes_back(world: World, number: signal.Signals) -> None:
    """A second one, on the way back, ends nothing."""
    before = signal.getsignal(number)
    world.in_shadow = lambda: signal.raise_signal(number)
    world.on_way_back = world.in_shadow
    assert run(world).exit_code == 128 + number
    assert world.is_as_before()
    assert world.drills == [None]
    assert signal.getsignal(number) == before


def test_a_drain_that_others_end_meanwhile_is_no_drill(world: World) -> None:
    world.in_shadow = lambda: setattr(world, "drains", ())
    with pytest.raises(FederatorError, match="ended by others meanwhile: the drill is not noted"):
        run(world)
    assert world.is_as_before()


def test_where_the_mode_is_refused_the_site_is_as_before_and_no_drill_is_noted(
    world: World,
) -> None:
    world.refuses_mode = "shadow"
    with pytest.raises(FederatorError, match="live workloads"):
        run(world)
    assert world.drills == [None]
    assert world.is_as_before()
    assert world.rule() == "UNSURE: none in 90 days"


def test_what_others_change_in_the_file_meanwhile_stays(world: World) -> None:
    """Such as a quota, or the mode of a site of which another drill comes back."""
    world.path.write_text(world.text.replace("8}", "8, cpus: 1}"))

    def edited() -> None:
        world.path.write_text(world.path.read_text().replace("cpus: 1", "cpus: 64"))

    world.in_shadow = edited
    assert run(world).exit_code == 0
    assert world.path.read_text() == world.text.replace("8}", "8, cpus: 64}")
    assert world.modes == ["opt-in", "shadow", "opt-in"]


def test_the_file_is_that_by_which_the_daemon_goes_when_the_drill_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reloaded(asked: object) -> Reply:
        if isinstance(asked, ReloadCall) and asked.dry_run:
            world.path.write_text(world.text.replace("keep this", "kept"))
        return world(asked)

    monkeypatch.setattr("federator.cli.shadow_step.call", reloaded)
    assert run(world).exit_code == 0
    assert "# kept" in world.path.read_text()


def test_a_file_that_is_being_written_is_left_and_said(world: World) -> None:
    world.in_shadow = lambda: world.path.write_text("sites: {alpine")
    with pytest.raises(FederatorError, match=r"not as it was before: have .* say mode: opt-in"):
        run(world)
    assert world.path.read_text() == "sites: {alpine"


def test_what_cannot_be_put_back_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(asked: object) -> Reply:
        if isinstance(asked, ResumeCall):
            raise SiteUnavailable("the daemon is away")
        return world(asked)

    monkeypatch.setattr("federator.cli.shadow_drill.call", away)
    said = r"the daemon is away\nalpine is not as it was before: have .* say mode: opt-in there"
    with pytest.raises(FederatorError, match=said):
        run(world)


def test_a_daemon_that_does_not_know_of_drills_is_noticed(world: World) -> None:
    world.takes_drills = False
    with pytest.raises(AuditError, match="does not tell of the drill: the daemon is of an earlier"):
        run(world)


@pytest.mark.parametrize("mode", ["shadow", "advisory"])
def test_where_nothing_is_done_there_is_nothing_to_leave(
    made: Callable[[str], World], mode: str
) -> None:
    world = made(mode)
    with pytest.raises(InvalidRequest, match=f"alpine is in mode {mode}: the federation has noth"):
        run(world)
    assert world.asked == []


@pytest.mark.parametrize("key", ["audit: {dir: none}", 'history: {url: "none"}'])
def test_a_drill_that_nobody_would_know_of_is_refused(world: World, key: str) -> None:
    world.path.write_text(f"{world.text}{key}\n")
    with pytest.raises(InvalidRequest, match=r"drill went: (audit.dir|history.url) says none"):
        run(world)
    if "audit" in key:
        assert world.rule() == "UNSURE: not known, as no audit is kept (audit.dir)"


def test_a_site_that_is_away_or_drained_is_left_alone(world: World) -> None:
    world.drains = (DrainRow(reason="fans", cordon=True),)
    with pytest.raises(InvalidRequest, match="alpine is drained or cordoned already"):
        run(world)
    world.drains, world.up, world.comes_up = (), False, False
    with pytest.raises(InvalidRequest, match="site alpine is not connected"):
        run(world)
    assert not any(isinstance(each, DrainCall) for each in world.asked)
