"""The log as the model sees it: each record is a step that its workload may take."""

from __future__ import annotations

from federator.faults.checks.evidence import Evidence, Size
from federator.faults.checks.log_checks import LogChecks
from federator.model.event import Changed, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import WorkloadId
from tests.fakes.build import rack

ID = WorkloadId(4739357696)


def changed(event: WorkloadEvent) -> bytes:
    return encode_event(Changed(at_s=0.0, workload=ID, happening=event))


def test_what_has_ended_does_not_end_again() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence)
    log.logged([changed(WorkloadEvent.CANCEL_ASKED)])
    assert evidence.broken == []
    log.logged([changed(WorkloadEvent.CANCEL_ASKED)])
    assert evidence.broken == [f"{ID} has ended, CANCELLED, and is cancel asked for"]


def test_what_is_held_was_refused_by_every_site_that_is_large_enough() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    log = LogChecks(evidence)
    log.sizes = {"alpine": Size.of(rack("a", 4)), "baker": Size.of(rack("b", 1))}
    evidence.truth(ID).needs = Size(with_gpus=2, nodes=2)
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == [f"{ID} is held, and alpine has not refused it"]
    evidence.broken.clear()
    evidence.truth(ID).refused_at.add("alpine")
    log.logged([changed(WorkloadEvent.HELD)])
    assert evidence.broken == []
