"""Regions of one workload, and the report of all of them, for those who may see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from federator.daemon.metrics.data_counts import HAD, STAGED
from federator.daemon.views import queue_rows
from federator.model.dataset import CopyPhase
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.state.rules import Rules
from federator.wire.client_protocol import ErrorKind, ErrorReply, QueueCall, QueueRow
from federator.wire.data_rows import DataReportCall, DataReportReply
from tests.fakes.build import draft, gang
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_drain_calls import ask
from tests.unit.sched.passes.test_data_copies import GIB, add, copy, submit, tell
from tests.unit.sched.passes.test_data_copies import fleet as two_sites
from tests.unit.sched.passes.test_data_places import ALPINE, BAKER, STORAGE, use

RULES = Rules(storage=STORAGE, regions={ALPINE: "west", BAKER: "east"})


def fleet(rules: Rules = RULES) -> Loopback:
    """One node in the west, where the data is, and two in the east."""
    found = two_sites(rules, alpine=1, baker=2)
    found.run_for(2.0)
    add(found)
    return found


def told(f: Loopback, *ids: WorkloadId, why: bool = True) -> list[QueueRow]:
    call = QueueCall(ids=tuple(map(str, ids)), ended=True, why=why)
    return list(queue_rows(f.federation, call, 10)[0])


def words(f: Loopback, id_: WorkloadId) -> dict[str, tuple[str, bool]]:
    (row,) = told(f, id_)
    return {each.name: (each.data, each.ran) for each in row.regions}


def report(f: Loopback, folder: Path) -> DataReportReply:
    found = ask(Desk(f), DataReportCall(), folder)
    assert isinstance(found, DataReportReply)
    return found


def test_a_workload_is_told_where_it_could_run_and_where_it_ran() -> None:
    f = fleet()
    first, second = submit(f), submit(f)
    f.run_for(5.0)
    assert words(f, first) == {"west": ("there", True), "east": ("ask", False)}
    assert words(f, second) == {"west": ("there", False), "east": ("ask", False)}
    f.slurm(ALPINE).end(f.entry(first).attempt_id, SiteJobState.COMPLETED)
    f.run_for(60.0)
    assert words(f, first) == {"west": ("", True)}


def test_a_workload_without_data_sets_has_no_rows() -> None:
    f = fleet()
    id_ = f.submit(draft(gang(1)))
    f.run_for(5.0)
    assert words(f, id_) == {}


def test_the_rows_are_told_to_those_who_ask_why() -> None:
    f = fleet()
    ids = submit(f), submit(f)
    assert [row.regions for row in told(f, *ids, why=False)] == [(), ()]
    for row in told(f, *ids):
        assert [each.bytes_to_move for each in row.regions] == [0, GIB]


def test_the_report_counts_candidates_regions_and_what_was_not_collocated(tmp_path: Path) -> None:
    f = fleet()
    first, waits = submit(f), submit(f)
    f.submit(draft(gang(1)))
    f.run_for(5.0)
    found = report(f, tmp_path)
    assert found.candidates == {1: 1}
    assert (found.ran_in, found.kinds_ran_in) == ({1: 1}, {1: 1})
    assert found.starts[HAD].gpus == 8
    copy(f)
    tell(f, CopyPhase.DONE)
    f.run_for(60.0)
    assert f.entry(waits).site == BAKER
    f.slurm(ALPINE).end(f.entry(first).attempt_id, SiteJobState.COMPLETED)
    f.run_for(3600.0)
    found = report(f, tmp_path)
    assert found.candidates == {}
    assert (found.ran_in, found.kinds_ran_in) == ({1: 2}, {2: 1})  # its like ran in two
    assert {word: row.workloads for word, row in found.starts.items()} == {HAD: 1, STAGED: 1}
    assert found.starts[STAGED].gpu_h > 8 * 0.9
    assert found.starts[HAD].gpu_h < 1


def test_the_report_is_for_operators() -> None:
    reply = Desk(fleet()).ask(DataReportCall(), "ada")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED


def test_a_workload_whose_data_nobody_may_have_is_no_candidate_anywhere(tmp_path: Path) -> None:
    f = fleet()
    f.submit(replace(draft(gang(1)), data=(use("gone"),)))
    f.run_for(5.0)
    assert report(f, tmp_path).candidates == {0: 1}
