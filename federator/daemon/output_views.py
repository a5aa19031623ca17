"""Shows what becomes of the data set that a workload writes."""

from __future__ import annotations

from federator.model.data_output import output_path
from federator.sched.state.ledger import Ledger
from federator.sched.state.workload_record import WorkloadRecord
from federator.wire.queue_rows import OutputRow


def output_row(entry: WorkloadRecord, ledger: Ledger) -> OutputRow | None:
    """The row of one; None: it writes none."""
    workload, output = entry.workload, entry.workload.output
    if output is None:
        return None
    version = output.version_of(workload.id)
    kept, place = ledger.outputs.get(workload.id), None
    if entry.award is not None:
        place = entry.award.output
    return OutputRow(
        name=output.name,
        version=version,
        state="" if kept is None else kept.state.value,
        domain="" if place is None else place.domain,
        path="" if place is None else output_path(workload.user, output.name, version),
        detail="" if kept is None else kept.detail,
    )
