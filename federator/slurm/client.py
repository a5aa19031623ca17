"""Runs Slurm's own commands at a site and reads their answers, over any ``Runner``.

Reading costs two commands per sweep: squeue, then `scontrol show nodes` (in this order, so that
the nodes already show the jobs); at a site with licences, `scontrol show licenses` as well.
`scontrol show partitions` and `scontrol show reservations` come
before them when they were last asked more than ``SETTINGS_FRESH_S`` ago. A client of some
partitions asks what holds nodes in the others, with one more squeue after nodes have changed. With
``layouts``, what jobs of the federation hold is looked up once they have started. What is done as a
user: ``helper_client``.

Timeouts: with slurmctld down, a command gives up by itself after 9-10 s, with MessageTimeout=10
(sbatch and scancel too; `scontrol show job ID` asks twice and needs 18-20 s).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from federator.agent.base import NOTHING, KnownJobs, Partition
from federator.errors import SiteUnavailable
from federator.model.license import SiteLicense
from federator.model.site import AttemptReport, LocalJob, Node, NodeState, SiteJob
from federator.model.slurm_reservation import SlurmReservation
from federator.model.window import SiteWindow, windows_of
from federator.slurm.accounts import SlurmAccounts
from federator.slurm.group_members import GroupMembers
from federator.slurm.helper_client import HelperClient
from federator.slurm.other_jobs import OTHERS_FRESH_S, OtherJobs
from federator.slurm.parse_base import Reading
from federator.slurm.parse_jobs import (
    SQUEUE_FORMAT,
    WATCHED_FORMAT,
    parse_jobs,
)
from federator.slurm.parse_licenses import parse_licenses
from federator.slurm.parse_nodes import parse_nodes, parse_switches, parse_topology
from federator.slurm.parse_reservations import parse_reservations
from federator.slurm.parse_site import (
    SlurmConfig,
    parse_config,
    parse_partitions,
    parse_settings,
    parse_version,
)
from federator.slurm.refusals import cannot_be_asked
from federator.slurm.reports import attempt_reports
from federator.slurm.runner import Completed, Runner
from federator.slurm.shares import Shares

_T = TypeVar("_T")

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": "%s",
}
READ_TIMEOUT_S: Final = 25.0
SETTINGS_FRESH_S: Final = 0.5  # what admins change by hand is heard within 2 s

NAMED_AT_ONCE: Final = 1000  # job ids of one squeue

_SQUEUE: Final = ("squeue", "--local", "-h", "-a", "-t", "all", "-O")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSweep:
    """One look at a site. The jobs were read before the nodes, so that the nodes show them."""

    taken_at_s: float
    nodes: tuple[Node, ...]  # their ``partitions`` are those that take and start jobs
    jobs: tuple[SiteJob, ...]  # of the asked partitions, live or ended not long ago
    others: tuple[LocalJob, ...] = ()  # that hold nodes, in whatever partition
    switches: Mapping[str, str] = field(default_factory=dict)  # the switch above each switch
    windows: tuple[SiteWindow, ...] = ()  # in which nodes are not to be had
    licenses: tuple[SiteLicense, ...] = ()  # by name
    problems: tuple[str, ...] = ()  # one line for each record that was skipped or guessed at
    nodes_complete: bool = True  # no node's record was skipped: what is absent is not there
    jobs_complete: bool = True  # the same of jobs

    @property
    def attempts(self) -> tuple[AttemptReport, ...]:
        return attempt_reports(self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The part of a site that its admins change by hand."""

    partitions: Reading[Partition]
    reservations: Reading[SlurmReservation]
    read_s: float

    @property
    def problems(self) -> tuple[str, ...]:
        return self.partitions.problems + self.reservations.problems

    def is_like(self, other: _Settings) -> bool:
        return (self.partitions, self.reservations) == (other.partitions, other.reservations)


