"""A site goes up a step if its figures allow it, and down always; federation.yaml says where."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from federator.cli import shadow_step
from federator.cli.client import NoAnswer
from federator.cli.shadow_step import step, target_of
from federator.errors import FederatorError, InvalidRequest
from federator.model.site_mode import SiteMode
from federator.sim.importers.local_history import Unseen
from federator.sim.report.bootstrap import Interval
from federator.sim.report.divergence_counts import (
    Divergence,
    DivergenceCount,
    DivergenceReport,
    count_divergences,
)
from federator.sim.report.local_report import (
    LocalReport,
    SiteReport,
    TenantReport,
    UseChange,
    WaitComparison,
)
from federator.sim.report.promotion import RuleFigures, promotion_rules
from federator.wire.client_protocol import ErrorReply, ReloadCall, ReloadReply
from federator.wire.replies import Reply
from federator.wire.status_rows import KeyChange

CONFIG = """\
federation: demo
store: "memory:"
regions: {west: {shared: /shared}}
sites:
  alpine: {region: west, partitions: [gpu], mode: shadow, command: ["true"]}  # keep this
tenants: {bio: {quota: {gpus: 8}}}
"""
NO_DIVERGENCE = count_divergences("ALL", [])
GOOD = RuleFigures(
    watched_s=15 * 86_400.0,
    unwatched_frac=0.001,
    left_out_frac=0.0,
    jobs=500,
    response_error_frac=0.01,
    response_error=Interval(low=-0.002, high=0.015),
    divergences=NO_DIVERGENCE,
    worse=(),
)
NO_CHANGE = UseChange(real_frac=0.0, federated_frac=0.0, real=None, federated=None)


def report(figures: RuleFigures) -> LocalReport:
    nobody = WaitComparison("ALL", 0, 0, None, None, None, worse=False)
    site = SiteReport(
        site="alpine",
        mode="shadow",
        gpus=8,
        jobs=figures.jobs,
        real=None,
        alone=None,
        response_error_frac=figures.response_error_frac,
        response_error=figures.response_error,
        start_error_s=None,
        unseen=Unseen(),
        left_out={},
        rules=promotion_rules(figures),
    )
    divergences = DivergenceReport(figures.divergences, [], [])
    return LocalReport(
        *(1, 0.0, 1.0, "mast", 0, nobody, [], [], NO_CHANGE, NO_CHANGE, [site], [], divergences),
        tenants=[TenantReport("bio", "shadow", figures.jobs, promotion_rules(figures))],
    )


class Desk:
    """A daemon that goes by a file, and refuses what it is made to refuse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending: tuple[KeyChange, ...] = ()
        self.refuses = ""
        self.reloaded: list[str] = []

    def __call__(self, asked: object) -> Reply:
        assert isinstance(asked, ReloadCall)
        if asked.dry_run:
            return ReloadReply(path=str(self.path), changes=self.pending, dry_run=True)
        if self.refuses:
            return ErrorReply(message=self.refuses)
        self.reloaded.append(self.path.read_text())
        change = KeyChange(key="sites.alpine.mode", before="shadow", after="advisory")
        return ReloadReply(path=str(self.path), changes=(change,))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    desk = Desk(path)
    monkeypatch.setattr("federator.cli.shadow_step.call", desk)
    monkeypatch.setattr("federator.cli.reload.call", desk)
    return desk


def figures(monkeypatch: pytest.MonkeyPatch, found: RuleFigures) -> None:
    monkeypatch.setattr(shadow_step, "report_of", lambda *_, **__: report(found))


def run(desk: Desk, *words: str) -> Result:
    return CliRunner().invoke(
        step, ["alpine", *words, "--config", str(desk.path)], catch_exceptions=False
    )


