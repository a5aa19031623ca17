"""The evidence of one history: the truth about each workload, and the promises found broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from federator.faults.client_scripts import ClientScript
from federator.faults.user_code import CodeRun
from federator.model.lifecycle import WorkloadState
from federator.model.site import Node, SiteJobState
from federator.model.workload import AttemptId, Job, WorkloadId

BY_ITSELF: Final = (SiteJobState.COMPLETED, SiteJobState.TIMEOUT)


class Moment(Enum):
    """A step in the log that a fault may wait for."""

    RESIZE_ASKED = "a job is told to leave, and to go on at another size"
    RESIZE_AWARDED = "it is awarded nodes after that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A job array, as its record in the log says."""

    id: WorkloadId
    indices: tuple[int, ...]
    max_running: int  # 0: no throttle

    @property
    def tasks(self) -> dict[WorkloadId, int]:
        """Index by workload."""
        return {WorkloadId(self.id + k): index for k, index in enumerate(self.indices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A number of nodes with GPUs, and of all nodes: of a site, or that a workload needs."""

    with_gpus: int
    nodes: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Size:
        return cls(with_gpus=sum(node.gpus > 0 for node in nodes), nodes=len(nodes))

    @classmethod
    def needed(cls, jobs: Sequence[Job]) -> Size:
        """Each job has nodes of its own."""
        asked = [(job.nodes or 1, job.total_gpus > 0) for job in jobs]
        return cls(with_gpus=sum(n for n, gpus in asked if gpus), nodes=sum(n for n, _ in asked))

    def holds(self, other: Size) -> bool:
        return self.with_gpus >= other.with_gpus and self.nodes >= other.nodes


@dataclass(slots=True, eq=False)
class Truth:
    """The true history of one workload."""

    runs: list[CodeRun] = field(default_factory=list)
    has_started: bool = False  # a job of its, as Slurm has it; user code may not have run
    acked: str = ""  # the key under which its client knows it
    cancel_asked: bool = False
    failed_uncancelled: bool = False  # by the log: before anybody asked to cancel it
    cancel_acked: bool = False
    cancel_acked_at_s: float = inf
    state: WorkloadState = WorkloadState.PENDING  # by the log
    last_attempt: int = 0  # by the log
    attempt_at_cancel: int = 0
    ended_outside: bool = False  # somebody ended a job of its in Slurm, or a gate did
    maimed: bool = False  # somebody ended a component of a het job of its in Slurm
    needs: Size | None = None
    refused_at: set[str] = field(default_factory=set)  # sites whose sbatch refused it for good
    unrecorded: set[AttemptId] = field(default_factory=set)  # attempts Slurm knows no more
    given_up: set[AttemptId] = field(default_factory=set)  # with their site: they do not count
    renamed: set[AttemptId] = field(default_factory=set)  # their jobs only their users may end
    script: ClientScript | None = None  # by which it was submitted
    waits_for: tuple[WorkloadId, ...] = ()  # of its script's chain: all tasks of an array
    heard_at_s: float = inf  # the command of an interactive job, or later
    command_died_at_s: float = inf  # likewise
    unheard: bool = False  # so it was cancelled
    release_asked: bool = False  # of one that was submitted on hold
    nodes: int = 0  # by the log, of its last award
    site: str = ""  # likewise
    resized_to: int = 0  # nodes, when it was last told to leave for a resize; 0: it was not
    too_large: float = inf  # so many nodes have failed it

    def may_run_at(self, site: str) -> bool:
        """Whether it asks for no node of another site."""
        return self.script is None or self.script.site in ("", site)

    @property
    def counted(self) -> list[CodeRun]:
        """Its runs, without those at a site that was written off since."""
        return [run for run in self.runs if run.attempt not in self.given_up]

    def excuses(self, run: CodeRun) -> bool:
        """Whether the federation cannot end a run: it is lost, its user's alone, or given up."""
        return bool(self.unrecorded) or run.attempt in self.renamed | self.given_up

    @property
    def completed(self) -> bool:
        """Its user code ended well, of its own accord."""
        return any(
            r.ended is SiteJobState.COMPLETED and not r.exit_code and not r.notified
            for r in self.counted
        )


class Evidence:
    """What is certain of one history, by Slurm, clients and the log.

    Args:
        tell: notes what happened, for the story.
        clock: true time.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.tell = tell
        self.clock = clock
        self.faults_stopped_at_s = inf  # from when on nothing fails any more
        self.truths: dict[WorkloadId, Truth] = {}
        self.arrays: dict[WorkloadId, Array] = {}  # by their tasks
        self.counts: Counter[str] = Counter()
        self._waiting: dict[Moment, list[Callable[[str, AttemptId], None]]] = {}
        self.broken: list[str] = []

    def truth(self, id_: WorkloadId) -> Truth:
        return self.truths.setdefault(id_, Truth())

    def await_moment(self, moment: Moment, act: Callable[[str, AttemptId], None]) -> None:
        """Have something done at the next such step, with its site's name and its attempt."""
        self._waiting.setdefault(moment, []).append(act)

    def at_moment(self, moment: Moment, site: str, attempt: AttemptId) -> None:
        """Such a step is in the log."""
        for act in self._waiting.pop(moment, []):
            act(site, attempt)

    def await_nothing(self) -> None:
        """Nothing is to be done at any step."""
        self._waiting.clear()

    def break_(self, what: str) -> None:
        """Note a broken promise."""
        self.broken.append(what)
        self.tell(f"BROKEN: {what}")