class SlurmClient:
    """Asks one Slurm, and has its ``helper`` act; the same for 22.05, 24.11 and 26.05.

    Every method raises ``SiteUnavailable`` when Slurm cannot be asked or answers nonsense.

    Attributes:
        helper: acts as the jobs' users.
        accounts: what sacct knows of jobs that have ended.
        watches: as it was made.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        partitions: Sequence[str] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
        clock: Callable[[], float] = time.time,
        layouts: bool = False,
        watches: bool = False,
    ) -> None:
        """Make a client.

        Args:
            runner: carries the commands out.
            partitions: jobs of these only; none means all. Slurm prints fewer jobs faster.
            environment: of every command, complete; add SLURM_CONF for an unusual site.
            clock: Unix time at the site.
            layouts: also tell what each job of the federation holds on its nodes, which costs a
                command for each start; without, a job's shares are empty.
            watches: also tell of each job what a record of the site's own queue is made of, by
                more fields of the same command.
        """
        self._runner = runner
        self.watches = watches
        self._squeue = (*_SQUEUE, WATCHED_FORMAT if watches else SQUEUE_FORMAT)
        self._partitions = tuple(partitions)
        self._environment = dict(environment)
        self._clock = clock
        self.helper = HelperClient(runner, self._environment, clock)
        self.accounts = SlurmAccounts(self._run)
        self._shares = Shares(self._run) if layouts else None
        self._groups = GroupMembers(self._clock)
        self._settings: _Settings | None = None
        self._swept: _Settings | None = None  # that the last sweep shows
        # Without partitions ``jobs`` returns those of all anyhow.
        self._others = OtherJobs(self._run, clock) if self._partitions else None
        self._switch_of: dict[str, str] | None = None
        self._switches: dict[str, str] = {}
        self._reservations: tuple[SlurmReservation, ...] = ()  # as last read
        self._licenses: Reading[SiteLicense] | None = None
        self._licenses_read_s = 0.0
        self._named: frozenset[str] = frozenset()  # the nodes when the topology was read
        self._over: Set[int] | None = None  # own jobs that have ended, or are forgotten

    async def version(self) -> str:
        """Return the release of the site's client commands, e.g. ``24.11.5``."""
        return _sound(parse_version, await self._read("scontrol", "--version"))

    async def config(self) -> SlurmConfig:
        """Return the settings of slurmctld that matter to us."""
        return _sound(parse_config, await self._read("scontrol", "show", "config"))

    async def settings(self) -> dict[str, str]:
        """Return all settings of slurmctld, as it prints them."""
        return parse_settings(await self._read("scontrol", "show", "config"))

    async def partitions(self) -> Reading[Partition]:
        """Return every partition, also hidden ones."""
        return parse_partitions(await self._read("scontrol", "-a", "-o", "show", "partitions"))

    async def reservations(self) -> Reading[SlurmReservation]:
        """Return every reservation that this account may see; none where it may never ask.

        Where this question fails, those of the last one still hold.
        """
        argv = ("scontrol", "-a", "-o", "show", "reservations")
        done = await self._run(argv, may_fail=True)
        if done.exit_status != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[:200]
            known = self._reservations
            return Reading(records=known, problems=(f"reservations: {said}",), complete=False)
        found = parse_reservations(done.stdout.decode("utf-8", "replace"))
        self._reservations = found.records
        return found

    async def licenses(self) -> Reading[SiteLicense]:
        """Return every kind of licence; where this question fails, as of the last one.

        A site that had none is asked again after a while only.
        """
        known, now_s = self._licenses, self._clock()
        none = known is not None and not known.records
        if known is not None and none and 0 <= now_s - self._licenses_read_s < OTHERS_FRESH_S:
            return known
        done = await self._run(("scontrol", "-o", "show", "licenses"), may_fail=True)
        if done.exit_status != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[:200]
            records = () if known is None else known.records
            return Reading(records=records, problems=(f"licenses: {said}",), complete=False)
        self._licenses = parse_licenses(done.stdout.decode("utf-8", "replace"))
        self._licenses_read_s = now_s
        return self._licenses

    async def settings_changed(self) -> bool:
        """Tell whether partitions or reservations are others than the last sweep shows."""
        now = await self._recent_settings()
        return self._swept is not None and not now.is_like(self._swept)

    async def topology(self) -> dict[str, str]:
        """Return the leaf switch of each node; later sweeps use it. Empty: no topology."""
        text = await self._read("scontrol", "show", "topology")
        self._switch_of, self._switches = parse_topology(text), parse_switches(text)
        return dict(self._switch_of)

    async def nodes(self) -> Reading[Node]:
        """Return every node, with its leaf switch; the topology is read again for new nodes."""
        text = await self._read("scontrol", "-a", "-d", "-o", "show", "nodes")
        reading = parse_nodes(text, self._switch_of)
        names = frozenset(node.name for node in reading.records)
        if self._switch_of is None or not names <= self._named:
            await self.topology()
            self._named = names
            reading = parse_nodes(text, self._switch_of)
        return reading

    async def jobs(self, own: KnownJobs = NOTHING) -> Reading[SiteJob]:
        """Return the jobs; with ``layouts`` the federation's show what they hold on each node.

        Those of ``own`` are looked for in all partitions: a job that waits can be moved, by admins
        even where ``job_submit/`` refuses that to users.
        """
        launched = frozenset(own.launched)
        argv = [*self._squeue, *(["-p", ",".join(self._partitions)] if self._partitions else [])]
        reading = self._read_jobs((await self._run(argv)).stdout)
        if self._partitions:
            reading = await self._with_moved(reading, own, launched)
        return await self._shares.filled_in(reading, launched) if self._shares else reading

    async def _with_moved(
        self, reading: Reading[SiteJob], own: KnownJobs, launched: frozenset[int]
    ) -> Reading[SiteJob]:
        """Add own jobs of other partitions, if any is missed that has not been seen to end."""
        shown = {job.leader_id for job in reading.records}
        if self._over is None:  # the first sweep of this agent
            self._over = {i for i in launched if own.launched[i].attempt in own.ended}
        missing = sorted(launched - shown - self._over)
        for start in range(0, len(missing), NAMED_AT_ONCE):
            found = await self._jobs_named(missing[start : start + NAMED_AT_ONCE])
            moved = tuple(
                job
                for job in found.records
                if (ours := own.launched.get(job.leader_id)) is not None and ours.user == job.user
            )  # ids come again
            reading = Reading(
                records=reading.records + moved,
                problems=reading.problems + found.problems,
                complete=reading.complete and found.complete,
            )
        if reading.complete:
            live = {job.leader_id for job in reading.records if not job.state.ended}
            self._over = launched & (self._over | shown | {*missing}) - live
        return reading

    async def some_jobs(self, job_ids: Collection[int]) -> tuple[SiteJob, ...]:
        """Return those of these jobs that Slurm knows, of any partition; without layouts.

        Named by its leader, all of a het job comes: seen on 22.05, 24.11 and 26.05.
        """
        return (await self._jobs_named(job_ids)).records

    async def _jobs_named(self, job_ids: Collection[int]) -> Reading[SiteJob]:
        if not job_ids:
            return Reading(records=())
        ids = ",".join(map(str, sorted(job_ids)))
        done = await self._run([*self._squeue, "-j", ids], may_fail=True)
        if done.exit_status != 0:
            if b"Invalid job id" in done.stderr:  # said when it knows none of them
                return Reading(records=())
            raise SiteUnavailable(f"squeue: {done.stderr.decode('utf-8', 'replace').strip()}")
        return self._read_jobs(done.stdout)

    def _read_jobs(self, stdout: bytes) -> Reading[SiteJob]:
        try:
            return parse_jobs(stdout, watched=self.watches)
        except ValueError as error:
            raise SiteUnavailable(f"squeue cannot be read: {error}") from error

    async def sweep(self, own: KnownJobs = NOTHING) -> SlurmSweep:
        """Return jobs and nodes, as one look; ``own`` as of ``jobs``."""
        settings = self._swept = await self._recent_settings()
        jobs = await self.jobs(own)
        taken_at_s = self._clock()
        nodes = await self.nodes()
        others: Reading[LocalJob] = Reading(records=())
        if self._others is not None:
            others = await self._others.on(nodes.records)
        licenses = await self.licenses()
        cpus = {node.name: node.cpus for node in nodes.records if self._concerns(node)}
        reservations = await self._groups.named(settings.reservations.records)
        windows = windows_of(reservations, cpus, taken_at_s)
        shown = _without_closed(nodes.records, settings.partitions.records)
        read = (jobs, nodes, settings, others, licenses)
        return SlurmSweep(
            taken_at_s=taken_at_s,
            nodes=_with_reserved(shown, windows, taken_at_s),
            jobs=jobs.records,
            others=others.records,
            switches=self._switches,
            windows=windows,
            licenses=licenses.records,
            problems=tuple(p for part in read for p in part.problems),
            nodes_complete=nodes.complete,
            jobs_complete=jobs.complete,
        )

    def _concerns(self, node: Node) -> bool:
        return not self._partitions or not set(self._partitions).isdisjoint(node.partitions)

    async def _recent_settings(self) -> _Settings:
        known, now_s = self._settings, self._clock()
        if known is None or not 0 <= now_s - known.read_s < SETTINGS_FRESH_S:
            partitions, reservations = await self.partitions(), await self.reservations()
            known = _Settings(partitions=partitions, reservations=reservations, read_s=now_s)
            self._settings = known
        return known

    # ---- commands ----

    async def _read(self, *argv: str) -> str:
        return (await self._run(argv)).stdout.decode("utf-8", "replace")

    async def _run(self, argv: Sequence[str], *, may_fail: bool = False) -> Completed:
        done = await self._runner.run(tuple(argv), timeout_s=READ_TIMEOUT_S, env=self._environment)
        if done.exit_status != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            if not may_fail or cannot_be_asked(said):
                raise SiteUnavailable(f"{' '.join(argv)[:80]}: exit {done.exit_status}: {said}")
        return done


