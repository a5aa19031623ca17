"""Takes the calls that sites' agents answer: nodes, signals to jobs and lower limits, snapshots,
verifications.

One answer for the user is put together from one for each site, or for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from federator.config import FederationConfig
from federator.daemon.callers import Caller, GiveReply
from federator.daemon.ids_asked import SiteNumbers, own_ids
from federator.daemon.links import SiteLink
from federator.daemon.lower_limits import RUNS
from federator.daemon.views import find
from federator.errors import InvalidRequest
from federator.model.viewer import Viewer
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.wire.agent_protocol import SignalTo
from federator.wire.client_protocol import (
    ErrorReply,
    NodesCall,
    NodesReply,
    SignalCall,
    SignalReply,
    SiteNodesRow,
    SnapshotCall,
    VerifyCall,
)
from federator.wire.replies import Reply

MAX_LISTED_BYTES: Final = 32 * 2**20  # of one answer: half a frame
MAX_SIGNALS: Final = 200  # or limits, of one request: each is a command at a site
SIGNALS: Final = frozenset(
    {"HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "STOP", "TSTP"}
)
"""Those that the site's helper sends; KILL is a cancel."""
_TO: Final = {to.value: to for to in (SignalTo.STEPS, SignalTo.BATCH, SignalTo.ALL)}

log = structlog.get_logger()


@dataclass(slots=True)
class _Gathered:
    """Answers that are still awaited, and what is done once all are in."""

    expected: int
    done: Callable[[list[Reply]], None]
    replies: dict[int, Reply] = field(default_factory=dict)

    def take(self, number: int, reply: Reply) -> None:
        self.replies[number] = reply
        if len(self.replies) == self.expected:
            self.done([self.replies[k] for k in range(self.expected)])


class SiteCalls:
    """The calls that agents answer.

    Args:
        config: names the sites, and the tenants of their users.
        federation: read, never changed here.

    Attributes:
        links: the daemon's, to each site; it sets them.
    """

    def __init__(self, config: FederationConfig, federation: Federation) -> None:
        self._config = config
        self._federation = federation
        self.links: Mapping[SiteName, SiteLink] = {}

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._config = config

    def take(
        self,
        call: NodesCall | SignalCall | SnapshotCall | VerifyCall,
        caller: Caller,
        answer: GiveReply,
    ) -> None:
        """Take a call; what a site bids on, and its verification, are for operators."""
        if isinstance(call, NodesCall):
            sites = sites_meant(self._config, call.clusters)
            ask_nodes(self._config, self._federation, self.links, sites, answer)
        elif isinstance(call, SignalCall):
            call = replace(call, ids=own_ids(call.ids, self._config.federation))
            viewer = caller.viewer_by(self._config)
            send_signals(self._federation, self.links, call, caller, answer, viewer)
        elif not caller.operator:
            answer(caller.refusal())
        else:
            self._ask_site(call, answer)

    def lower_limits(
        self, minutes: Mapping[WorkloadId, int], done: Callable[[dict[WorkloadId, str]], None]
    ) -> None:
        """Have sites lower the limits of jobs that run.

        Args:
            minutes: the new limits.
            done: called once, with why not for each that has no new limit.

        Raises:
            InvalidRequest: they are too many.
        """
        if len(minutes) > MAX_SIGNALS:
            raise InvalidRequest(
                f"limits of {len(minutes)} running jobs at once, at most {MAX_SIGNALS}"
            )
        jobs = [self._federation.ledger.entries[id_] for id_ in minutes]

        def finish(replies: list[Reply]) -> None:
            wrong = [_said(entry, reply) for entry, reply in zip(jobs, replies, strict=True)]
            done({e.workload.id: why for e, why in zip(jobs, wrong, strict=True) if why})

        gathered = _Gathered(len(jobs), finish)
        for number, entry in enumerate(jobs):
            taken = partial(gathered.take, number)
            link = self.links.get(entry.site)
            if link is None:
                taken(ErrorReply(message=f"site {entry.site} is not connected"))
            else:
                job = (entry.workload.user, entry.site_job_id)
                link.questions.ask_limit(job, minutes[entry.workload.id], taken)

    def _ask_site(self, call: SnapshotCall | VerifyCall, answer: GiveReply) -> None:
        link = self.links.get(SiteName(call.site))
        if link is None:
            known = ", ".join(self._config.sites)
            raise InvalidRequest(f"unknown site {call.site[:64]!r}; one of {known}")
        if isinstance(call, VerifyCall):
            tenants = self._config.tenants_of(call.user)
            link.questions.ask_proof(call, tenants[0] if tenants else "", answer)
        else:
            link.questions.ask_snapshot(answer)


def sites_meant(config: FederationConfig, clusters: tuple[str, ...]) -> tuple[str, ...]:
    """The sites that ``--clusters`` means; none: all of them.

    Raises:
        InvalidRequest: there is no such site, and the federation is not called so.
    """
    for name in clusters:
        if name not in ("all", config.federation) and name not in config.sites:
            raise InvalidRequest(
                f"No cluster '{name[:64]}' known by federation {config.federation}; "
                f"its sites: {', '.join(config.sites)}"
            )
    return clusters if all(name in config.sites for name in clusters) else ()


