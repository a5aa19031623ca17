"""Drafts of submissions: which licences are the federation's own."""

from __future__ import annotations

from federator.config import FederationConfig
from federator.model.lifecycle import WorkloadState
from federator.sched.state.rules import Rules
from federator.slurm.options.license_option import INVALID
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