def _without_closed(nodes: tuple[Node, ...], partitions: tuple[Partition, ...]) -> tuple[Node, ...]:
    """Move partitions that take or start no jobs out of each node's ``partitions``.

    A partition whose state is not known stays: Slurm itself has the last word at the launch.
    """
    closed = {partition.name for partition in partitions if not partition.up}
    if not closed:
        return nodes
    return tuple(
        replace(
            node,
            partitions=tuple(name for name in node.partitions if name not in closed),
            closed_partitions=tuple(name for name in node.partitions if name in closed),
        )
        for node in nodes
    )


def _with_reserved(
    nodes: tuple[Node, ...], windows: tuple[SiteWindow, ...], now_s: float
) -> tuple[Node, ...]:
    """Take out nodes that are reserved for whatever cannot be read, or is over but for its mark.

    22.05 marks no node, so what is reserved as a whole is marked here.
    """
    known = {name for window in windows for name in window.nodes}
    now = {n for w in windows if w.is_on(now_s) for n in w.nodes if n not in w.cpus}
    found = []
    for node in nodes:
        if node.reserved and node.name not in known:
            found.append(replace(node, state=NodeState.DRAINED))
        elif node.name in now and not node.reserved:
            found.append(replace(node, reserved=True))
        else:
            found.append(node)
    return tuple(found)


def _sound(parse: Callable[[str], _T], text: str) -> _T:
    """Parse what a command printed; nonsense means that the site cannot be asked."""
    try:
        return parse(text)
    except ValueError as error:
        raise SiteUnavailable(str(error)) from error
