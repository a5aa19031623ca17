"""What a job writes becomes a data set once, when the job has completed: the whole federation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federator.model.data_output import DataOutput, KeptOutput, OutputState
from federator.model.dataset import CopyPhase, DataGiven, DataPlace, DataVerb, ReplicaState
from federator.model.event import Awarded, DataSetKept
from federator.model.lifecycle import WorkloadState
from federator.model.message import DataAsked, OutputSeen
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.passes import job_outputs
from federator.sched.passes.decision import award_of
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_places import STORAGE

DIGEST = "sha256tree:" + "0f" * 32
RULES = Rules(storage=STORAGE)
RUNS, DONE = WorkloadState.RUNNING, WorkloadState.COMPLETED


def fleet(rules: Rules = RULES) -> Loopback:
    return Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)}, rules)


def submit(f: Loopback, **output: Any) -> WorkloadId:
    wished = DataOutput(name="maps", **output)
    id_ = f.submit(replace(draft(gang(1)), output=wished))
    f.run_for(2.0)
    return id_


def end(f: Loopback, id_: WorkloadId, state: SiteJobState = SiteJobState.COMPLETED) -> None:
    entry = f.entry(id_)
    f.slurm(entry.site).end(entry.attempt_id, state)
    f.run_for(12.0)


def kept(f: Loopback, id_: WorkloadId) -> KeptOutput:
    found = f.federation.ledger.outputs.get(id_)
    assert found is not None
    return found


def tell(f: Loopback, id_: WorkloadId, phase: CopyPhase, **more: Any) -> None:
    of = kept(f, id_)
    fields: dict[str, Any] = {
        "workload": id_,
        "attempt": of.attempt,
        "domain": of.domain,
        "phase": phase,
    }
    f.observe(OutputSeen(**(fields | more)))
    f.run_for(1.0)


def sealed(f: Loopback, id_: WorkloadId, **more: Any) -> None:
    tell(f, id_, CopyPhase.DONE, **({"size_bytes": 7, "files": 2, "digest": DIGEST} | more))


def registered(f: Loopback) -> list[DataSetKept]:
    return [e for e in f.log if isinstance(e, DataSetKept) and e.written_by is not None]


def test_a_job_is_told_where_it_writes_at_its_site() -> None:
    f = fleet()
    f.federation.rounds.tells_decisions = True
    id_ = submit(f)
    (award,) = (e for e in f.log if isinstance(e, Awarded))
    (seen,) = f.decided
    assert award_of(seen) == award
    assert award.output is not None
    assert award.output.path == f"ada/outputs/maps@{id_}"
    assert award.output.folder == f"/w/ada/outputs/.fed-output-{id_}/data"
    assert award.output.variable == "FED_OUTPUT_MAPS"
    assert kept(f, id_).state is OutputState.WRITING


def test_what_a_completed_job_wrote_is_a_data_set_of_its_tenant_by_one_record() -> None:
    f = fleet()
    id_ = submit(f, version="v1")
    sealed(f, id_)
    assert not registered(f), "it runs"
    end(f, id_)
    assert (f.state(id_), kept(f, id_).state) == (DONE, OutputState.SEALING)
    sealed(f, id_)
    sealed(f, id_)
    (event,) = registered(f)
    assert event.written_by == AttemptId(workload=id_, attempt=1)
    of = f.federation.ledger.catalogue.find("maps", "v1")
    assert of is not None
    assert (of.owner, of.tenant, of.size_bytes, of.files) == ("ada", "vision", 7, 2)
    assert of.digest == of.replicas[0].digest == DIGEST
    tell(f, id_, CopyPhase.DROPPED)
    assert kept(f, id_).is_settled


def test_what_a_job_leaves_that_fails_or_is_cancelled_is_no_data_set() -> None:
    for how in ("fails", "is cancelled"):
        f = fleet()
        id_ = submit(f)
        if how == "fails":
            end(f, id_, SiteJobState.FAILED)
        else:
            f.cancel(id_)
            f.run_for(20.0)
        assert kept(f, id_).state is OutputState.LEFT, how
        sealed(f, id_)
        assert not registered(f)
        tell(f, id_, CopyPhase.DROPPED)
        assert kept(f, id_).is_settled


def test_news_of_another_attempt_or_domain_count_for_nothing() -> None:
    f = fleet()
    id_ = submit(f)
    end(f, id_)
    for more in ({"attempt": 2}, {"domain": "east"}, {"workload": WorkloadId(id_ + 1)}):
        sealed(f, id_, **more)
    assert not registered(f)


def test_an_empty_output_is_no_data_set() -> None:
    f = fleet()
    id_ = submit(f)
    end(f, id_)
    sealed(f, id_, files=0, size_bytes=0)
    assert not registered(f)
    assert kept(f, id_).state is OutputState.EMPTY


def test_a_name_that_was_taken_meanwhile_stays_with_who_has_it() -> None:
    f = fleet()
    id_ = submit(f, version="v1")
    at = (DataPlace(domain="west", path="sets/maps"),)
    given = DataGiven(name="maps", version="v1", at=at)
    f.observe(DataAsked(client=-7, verb=DataVerb.ADD, sets=(given,), by="ada"))
    end(f, id_)
    sealed(f, id_)
    assert not registered(f)
    of = kept(f, id_)
    assert of.state is OutputState.GIVEN_UP
    words = "maps@v1 was added meanwhile; its files are at west:ada/outputs/maps@v1"
    assert (of.detail, of.is_settled) == (words, False), "its working folder is to go"
    tell(f, id_, CopyPhase.FAILED, detail="busy")
    tell(f, id_, CopyPhase.DROPPED)
    of = kept(f, id_)
    assert (of.state, of.detail, of.is_settled) == (OutputState.GIVEN_UP, words, True)


@pytest.mark.parametrize(
    "size", [{"size_bytes": -(10**15)}, {"files": -1}, {"size_bytes": 2**60}, {"files": 2**60}]
)
def test_a_size_that_cannot_be_enters_no_catalogue(size: dict[str, int]) -> None:
    f = fleet()
    id_ = submit(f)
    end(f, id_)
    sealed(f, id_, **size)
    assert not registered(f)
    assert kept(f, id_).state is OutputState.GIVEN_UP
    assert kept(f, id_).detail.startswith("its site told a size that cannot be")


def test_it_is_brought_home_by_an_ordinary_copy() -> None:
    f = fleet()
    id_ = submit(f, version="v1", home="east")
    end(f, id_)
    sealed(f, id_)
    of = f.federation.ledger.catalogue.find("maps", "v1")
    assert of is not None
    copied = of.replica_in("east")
    assert copied is not None
    assert (copied.state, copied.path) == (ReplicaState.COPYING, "ada/outputs/maps@v1")


def test_without_a_storage_domain_a_job_waits_and_says_so() -> None:
    f = fleet(Rules(storage={}))
    id_ = submit(f)
    refusal = f.federation.refusals_of(f.entry(id_))[SiteName("")]
    assert refusal.reasons[0].code is ReasonCode.DATA
    assert refusal.reasons[0].detail == "a storage domain for --fed-output"


def test_an_agent_of_an_older_release_gets_no_job_that_writes() -> None:
    f = fleet()
    for site in f.sites.values():
        assert site.agent is not None
        site.agent.keeps_outputs = False
    id_ = submit(f)
    assert f.state(id_) is WorkloadState.PENDING


def test_a_job_that_starts_again_elsewhere_leaves_its_folder_for_removal() -> None:
    f = fleet()
    id_ = submit(f)
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.NODE_FAIL)
    f.run_for(30.0)
    assert f.state(id_) is RUNS
    of = kept(f, id_)
    assert of.attempt == 2
    expected = {"alpine": ("west",), "baker": ("west", "east")}[str(f.entry(id_).site)]
    assert of.folders == expected


def test_a_failure_is_kept_with_its_words_until_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fleet()
    id_ = submit(f)
    end(f, id_)
    tell(f, id_, CopyPhase.FAILED, detail="no such file")
    assert (kept(f, id_).detail, kept(f, id_).state) == ("no such file", OutputState.SEALING)
    monkeypatch.setattr(job_outputs, "GIVE_UP_S", 1.0)
    tell(f, id_, CopyPhase.FAILED, detail="no such file")
    assert kept(f, id_).state is OutputState.GIVEN_UP
    assert kept(f, id_).is_settled


def test_a_restart_and_a_snapshot_keep_what_is_to_be_done() -> None:
    f = fleet()
    id_ = submit(f)
    end(f, id_)
    before = kept(f, id_)
    for compacted in (False, True):
        if compacted:
            f.compact()
        f.restart()
        f.run_for(2.0)
        assert kept(f, id_) == before
        assert [each.id for each in f.federation.ledger.outputs.due()] == [id_]