def test_up_where_the_figures_allow_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    figures(monkeypatch, GOOD)
    done = run(desk, "up")
    assert "sites.alpine.mode: shadow -> advisory" in done.stdout
    assert desk.reloaded == [CONFIG.replace("mode: shadow", "mode: advisory")]
    assert desk.path.read_text() == desk.reloaded[0]


def test_a_dry_run_changes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    figures(monkeypatch, GOOD)
    done = run(desk, "up", "--dry-run")
    assert done.stdout == "alpine: shadow -> advisory: nothing is in the way\n"
    assert desk.path.read_text() == CONFIG
    assert desk.reloaded == []


@pytest.mark.parametrize(
    ("to", "found", "said"),
    [
        (
            "up",
            replace(GOOD, jobs=7),
            "alpine stays: for mode advisory jobs: 7, needed: 100 jobs or more",
        ),
        ("up", replace(GOOD, watched_s=86_400.0), "watched: 1.0 days, needed: 14 days or more"),
        ("opt-in", GOOD, "for mode opt-in one step: from shadow, needed: from advisory"),
    ],
)
def test_up_is_refused_with_the_reason_unless_it_is_forced(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, to: str, found: RuleFigures, said: str
) -> None:
    figures(monkeypatch, found)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        run(desk, to)
    assert desk.path.read_text() == CONFIG
    run(desk, to, "--force")
    assert len(desk.reloaded) == 1


