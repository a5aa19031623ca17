"""Drafts of submissions: which licences are the federation's own."""

from __future__ import annotations

from federator.config import FederationConfig
from federator.model.lifecycle import WorkloadState
from federator.sched.state.rules import Rules
from federator.slurm.options.license_option import INVALID
from federator.wire import replies
from federator.wire.client_protocol import ControlCall, SitesCall, SitesReply
from federator.wire.status_rows import LicenseRow
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import CONFIG, Desk, submit_call

POOLS = {"flexlm": 4, "solver@lm": 1}


def desk() -> Desk:
    config = FederationConfig.model_validate(
        {**CONFIG.model_dump(exclude_unset=True), "licenses": POOLS}
    )
    sites = {"alpine": rack("a", 2), "baker": rack("b", 2)}
    return Desk(Loopback(sites, Rules(licenses=config.rules.licenses)), config)


def test_licences_that_all_sites_share_are_asked_of_no_site() -> None:
    d = desk()
    id_ = d.submit(licenses="flexlm:3")
    entry = d.federation.entry(id_)
    (job,) = entry.workload.jobs
    assert (job.licenses, job.fleet_licenses) == ((), (("flexlm", 3),))
    assert entry.state is WorkloadState.RUNNING
    assert entry.plan[0].licenses == ()  # so its site's sbatch is asked for none
    reply = d.ask(SitesCall())
    assert isinstance(reply, SitesReply)
    assert reply.licenses == (
        LicenseRow(name="flexlm", total=4, used=3),
        LicenseRow(name="solver@lm", total=1, used=0),
    )


def test_more_than_the_pool_has_is_refused_in_sbatchs_words() -> None:
    d = desk()
    assert INVALID in d.refusal(submit_call(options={"licenses": "flexlm:5"}))
    assert INVALID in d.refusal(submit_call(options={"licenses": "flexlm,matlab"}))  # no site has


def test_a_change_of_licences_is_read_as_a_submission() -> None:
    d = desk()
    first = d.submit(licenses="flexlm:3")
    id_ = d.submit(key="key-00002", licenses="flexlm:3")
    assert d.federation.state(id_) is WorkloadState.PENDING
    more = ControlCall(verb="update", ids=(str(id_),), fields={"licenses": "flexlm:5"})
    assert "can ever run" in d.refusal(more)
    d.ask(ControlCall(verb="update", ids=(str(id_),), fields={"licenses": "flexlm:1"}))
    d.federation.run_for(400.0)
    assert d.federation.state(id_) is WorkloadState.RUNNING
    assert d.federation.federation.ledger.counts.licenses == {"flexlm": 4}
    d.federation.cancel(first, id_)


def config_in(mode: str) -> FederationConfig:
    values = CONFIG.model_dump(exclude_unset=True)
    tenants = {name: {**given, "mode": mode} for name, given in values["tenants"].items()}
    return FederationConfig.model_validate({**values, "tenants": tenants})


def in_mode(mode: str) -> Desk:
    return Desk(Loopback({"alpine": rack("a", 2)}), config_in(mode))


def test_of_a_tenant_that_is_only_watched_nothing_is_taken() -> None:
    for mode, more in (
        ("shadow", ""),
        ("advisory", "; --test-only tells where it would start"),
    ):
        said = in_mode(mode).refusal(submit_call())
        assert f"is in mode {mode}: the federation takes none of its jobs; submit it with" in said
        assert said.endswith(f"sbatch at a site{more}")


def test_what_would_start_where_is_told_in_mode_advisory_alone() -> None:
    question = submit_call(test_only=True)
    assert "is in mode shadow" in in_mode("shadow").refusal(question)
    reply = in_mode("advisory").ask(question)
    assert isinstance(reply, replies.TestOnlyReply)


def test_in_mode_opt_in_what_is_submitted_to_the_federation_is_taken() -> None:
    d = in_mode("opt-in")
    assert d.federation.entry(d.submit()).state is WorkloadState.RUNNING


def test_a_submission_that_was_taken_before_the_step_down_is_answered_again() -> None:
    d = in_mode("opt-in")
    id_ = d.submit()
    below = Desk(d.federation, config_in("shadow"))
    assert below.submit() == id_
    assert "is in mode shadow" in below.refusal(submit_call(key="key-00009"))