def ask_nodes(
    config: FederationConfig,
    federation: Federation,
    links: Mapping[SiteName, SiteLink],
    sites: tuple[str, ...],
    answer: Callable[[NodesReply], None],
) -> None:
    """Ask every site for its nodes; one that does not list them says why.

    Args:
        config: names the sites, their regions and their partitions.
        federation: knows the sites' Slurm.
        links: to the sites' agents.
        sites: only these; empty: all.
        answer: called once.
    """
    wanted = [name for name in config.sites if not sites or name in sites]
    bare = [
        SiteNodesRow(
            site=name,
            region=config.sites[name].region,
            slurm_version=federation.sites[name].slurm_version,
            detail="not connected",
        )
        for name in wanted
    ]

    def finish(replies: list[Reply]) -> None:
        answer(NodesReply(sites=tuple(_bounded(map(_filled, bare, replies)))))

    gathered = _Gathered(len(wanted), finish)
    if not wanted:
        finish([])
    for number, name in enumerate(wanted):
        taken = partial(gathered.take, number)
        link = links.get(name)
        if link is None:
            taken(ErrorReply(message="not connected"))
        else:
            link.questions.ask_nodes(tuple(config.sites[name].partitions), taken)


def _bounded(rows: Iterable[SiteNodesRow]) -> Iterator[SiteNodesRow]:
    """Leave out the lists that one answer does not hold."""
    total = 0
    for row in rows:
        total += len(row.nodes)
        if total <= MAX_LISTED_BYTES:
            yield row
        else:
            yield replace(row, nodes=b"", detail="too many nodes for one answer; see --clusters")


def _filled(row: SiteNodesRow, reply: Reply) -> SiteNodesRow:
    if isinstance(reply, NodesReply) and reply.sites:
        listed = reply.sites[0]
        return replace(row, nodes=listed.nodes, detail=listed.detail)
    return replace(row, detail=reply.message if isinstance(reply, ErrorReply) else "no answer")


def send_signals(
    federation: Federation,
    links: Mapping[SiteName, SiteLink],
    call: SignalCall,
    caller: Caller,
    answer: Callable[[SignalReply], None],
    viewer: Viewer | None = None,
) -> None:
    """Have the sites send a signal to jobs.

    Args:
        federation: knows the jobs.
        links: to the sites' agents.
        call: ids are without the federation's name.
        caller: who but an operator may only signal jobs of their own.
        answer: called once, with an error for each job that was not signalled.
        viewer: the caller; what it does not see there is not. None: it sees all.

    Raises:
        InvalidRequest: the signal is none that is sent, or there are too many jobs.
    """
    to = _TO.get(call.to)
    if call.signal not in SIGNALS or to is None:
        raise InvalidRequest(
            f"--signal={call.signal[:20]} cannot be sent; one of {', '.join(sorted(SIGNALS))}"
        )
    errors, jobs = _meant(federation.ledger, call, caller, viewer)
    if len(jobs) > MAX_SIGNALS:
        raise InvalidRequest(f"signals to {len(jobs)} jobs at once, at most {MAX_SIGNALS}")

    known = [entry.workload.id for entry in jobs]
    log.info("signal_asked", user=caller.user, signal=call.signal, workloads=known)

    def finish(replies: list[Reply]) -> None:
        wrong = [_said(entry, reply) for entry, reply in zip(jobs, replies, strict=True)]
        sent = tuple(e.workload.id for e, why in zip(jobs, wrong, strict=True) if not why)
        answer(SignalReply(ids=sent, errors=(*errors, *filter(None, wrong))))

    gathered = _Gathered(len(jobs), finish)
    if not jobs:
        finish([])
    for number, entry in enumerate(jobs):
        taken = partial(gathered.take, number)
        link = links.get(entry.site)
        if link is None:
            taken(ErrorReply(message=f"site {entry.site} is not connected"))
        else:
            job = (entry.workload.user, entry.site_job_id)
            link.questions.ask_signal(job, call.signal, to, taken)


def _meant(
    ledger: Ledger, call: SignalCall, caller: Caller, viewer: Viewer | None
) -> tuple[list[str], list[WorkloadRecord]]:
    """A line for each id that gets no signal, and the jobs that get it."""
    errors: list[str] = []
    jobs: list[WorkloadRecord] = []
    numbers = SiteNumbers(ledger, caller.may_change)
    for id_ in dict.fromkeys(call.ids):
        found = [ledger.entries[each] for each in find(ledger, id_, viewer)]
        refusal = _why_not(id_, found, caller) + ("" if found else numbers.whose(id_))
        errors += [refusal] if refusal else []
        jobs += [] if refusal else [entry for entry in found if entry.state in RUNS]
    return errors, jobs


def _why_not(id_: str, found: list[WorkloadRecord], caller: Caller) -> str:
    if not found:
        return f"Invalid job id specified: {id_}"
    if not all(caller.may_change(entry.workload) for entry in found):
        return f"Access/permission denied: {id_} belongs to another user"
    if not any(entry.state in RUNS for entry in found):
        return f"Job is pending execution, or has ended: {id_}"
    return ""


def _said(entry: WorkloadRecord, reply: Reply) -> str:
    """Why a job was not signalled; "": it was."""
    if isinstance(reply, SignalReply):
        return f"{entry.workload.id}: {reply.errors[0]}" if reply.errors else ""
    why = reply.message if isinstance(reply, ErrorReply) else "no answer"
    return f"{entry.workload.id}: {why}"