def test_divergences_without_a_reason_keep_a_site_below_opt_in(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [
        Divergence("812", "alpine", "bio", 8, 5000.0, "alpine", 3800.0, "Odd", "", "UNKNOWN"),
        Divergence("813", "alpine", "nlp", 2, 5000.0, "", None, "", "FedNotTried", "UNKNOWN"),
    ]
    interval = Interval(low=0.9484, high=0.9964)
    strange = DivergenceCount("alpine", 500, 100, 98, 0.98, interval, {}, examples)
    figures(monkeypatch, replace(GOOD, divergences=strange))
    desk.path.write_text(CONFIG.replace("mode: shadow", "mode: advisory"))
    said = (
        "alpine stays: for mode opt-in divergences: 98 of 100 with a reason (94.8% to 99.6%); "
        "without one: job 812 at alpine (bio, 8 GPUs) would have started 1200 s sooner, Odd; "
        "job 813 at alpine (nlp, 2 GPUs) would never have started, FedNotTried, "
        "needed: 99 % with a reason or more"
    )
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        run(desk, "up")
    enough = msgspec.structs.replace(strange, with_reason=99, with_reason_frac=0.99)
    figures(monkeypatch, replace(GOOD, divergences=enough))
    run(desk, "up")
    assert "mode: opt-in" in desk.reloaded[0]


def test_a_sites_text_does_not_reach_the_terminal_raw(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Divergence("8\x1b[2J", "alpine", "b\nio", 8, 5000.0, "", None, "Odd\r", "", "UNKNOWN")
    strange = DivergenceCount("alpine", 500, 1, 0, 0.0, None, {}, [example])
    figures(monkeypatch, replace(GOOD, divergences=strange, worse=("n\x07lp",)))
    desk.path.write_text(CONFIG.replace("mode: shadow", "mode: opt-in"))
    with pytest.raises(InvalidRequest, match=r"job 8.*Odd.*n.*lp") as refused:
        run(desk, "up")
    assert str(refused.value).isprintable()


def of_tenant(desk: Desk, name: str, *words: str) -> Result:
    return CliRunner().invoke(
        step, [name, *words, "--tenant", "--config", str(desk.path)], catch_exceptions=False
    )


def test_a_tenant_goes_up_by_its_own_figures_and_down_always(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = CONFIG.replace("bio: {quota", "bio: {mode: shadow, quota")
    desk.path.write_text(before)
    figures(monkeypatch, replace(GOOD, jobs=7))
    with pytest.raises(InvalidRequest, match="bio stays: for mode advisory jobs: 7, needed: 100"):
        of_tenant(desk, "bio", "up")
    assert desk.path.read_text() == before
    figures(monkeypatch, GOOD)
    of_tenant(desk, "bio", "up")
    assert desk.reloaded == [before.replace("bio: {mode: shadow", "bio: {mode: advisory")]
    of_tenant(desk, "bio", "shadow")
    assert desk.reloaded[1:] == [before]
    with pytest.raises(InvalidRequest, match="unknown tenant alpine; expected one of bio"):
        of_tenant(desk, "alpine", "up")


def test_a_tenant_none_of_whose_jobs_was_seen_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.path.write_text(CONFIG.replace("bio: {quota", "nlp: {mode: shadow, quota"))
    figures(monkeypatch, GOOD)
    with pytest.raises(InvalidRequest, match="nlp stays: for mode advisory record: none"):
        of_tenant(desk, "nlp", "up")


def test_without_a_record_there_is_no_way_up(desk: Desk) -> None:
    with pytest.raises(InvalidRequest, match=r"record: no history is kept"):
        run(desk, "up")


def test_down_needs_no_figures(desk: Desk) -> None:
    desk.path.write_text(CONFIG.replace("mode: shadow", "mode: enforced"))
    run(desk, "down")
    assert "mode: opt-in" in desk.reloaded[0]


def test_a_reload_that_is_refused_leaves_the_file_as_it_was(desk: Desk) -> None:
    desk.path.write_text(CONFIG.replace("mode: shadow", "mode: opt-in"))
    desk.refuses = "sites.alpine.mode: the log has live workloads at site 'alpine'"
    with pytest.raises(FederatorError, match="live workloads at site 'alpine'"):
        run(desk, "advisory")
    assert "mode: opt-in" in desk.path.read_text()


def test_changes_of_others_in_the_file_are_not_taken_along(desk: Desk) -> None:
    desk.pending = (KeyChange(key="tenants.bio.quota.gpus", before="8", after="9"),)
    with pytest.raises(InvalidRequest, match=r"changes of its own \(tenants\.bio\.quota\.gpus\)"):
        run(desk, "up", "--force")
    assert desk.reloaded == []


def test_another_file_than_the_daemons_is_not_changed(desk: Desk, tmp_path: Path) -> None:
    desk.path = tmp_path / "other.yaml"
    desk.path.write_text(CONFIG)
    ours = tmp_path / "federation.yaml"
    with pytest.raises(InvalidRequest, match=r"the daemon goes by .*other\.yaml"):
        CliRunner().invoke(
            step, ["alpine", "up", "--force", "--config", str(ours)], catch_exceptions=False
        )
    assert ours.read_text() == CONFIG


def test_which_mode_is_meant() -> None:
    assert target_of(SiteMode.ADVISORY, "up") is SiteMode.OPT_IN
    assert target_of(SiteMode.ADVISORY, "shadow") is SiteMode.SHADOW
    for now, to in ((SiteMode.SHADOW, "down"), (SiteMode.ENFORCED, "up")):
        with pytest.raises(InvalidRequest, match=f"no step further {to}"):
            target_of(now, to)
    with pytest.raises(InvalidRequest, match="in mode shadow already"):
        target_of(SiteMode.SHADOW, "shadow")


def test_an_unknown_site_is_refused(desk: Desk) -> None:
    with pytest.raises(InvalidRequest, match="unknown site dune; expected one of alpine"):
        CliRunner().invoke(step, ["dune", "up", "--config", str(desk.path)], catch_exceptions=False)


def test_without_an_answer_the_file_stays_as_the_daemon_may_go_by_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures(monkeypatch, GOOD)

    def unheard(_asked: object) -> Reply:
        raise NoAnswer("no answer within 60 s")

    monkeypatch.setattr("federator.cli.reload.call", unheard)
    with pytest.raises(NoAnswer):
        run(desk, "up")
    assert desk.path.read_text() == CONFIG.replace("mode: shadow", "mode: advisory")
