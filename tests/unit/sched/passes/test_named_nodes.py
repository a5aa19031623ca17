"""Nodes that users name, from the submission to the launch, at several sites."""

from __future__ import annotations

from dataclasses import replace

from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerRefused
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")


def two_sites() -> Loopback:
    """Both have a node n1; alpine wins ties."""
    return Loopback({"alpine": rack("n", 2), "baker": rack("n", 3)})


def test_a_name_that_only_one_site_has_names_the_site() -> None:
    f = two_sites()
    id_ = f.submit(draft(replace(gang(1), nodelist=("n3",))))
    f.run_for(1.0)
    assert (f.entry(id_).site, f.entry(id_).node_names) == (BAKER, ("n3",))


def test_a_site_in_the_name_decides_between_equal_names() -> None:
    f = two_sites()
    id_ = f.submit(draft(replace(gang(1), nodelist=("baker:n1",))))
    f.run_for(1.0)
    assert (f.entry(id_).site, f.entry(id_).node_names) == (BAKER, ("n1",))


def test_what_is_excluded_at_one_site_may_be_had_at_the_other() -> None:
    f = two_sites()
    id_ = f.submit(draft(replace(gang(1), exclude=("alpine:n1", "alpine:n2", "n2"))))
    f.run_for(1.0)
    assert f.entry(id_).site == BAKER
    assert f.entry(id_).node_names != ("n2",)
    assert f.replayed().entries[id_].workload == f.entry(id_).workload


def test_a_node_that_no_site_has_is_refused_at_once() -> None:
    f = two_sites()
    for job in (replace(gang(1), nodelist=("z9",)), replace(gang(1), exclude=("n1", "nowhere:n1"))):
        answer = f.ask(draft(job))
        assert isinstance(answer, AnswerRefused)
        codes = {r.code for refusal in answer.refusals.values() for r in refusal.reasons}
        assert codes == {ReasonCode.NO_NODE}


def test_an_older_agent_gets_no_job_whose_wishes_it_would_ignore() -> None:
    f = two_sites()
    f.run_for(1.0)
    for site in (ALPINE, BAKER):
        agent = f.sites[site].agent
        assert agent is not None
        agent.keeps_wishes = False
    wishing = f.submit(draft(replace(gang(1), exclude=("n1",))))
    plain = f.submit(draft(gang(1)))
    f.run_for(5.0)
    assert (f.state(plain), f.state(wishing)) == (WorkloadState.RUNNING, WorkloadState.PENDING)
    codes = {r.code for refusal in f.entry(wishing).refusals.values() for r in refusal.reasons}
    assert codes == {ReasonCode.OLD_RELEASE}


def test_an_older_agent_gets_no_job_whose_nodes_must_follow_each_other() -> None:
    f = two_sites()
    f.run_for(1.0)
    for site in (ALPINE, BAKER):
        agent = f.sites[site].agent
        assert agent is not None
        agent.keeps_contiguous = site == BAKER
    id_ = f.submit(draft(replace(gang(2), contiguous=True)))
    f.run_for(5.0)
    assert (f.state(id_), f.entry(id_).site) == (WorkloadState.RUNNING, BAKER)


def test_a_reservation_that_no_site_has_is_refused_at_once() -> None:
    f = two_sites()
    answer = f.ask(draft(replace(gang(1), reservation=("r1",))))
    assert isinstance(answer, AnswerRefused)
    codes = {r.code for refusal in answer.refusals.values() for r in refusal.reasons}
    assert codes == {ReasonCode.NO_RESERVATION}


def test_licences_that_no_site_has_are_refused_at_once() -> None:
    f = two_sites()
    answer = f.ask(draft(replace(gang(1), licenses=(("matlab", 1),))))
    assert isinstance(answer, AnswerRefused)
    codes = {r.code for refusal in answer.refusals.values() for r in refusal.reasons}
    assert codes == {ReasonCode.LICENSES}
