"""Random DAGs of jobs: drawn from a seed, and judged by the words of sbatch(1).

All jobs wait for a word before they end, so that the whole DAG is submitted before anything ends.
Then how each job stands at last does not depend on who is faster, and the order in which jobs
start and end is told by themselves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

COMPLETED, FAILED, CANCELLED = "COMPLETED", "FAILED", "CANCELLED"
NEVER, WAITS, HELD = "DependencyNeverSatisfied", "Dependency", "JobHeldUser"
ENDED: Final = frozenset({COMPLETED, FAILED, CANCELLED})
KINDS: Final = ("after", "afterok", "afterany", "afternotok", "aftercorr")
WEIGHTS: Final = (2, 4, 3, 3, 2)

Unit = tuple[str, int]
"""A job, or a task of an array: name and index, -1 of what is no array."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One condition: a kind and the job, or the task, that it names; "" of singleton."""

    kind: str
    on: str = ""
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One submission.

    Attributes:
        tasks: of an array; 0: it is none.
        fails: the tasks that fail; -1 of what is no array.
        cancelled: the tasks that are cancelled before any job ends.
        late: those that are cancelled once all stand still.
        held: not at all, until all stand still ("late"), or for good.
    """

    name: str
    title: str
    edges: tuple[Edge, ...] = ()
    any_of: bool = False
    kill: bool = False
    tasks: int = 0
    fails: frozenset[int] = frozenset()
    cancelled: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    held: str = ""
    lasts_s: float = 0.0

    @property
    def units(self) -> list[Unit]:
        return [(self.name, task) for task in (range(self.tasks) if self.tasks else (-1,))]

    def options(self, ids: Mapping[str, str]) -> list[str]:
        """Of sbatch; ``ids`` has what stands for the id of each job."""
        found = [f"--job-name={self.title}"]
        if self.edges:
            sign = "?" if self.any_of else ","
            found.append(f"--dependency={sign.join(_written(e, ids) for e in self.edges)}")
        if self.kill:
            found.append("--kill-on-invalid-dep=yes")
        if self.tasks:
            found.append(f"--array=0-{self.tasks - 1}")
        if self.held:
            found.append("--hold")
        return found


Dag = tuple[Job, ...]


def _written(edge: Edge, ids: Mapping[str, str]) -> str:
    if not edge.on:
        return edge.kind
    return f"{edge.kind}:{ids[edge.on]}" + ("" if edge.task is None else f"_{edge.task}")


def draw(seed: int, jobs: int) -> Dag:
    """The DAG of a seed."""
    chance = random.Random(seed)
    dag: list[Job] = []
    for number in range(jobs):
        dag.append(_job(chance, number, dag))
    return _with_late_acts(chance, tuple(dag))


def _job(chance: random.Random, number: int, before: Sequence[Job]) -> Job:
    tasks = chance.choice((0, 0, 0, 2, 3))
    every = range(tasks) if tasks else (-1,)
    edges: dict[Edge, None] = {}
    if len(before) > 2 or (before and chance.random() < 0.5):
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
            edges[_edge(chance, before)] = None
    if chance.random() < 0.15:
        edges[Edge("singleton")] = None
    fails = frozenset(task for task in every if chance.random() < 0.3)
    # Not a task of many: 22.05 forgets one that is cancelled while its array waits as one record.
    cancelled = frozenset(every) if chance.random() < 0.12 else frozenset()
    return Job(
        name=f"j{number}",
        title=chance.choice(("red", "blue")),
        edges=tuple(edges),
        any_of=chance.random() < 0.4,
        kill=chance.random() < 0.25,
        tasks=tasks,
        fails=fails,
        cancelled=cancelled,
        held=chance.choice(("late", "for good")) if not edges and chance.random() < 0.3 else "",
        lasts_s=chance.choice((0.0, 0.0, 0.3, 1.0)),
    )


def _edge(chance: random.Random, before: Sequence[Job]) -> Edge:
    kind = chance.choices(KINDS, WEIGHTS)[0]
    on = chance.choice(before)
    task = chance.randrange(on.tasks) if on.tasks and chance.random() < 0.3 else None
    return Edge(kind, on.name, None if kind == "aftercorr" else task)


def _with_late_acts(chance: random.Random, dag: Dag) -> Dag:
    """Some of those that stand still are cancelled then."""
    stands = outcome(dag, late=False)
    drawn = []
    for job in dag:
        waits = not job.held and not any(stands[unit] in ENDED for unit in job.units)
        is_late = waits and chance.random() < 0.3
        tasks = frozenset(task for _, task in job.units) if is_late else frozenset()
        drawn.append(replace(job, late=tasks))
    return tuple(drawn)


# ---- what must become of it ----


def outcome(dag: Dag, *, late: bool, plain: bool = False) -> dict[Unit, str]:
    """How each job stands once nothing more happens: before, or after the late acts.

    ``plain``: under slurmctld, to which an array that was cancelled as one record has not started,
    nor has it ended, as far as ``after`` goes (22.05, 24.11 and 26.05; sbatch(1) says otherwise).
    """
    found: dict[Unit, str] = {}
    for job in dag:
        for unit in job.units:
            found[unit] = _outcome_of(job, unit, dag, found, late=late, plain=plain)
    return found


def _outcome_of(
    job: Job, unit: Unit, dag: Dag, found: Mapping[Unit, str], *, late: bool, plain: bool
) -> str:
    if unit[1] in job.cancelled or (late and unit[1] in job.late):
        return CANCELLED
    verdicts = [
        None if plain and _is_of_one_record(edge, dag, found) else _verdict(edge, unit, dag, found)
        for edge in job.edges
    ]
    is_met = any(v is True for v in verdicts) if job.any_of else all(v is True for v in verdicts)
    failed = [v is False for v in verdicts]
    if verdicts and not is_met:
        if all(failed) if job.any_of else any(failed):
            return CANCELLED if job.kill else NEVER
        return WAITS
    if job.held and not (late and job.held == "late"):
        return HELD
    return FAILED if unit[1] in job.fails else COMPLETED


def _is_of_one_record(edge: Edge, dag: Dag, found: Mapping[Unit, str]) -> bool:
    """Whether it is ``after`` an array that was cancelled while it waited as one record."""
    if edge.kind != "after" or edge.task is not None:
        return False
    (on,) = [job for job in dag if job.name == edge.on]
    kinds = [each.kind for each in on.edges]
    starts = any if on.any_of else all
    waited = bool(on.held) or not starts(kind == "after" for kind in kinds)
    is_one = bool(on.tasks) and "aftercorr" not in kinds  # which has slurmctld take it apart
    return is_one and waited and all(found[unit] == CANCELLED for unit in on.units)


def _verdict(edge: Edge, unit: Unit, dag: Dag, found: Mapping[Unit, str]) -> bool | None:
    """Whether a condition is met; False: it never can be; None: it is waited for."""
    states = [found[each] for each in waited_for(edge, unit, dag) if each in found]
    if any(state not in ENDED for state in states):
        return None
    if edge.kind in ("after", "afterany", "singleton"):
        return True
    is_ok = all(state == COMPLETED for state in states)
    return is_ok is not (edge.kind == "afternotok")


def waited_for(edge: Edge, unit: Unit, dag: Dag) -> list[Unit]:
    """The jobs, or tasks, that a condition of ``unit`` speaks of; a singleton's array is one."""
    jobs = {job.name: job for job in dag}
    if not edge.on:
        before = dag[: dag.index(jobs[unit[0]])]
        return [each for job in before if job.title == jobs[unit[0]].title for each in job.units]
    units = jobs[edge.on].units
    if edge.task is not None:
        return [(edge.on, edge.task)]
    if edge.kind == "aftercorr" and (edge.on, unit[1]) in units:
        return [(edge.on, unit[1])]
    return units


