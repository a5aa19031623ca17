"""A job with a QOS goes to sites that have it; one that no site has is refused at once."""

from __future__ import annotations

from dataclasses import replace

from federator.daemon.effects import _not_queued
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerRefused
from federator.model.reason import ReasonCode
from federator.model.workload import Job, SiteName
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import POLL_S, Loopback


def fleet(**qos: frozenset[str] | None) -> Loopback:
    """Sites with these QOS, the first of which wins ties."""
    f = Loopback({site: rack("n", 2) for site in qos})
    for site, names in qos.items():
        agent = f.sites[SiteName(site)].agent
        assert agent is not None
        agent.qos = names
    f.run_for(2 * POLL_S)
    return f


def with_qos(name: str) -> Job:
    return replace(gang(1), qos=name)


NORMAL, URGENT = frozenset({"normal"}), frozenset({"normal", "urgent"})


def test_a_qos_that_every_site_lacks_is_refused_in_slurms_words() -> None:
    answer = fleet(alpine=NORMAL, boreal=URGENT).ask(draft(with_qos("nosuch")))
    assert isinstance(answer, AnswerRefused)
    codes = {r.code for refusal in answer.refusals.values() for r in refusal.reasons}
    assert codes == {ReasonCode.NO_QOS}
    assert _not_queued(answer).message == "Batch job submission failed: Invalid qos specification"


def test_only_sites_that_have_it_get_the_job() -> None:
    f = fleet(alpine=NORMAL, boreal=URGENT)
    id_ = f.submit(draft(with_qos("Urgent")))
    f.run_for(2.0)
    assert (f.state(id_), f.entry(id_).site) == (WorkloadState.RUNNING, SiteName("boreal"))


def test_a_site_that_does_not_say_which_it_has_is_asked() -> None:
    f = fleet(alpine=NORMAL, boreal=None)
    id_ = f.submit(draft(with_qos("nosuch")))
    f.run_for(2.0)
    assert f.entry(id_).site == SiteName("boreal")


def test_a_qos_that_is_added_lets_the_job_start() -> None:
    f = fleet(alpine=NORMAL, boreal=URGENT)
    alpine = f.sites[SiteName("alpine")].agent
    assert alpine is not None
    f.submit(draft(replace(gang(2), qos="urgent")))
    id_ = f.submit(draft(with_qos("urgent")))
    f.run_for(2.0)
    assert f.state(id_) is WorkloadState.PENDING
    alpine.qos = URGENT
    f.run_for(3 * POLL_S)
    assert f.entry(id_).site == SiteName("alpine")
