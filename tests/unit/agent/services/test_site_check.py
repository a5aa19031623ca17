"""What an agent finds out about its site, in virtual time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from federator.agent.base import Probe
from federator.agent.services.probe_jobs import LOOK_EVERY_S, PROBE_S
from federator.agent.services.site_check import settings_found
from federator.model.site import NodeShare, NodeState, SiteJob, SiteJobState
from federator.model.site_message import Report
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import VerifyAsk, VerifyDone
from federator.wire.client_protocol import VERIFY_TAKES_S, Finding, Verdict
from tests.fakes.agent import Daemon, spooled

GOOD = {
    "as of": "1000000",
    "PrivateData": "none",
    "JobRequeue": "1",
    "KillWait": "30 sec",
    "MinJobAge": "300 sec",
    "PrologFlags": "Alloc,DeferBatch",
    "Prolog[0]": "/etc/slurm/prolog.d/*",
    "Epilog[0]": "/etc/slurm/epilog.d/*",
    "SchedulerParameters": "bf_interval=2,nohold_on_prolog_fail",
    "JobSubmitPlugins": "lua",
    "PreemptMode": "REQUEUE",
    "SlurmctldParameters": "preempt_send_user_signal",
    "EnforcePartLimits": "NO",
}
ASK = VerifyAsk(ask_id=1, user="ada", account="vision", nodes=("a1", "a2"))


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return of_good_site(tmp_path)


def of_good_site(folder: Path, n_nodes: int = 4) -> Daemon:
    """Where all is as it should be."""
    daemon = Daemon(folder, n_nodes)
    spooled(daemon).chmod(0o755)
    site = daemon.site
    site.configured, site.is_closed = GOOD | {"as of": str(int(daemon.clock()))}, True
    site.on_probe = ends(SiteJobState.COMPLETED)
    return daemon


def ends(state: SiteJobState, reason: str = "") -> Callable[[Probe, int], SiteJob]:
    def job(probe: Probe, id_: int) -> SiteJob:
        return SiteJob(
            job_id=id_,
            name="fed-verify",
            user="ada",
            account="",
            partition="gpu",
            state=state,
            reason=reason,
            comment=str(probe.attempt),
        )

    return job


def verified(daemon: Daemon, ask: VerifyAsk = ASK) -> dict[str, Finding]:
    """The findings by check; afterwards nothing of the probes may be left."""
    found: list[Finding] = []

    async def script() -> None:
        daemon.tell(ask)
        for _ in range(round(VERIFY_TAKES_S * 2)):
            await asyncio.sleep(1.0)
            if daemon.heard(VerifyDone):
                break
        (done,) = daemon.heard(VerifyDone)
        assert done.ask_id == ask.ask_id
        found.extend(done.findings)

    daemon.serve(script)
    assert not daemon.site.probes
    if daemon.spool and Path(daemon.spool, "leases").exists():
        assert not os.listdir(Path(daemon.spool, "leases"))
        assert not os.listdir(Path(daemon.spool, "tickets"))
    return {finding.check: finding for finding in found}


def verdicts(found: dict[str, Finding], verdict: Verdict) -> set[str]:
    return {check for check, finding in found.items() if finding.verdict is verdict}


def test_a_site_that_is_set_up_as_it_should_be_is_all_ok(daemon: Daemon) -> None:
    found = verified(daemon)
    found.pop("slurm")  # the simulated one is of a release that was never tried
    assert {f.verdict for f in found.values()} == {Verdict.OK}, found
    assert {
        "probe on a1",
        "probe on a2",
        "spool",
        "helper for ada",
        "helper refuses",
        "direct submission to gpu",
        "partition gpu",
        "clock",
    } <= set(found)


def test_a_probe_takes_the_whole_way_of_a_launch_and_is_no_attempt_of_the_federation(
    daemon: Daemon,
) -> None:
    seen: list[str] = []

    def look(which: AttemptId, token: str) -> None:
        if token:
            assert AttemptId.parse(str(which)) is None
            assert f"{which.workload}.{which.attempt}" in os.listdir(Path(daemon.spool, "leases"))
            seen.append(Path(daemon.spool, "tickets", token).read_text())

    daemon.site.on_launch = look
    verified(daemon)
    assert [text.split()[1] for text in seen] == ["ada", "ada"]
    pinned = [p for p in daemon.site.probed if not p.later]
    assert [(p.node, p.gpus) for p in pinned] == [("a1", 8), ("a2", 8)]
    assert {p.account for p in pinned} == {"vision"}
    assert len({p.attempt for p in daemon.site.probed}) == len(daemon.site.probed)
    assert all(not report.attempts for report in daemon.heard(Report))


def test_a_lease_of_a_probe_outlives_the_sweeps_meanwhile(daemon: Daemon) -> None:
    def job(probe: Probe, id_: int) -> SiteJob:
        lease = f"{probe.attempt.workload}.{probe.attempt.attempt}"
        assert lease in os.listdir(Path(daemon.spool, "leases"))
        over = daemon.clock() > 1_000_030.0
        return ends(SiteJobState.COMPLETED if over else SiteJobState.RUNNING)(probe, id_)

    daemon.site.on_probe = job
    assert verified(daemon)["probe on a1"].verdict is Verdict.OK


def test_a_node_that_its_gate_drains_fails_with_the_gates_own_words(daemon: Daemon) -> None:
    why = "fed-gate: nvlink: GPU 3 link 5 is down"

    def job(probe: Probe, id_: int) -> SiteJob:
        daemon.slurm.fail_prolog("a2", why)
        return ends(SiteJobState.CANCELLED)(probe, id_)

    daemon.site.on_probe = job
    finding = verified(daemon)["probe on a2"]
    assert (finding.verdict, finding.detail) == (Verdict.FAIL, f"the node is drained now: {why}")


def test_nodes_that_are_out_already_are_told_with_their_reasons_and_not_tried(
    daemon: Daemon,
) -> None:
    daemon.slurm.fail_prolog("a2", "bad fan")
    found = verified(daemon)
    assert found["probe on a2"].detail == "the node is drained: bad fan"
    assert found["nodes"].verdict is Verdict.WARN
    assert "3 of 4 take jobs; a2 drained (bad fan)" in found["nodes"].detail
    assert not [p for p in daemon.site.probed if p.node == "a2"]


def test_a_node_where_jobs_run_is_left_alone(daemon: Daemon) -> None:
    daemon.slurm.take_locally("a1", NodeShare(gpus=1))
    finding = verified(daemon)["probe on a1"]
    assert (finding.verdict, "busy" in finding.detail) == (Verdict.WARN, True)
    assert "a1" not in {probe.node for probe in daemon.site.probed}


def test_probes_are_looked_at_together_and_not_all_the_time(daemon: Daemon) -> None:
    daemon.site.on_probe = ends(SiteJobState.RUNNING)
    verified(daemon, VerifyAsk(ask_id=1, user="ada", nodes=("a1", "a2", "a3", "a4")))
    assert PROBE_S / LOOK_EVERY_S - 1 <= daemon.site.polls <= PROBE_S / LOOK_EVERY_S + 1


def test_what_is_refused_for_another_reason_may_be_open(daemon: Daemon) -> None:
    daemon.site.no_ticket = "sbatch: error: Invalid account"
    finding = verified(daemon)["direct submission to gpu"]
    assert finding.verdict is Verdict.WARN
    assert "Invalid account" in finding.detail


def test_a_busy_node_proves_nothing_and_is_no_failure(daemon: Daemon) -> None:
    daemon.site.on_probe = ends(SiteJobState.PENDING, "Resources")
    finding = verified(daemon)["probe on a1"]
    assert finding.verdict is Verdict.WARN
    assert f"did not start within {PROBE_S:.0f} s (Resources)" in finding.detail


def test_a_partition_that_takes_what_has_no_ticket_is_a_failure_and_the_job_is_ended(
    daemon: Daemon,
) -> None:
    daemon.site.is_closed = False
    finding = verified(daemon)["direct submission to gpu"]
    assert (finding.verdict, "accepted" in finding.detail) == (Verdict.FAIL, True)
    assert all(probe.later for probe in daemon.site.probed if not probe.ticket)


def test_without_a_spool_an_open_partition_is_what_the_admin_chose(daemon: Daemon) -> None:
    daemon.spool, daemon.site.is_closed = "", False
    found = verified(daemon)
    assert {"spool", "direct submission to gpu"} <= verdicts(found, Verdict.WARN)
    assert "or the site is in mode shadow" in found["spool"].detail  # which uses none
    assert not verdicts(found, Verdict.FAIL)


def test_a_spool_that_others_may_write_is_a_failure(daemon: Daemon) -> None:
    Path(daemon.spool).chmod(0o777)
    assert "others may write" in verified(daemon)["spool"].detail


def test_a_missing_spool_is_a_failure_that_says_where(daemon: Daemon) -> None:
    daemon.spool = str(daemon.folder / "none")
    finding = verified(daemon)["spool"]
    assert finding.verdict is Verdict.FAIL
    assert daemon.spool in finding.detail


def test_an_unknown_user_is_a_failure(daemon: Daemon) -> None:
    found = verified(daemon, VerifyAsk(ask_id=1, user="stranger"))
    assert found["helper for stranger"].verdict is Verdict.FAIL


def test_an_unknown_node_is_a_failure(daemon: Daemon) -> None:
    found = verified(daemon, VerifyAsk(ask_id=1, user="ada", nodes=("b9",)))
    assert found["probe on b9"].verdict is Verdict.FAIL


def test_without_a_user_nothing_is_submitted(daemon: Daemon) -> None:
    found = verified(daemon, VerifyAsk(ask_id=1))
    assert found["helper"].verdict is Verdict.WARN
    assert not daemon.site.probed


def test_with_no_node_named_one_idle_node_is_tried(daemon: Daemon) -> None:
    found = verified(daemon, VerifyAsk(ask_id=1, user="ada"))
    assert found["probe on a1"].verdict is Verdict.OK


def test_a_loose_helper_and_a_partition_that_is_down_are_failures(daemon: Daemon) -> None:
    daemon.site.helper_is_loose, daemon.site.partition_is_up = True, False
    assert {"helper refuses", "partition gpu"} <= verdicts(verified(daemon), Verdict.FAIL)


def test_what_takes_too_long_is_said_with_what_was_found(tmp_path: Path) -> None:
    daemon = of_good_site(tmp_path, 32)
    daemon.site.on_probe = ends(SiteJobState.RUNNING)
    nodes = tuple(f"a{n}" for n in range(1, 33))
    found = verified(daemon, VerifyAsk(ask_id=1, user="ada", nodes=nodes))
    assert found["time"].verdict is Verdict.FAIL
    assert found["spool"].verdict is Verdict.OK
    seen = {check.removeprefix("probe on ") for check in found if check.startswith("probe on ")}
    assert len(seen) == 16
    assert set(found["time"].detail.split(": ")[1].split(",")) == set(nodes) - seen


@pytest.mark.parametrize(
    ("change", "check", "verdict"),
    [
        ({"PrivateData": "jobs,usage"}, "PrivateData", Verdict.FAIL),
        ({"JobRequeue": "0"}, "JobRequeue", Verdict.WARN),
        ({"KillWait": "300 sec"}, "KillWait", Verdict.WARN),
        ({"MinJobAge": "2 sec"}, "MinJobAge", Verdict.WARN),
        ({"PrologFlags": "(null)"}, "PrologFlags", Verdict.FAIL),
        ({"PrologFlags": "Alloc"}, "PrologFlags", Verdict.WARN),
        ({"SchedulerParameters": "(null)"}, "nohold_on_prolog_fail", Verdict.WARN),
        ({"Prolog[0]": "(null)"}, "Prolog", Verdict.WARN),
        ({"Epilog[0]": "(null)"}, "Epilog", Verdict.WARN),
        ({"JobSubmitPlugins": "(null)"}, "JobSubmitPlugins", Verdict.WARN),
        ({"SlurmctldParameters": "(null)"}, "PreemptMode", Verdict.WARN),
        ({"as of": "1000005"}, "clock", Verdict.WARN),
        ({"as of": "1000500"}, "clock", Verdict.FAIL),
        ({"as of": "999995"}, "clock", Verdict.WARN),
        ({"as of": "yesterday"}, "clock", Verdict.WARN),
    ],
)
def test_settings_that_matter_are_told_with_what_to_do(
    change: dict[str, str], check: str, verdict: Verdict
) -> None:
    found = {f.check: f for f in settings_found(GOOD | change, 1_000_000.0, 1_000_000.0)}
    assert found[check].verdict is verdict
    others = {f.verdict for c, f in found.items() if c != check}
    assert others == {Verdict.OK}


@pytest.mark.parametrize(
    ("as_of", "verdict"),
    [
        (999_990, Verdict.WARN),
        (999_999, Verdict.OK),
        (1_000_040, Verdict.OK),
        (1_000_045, Verdict.WARN),
        (1_000_080, Verdict.FAIL),
    ],
)
def test_a_slow_answer_is_no_skew_of_clocks(as_of: int, verdict: Verdict) -> None:
    """slurmctld said when at any moment of the 40 s, in whole seconds."""
    found = settings_found(GOOD | {"as of": str(as_of)}, 1_000_000.5, 1_000_040.5)
    assert {f.check: f.verdict for f in found}["clock"] is verdict


def test_the_first_generation_names_its_prolog_without_a_number() -> None:
    """22.05 has one only."""
    one = {k.removesuffix("[0]"): v for k, v in GOOD.items()}
    assert {f.verdict for f in settings_found(one, 1_000_000.0, 1_000_000.0)} == {Verdict.OK}


def test_words_of_a_site_are_one_printable_line(daemon: Daemon) -> None:
    daemon.slurm.fail_prolog("a2", "bad\nfan\x1b[31m")
    detail = verified(daemon)["nodes"].detail
    assert detail.isprintable()
    assert NodeState.DRAINED.value in detail