# ---- in which order ----


@dataclass(frozen=True, slots=True)
class Times:
    """When a job started and ended.

    Attributes:
        began: as its Slurm has it, ISO 8601; "": it did not.
        start_s: by its own account, Unix time; None: it did not.
        end_s: the same.
    """

    began: str = ""
    start_s: float | None = None
    end_s: float | None = None


def disorder(dag: Dag, times: Mapping[Unit, Times], *, lax: bool) -> Iterator[str]:
    """Each job that started before it might, in words.

    ``lax`` lets a singleton pass tasks of an earlier array, as slurmctld does at times: it numbers
    them anew as they start, and looks for smaller numbers.
    """
    for job in dag:
        for unit in job.units:
            if times[unit].start_s is None or not job.edges:
                continue
            in_order = [
                all(
                    _follows(times[unit], times[one], edge)
                    for one in waited_for(edge, unit, dag)
                    if not (lax and edge.kind == "singleton" and one[1] >= 0)
                )
                for edge in job.edges
            ]
            if not (any(in_order) if job.any_of else all(in_order)):
                yield f"{unit} started before it might: {times[unit]}, {job.edges}: {in_order}"


def _follows(later: Times, earlier: Times, edge: Edge) -> bool:
    """Whether one job started behind another's start, or end; what never started was cancelled."""
    if edge.kind == "after":
        return not earlier.began or later.began >= earlier.began
    if earlier.start_s is None:
        return True
    return (
        earlier.end_s is not None and later.start_s is not None and earlier.end_s <= later.start_s
    )


def told(text: str) -> dict[Unit, Times]:
    """What jobs wrote of their own start and end."""
    found: dict[Unit, Times] = {}
    for line in text.splitlines():
        name, task, what, at_s = line.split()
        known = found.get((name, int(task)), Times())
        if what == "start":
            found[name, int(task)] = replace(known, start_s=float(at_s))
        else:
            found[name, int(task)] = replace(known, end_s=float(at_s))
    return found


def script(trace: str, word: str) -> str:
    """What every job runs: it notes its start and end, and waits for a word in between.

    Its arguments are its name, how long it lasts then, and which of its tasks fail.
    """
    return f"""#!/bin/bash
task=${{SLURM_ARRAY_TASK_ID:--1}} name=$1
note() {{ echo "$name $task $1 $EPOCHREALTIME" >>{trace}; }}
note start
trap 'note end; exit 143' TERM
until [ -e {word} ]; do sleep 0.2; done
sleep "$2"
note end
case " $3 " in *" $task "*) exit 3 ;; esac
"""
