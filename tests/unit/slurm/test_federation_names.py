"""What a site's Slurm shows is called by the federation's names."""

from __future__ import annotations

from dataclasses import replace

from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_names import SiteNames
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.federation_names import FederationNames


def test_a_shared_account_of_a_reservation_admits_the_tenant_of_its_name_too() -> None:
    names = FederationNames(SiteNames(accounts={"vision": "nlp"}))
    kept = SiteWindow(
        name="training", starts_at_s=0.0, ends_at_s=9e9, nodes=("n1",), accounts=("nlp",)
    )
    window = names.window(kept)
    assert [window.admits("joe", tenant) for tenant in ("vision", "nlp", "bio")] == [1, 1, 0]


def test_an_account_is_known_in_small_letters_as_slurm_keeps_it() -> None:
    names = FederationNames(SiteNames(accounts={"vision": "Vis-Grp"}))
    kept = SiteWindow(
        name="training", starts_at_s=0.0, ends_at_s=9e9, nodes=("n1",), accounts=("vis-grp",)
    )
    assert names.window(kept).admits("joe", "vision")


def test_a_job_is_of_the_user_who_has_its_account_and_no_other() -> None:
    names = FederationNames(SiteNames(users={"ada": "a.one"}))
    attempt = AttemptId(workload=WorkloadId(7), attempt=1)
    report = AttemptReport(attempt=attempt, user="a.one", site_job_id=7, state=SiteJobState.RUNNING)
    assert names.report(report).user == "ada"
    assert names.report(replace(report, user="ada")).user == "=ada"  # a namesake, with her comment
    assert names.report(replace(report, user="bob")).user == "bob"
