"""Nodes that users name, as each site gets them."""

from __future__ import annotations

from dataclasses import replace

from federator.model.node_names import jobs_at
from federator.model.workload import SiteName
from tests.fakes.build import gang

WEST, EAST = SiteName("west"), SiteName("east")


def test_each_site_gets_its_own_names_and_excludes_nothing_of_others() -> None:
    job = replace(gang(1), exclude=("east:n2", "n1", "west:n3"))
    assert jobs_at((job,), WEST)[0].exclude == ("n1", "n3")
    assert jobs_at((job,), EAST)[0].exclude == ("n1", "n2")


def test_a_node_that_must_be_had_at_another_site_stays_unknown_here() -> None:
    job = replace(gang(2), nodelist=("east:n2", "n1"))
    assert jobs_at((job,), EAST)[0].nodelist == ("n1", "n2")
    assert jobs_at((job,), WEST)[0].nodelist == ("east:n2", "n1")


def test_jobs_that_name_no_nodes_stay_the_same_object() -> None:
    jobs = (gang(1),)
    assert jobs_at(jobs, WEST) is jobs


def test_a_list_of_reservations_means_those_of_each_site() -> None:
    job = replace(gang(1), reservation=("alpine:r1", "baker:r2", "r3"))
    assert jobs_at((job,), SiteName("alpine"))[0].reservation == ("r1", "r3")
    other = jobs_at((replace(job, reservation=("alpine:r1",)),), SiteName("baker"))
    assert other[0].reservation == ("alpine:r1",), "no reservation has such a name"
