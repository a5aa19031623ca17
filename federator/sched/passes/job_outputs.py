"""Places of data sets that jobs write, and the end of each: it is registered, removed or given up.

Files are the business of the sites: they say what was sealed or removed. An output enters the
catalogue by one record, which names the attempt that wrote it: the last of a job that completed.
"""

from __future__ import annotations

from typing import Final

from federator.model.data_output import KeptOutput, OutputPlace, OutputState, output_path
from federator.model.data_use import DataPath
from federator.model.dataset import CopyPhase, DataCopy, DataReplica, DataSet, is_digest
from federator.model.event import DataSetKept, OutputNoted
from federator.model.message import OutputSeen
from federator.model.workload import MAX_AMOUNT, AttemptId, SiteName, Workload, WorkloadId
from federator.sched.passes.data_copies import COPYABLE, copy_refusal, used_bytes, with_copy
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger

GIVE_UP_S: Final = 14 * 86400.0  # after the end of its job; nothing is tried after that

Places = tuple[tuple[DataPath, ...], OutputPlace | None]


def places_of(ledger: Ledger, workload: Workload, site: SiteName) -> Places | None:
    """Where a job finds its data sets at a site, and where it writes one; None: not there."""
    found = ledger.catalogue.paths(workload.needed_data, site)
    if found is None:
        return None
    return found[: len(workload.data)], output_place(ledger, workload, site)


def output_place(ledger: Ledger, workload: Workload, site: SiteName) -> OutputPlace | None:
    """Where a job writes at a site; None: it writes no data set, or cannot there.

    It is the domain in which its last attempt wrote, if the site mounts that, so that it goes on;
    else the first one that the site mounts.
    """
    output, domains = workload.output, ledger.catalogue.domains
    if output is None:
        return None
    kept = ledger.outputs.get(workload.id)
    last = "" if kept is None else kept.domain
    mounted = [name for name, domain in domains.items() if site in domain.mounts]
    if not mounted:
        return None
    domain = last if last in mounted else mounted[0]
    version = output.version_of(workload.id)
    return OutputPlace(
        id=workload.id,
        name=output.name,
        version=version,
        domain=domain,
        root=domains[domain].mounts[site],
        path=output_path(workload.user, output.name, version),
    )


def take_output(turn: Transaction, seen: OutputSeen) -> None:
    """Record what a site tells of an output, unless it is no news."""
    kept = turn.ledger.outputs.get(WorkloadId(seen.workload))
    if kept is None or not kept.over_at_s or seen.domain not in kept.folders:
        return
    if seen.attempt != kept.attempt:
        return
    is_sealing = kept.state is OutputState.SEALING and seen.domain == kept.domain
    match seen.phase:
        case CopyPhase.DONE if is_sealing:
            _sealed(turn, kept, seen)
        case CopyPhase.DROPPED if not is_sealing:
            _note(turn, kept, seen, dropped=True)
        case CopyPhase.FAILED if turn.now_s - kept.over_at_s > GIVE_UP_S:
            _note(turn, kept, seen, state=OutputState.GIVEN_UP)
        case CopyPhase.FAILED if kept.state is OutputState.GIVEN_UP:
            pass  # its words say why it was
        case CopyPhase.FAILED if seen.detail != kept.detail:
            _note(turn, kept, seen)
        case _:
            pass


def _note(
    turn: Transaction,
    kept: KeptOutput,
    seen: OutputSeen,
    *,
    state: OutputState | None = None,
    dropped: bool = False,
) -> None:
    turn.record(
        OutputNoted(
            at_s=turn.now_s,
            workload=kept.id,
            domain=seen.domain,
            state=state,
            dropped=dropped,
            detail=seen.detail,
        )
    )


def _sealed(turn: Transaction, kept: KeptOutput, seen: OutputSeen) -> None:
    """It is in its place: it is added to the catalogue, unless it was empty or may not be."""
    if not seen.files:
        _note(turn, kept, seen, state=OutputState.EMPTY)
        return
    wrong = _obstacle(turn.ledger, kept, seen)
    if wrong:
        event = OutputNoted(
            at_s=turn.now_s,
            workload=kept.id,
            domain=seen.domain,
            state=OutputState.GIVEN_UP,
            placed=True,
            detail=f"{wrong}; its files are at {seen.domain}:{kept.path}",
        )
        turn.record(event)
        return
    of = _brought_home(turn, kept, _data_set(turn, kept, seen))
    attempt = AttemptId(workload=kept.id, attempt=kept.attempt)
    turn.record(DataSetKept(at_s=turn.now_s, kept=of, written_by=attempt))
    turn.pass_is_due(turn)  # somebody may wait for it


def _obstacle(ledger: Ledger, kept: KeptOutput, seen: OutputSeen) -> str:
    """Why it cannot be added, that it could when it was submitted; "": it can."""
    known, others = ledger.catalogue.find(kept.name, kept.version), ledger.catalogue.find(kept.name)
    if known is not None:
        return f"{kept.label} was added meanwhile"
    if others is not None and others.owner != kept.user:
        return f"the name {kept.name} was taken by another user meanwhile"
    if not is_digest(seen.digest) or not seen.digest.startswith(COPYABLE):
        return "its site told no digest"
    if not (0 <= seen.size_bytes <= MAX_AMOUNT and 0 <= seen.files <= MAX_AMOUNT):
        return "its site told a size that cannot be"
    return ""


def _data_set(turn: Transaction, kept: KeptOutput, seen: OutputSeen) -> DataSet:
    replica = DataReplica(
        domain=seen.domain, path=kept.path, digest=seen.digest, sealed_at_s=turn.now_s
    )
    return DataSet(
        name=kept.name,
        version=kept.version,
        owner=kept.user,
        tenant=kept.tenant,
        size_bytes=seen.size_bytes,
        files=seen.files,
        digest=seen.digest,
        added_at_s=turn.now_s,
        replicas=(replica,),
    )


def _brought_home(turn: Transaction, kept: KeptOutput, of: DataSet) -> DataSet:
    """The same with a copy to the home of its tenant, if that was asked for and can be made."""
    catalogue, home = turn.ledger.catalogue, kept.home
    if home not in catalogue.domains or home == of.replicas[0].domain:
        return of
    if copy_refusal(of, home, catalogue.domains, used_bytes(catalogue, home)) is not None:
        return of
    if catalogue.in_the_way(of, home, kept.path):
        return of
    return with_copy(of, home, kept.path, DataCopy(by=kept.user, asked_at_s=turn.now_s))
