"""Random DAGs end, and are ordered, under the federation as under each Slurm's own dependencies.

``FEDERATOR_DAG_SEEDS=100-149`` tries these instead of the one that is tried always.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pytest

from federator.testbed import inside, layout
from tests.slurm.federation import Running, at, within
from tests.slurm.random_dags import (
    CANCELLED,
    Dag,
    Times,
    Unit,
    disorder,
    draw,
    outcome,
    script,
    told,
)

pytestmark = pytest.mark.slurm
SITES: Final = tuple(site.name for site in layout.SITES)
USER: Final = "vision1"
JOBS: Final = 11
FIRST, _, LAST = os.environ.get("FEDERATOR_DAG_SEEDS", "174").partition("-")
SEEDS: Final = range(int(FIRST), int(LAST or FIRST) + 1)
_WAITS: Final = re.compile(r"JobState=PENDING Reason=(\S+)")
_STATE: Final = re.compile(r"JobState=(\S+)")
_TASKS: Final = re.compile(r"ArrayTaskId=(\S+)")
_BEGAN: Final = re.compile(r"StartTime=([0-9]\S+)")


@dataclass(frozen=True, slots=True)
class Player:
    """Plays a DAG at a site with its own sbatch, or, with the prefix ``f``, with fsbatch.

    Jobs of the federation run at all sites in turn.
    """

    site: str
    seed: int
    prefix: str = ""

    @property
    def mark(self) -> str:
        """Names the files and the jobs of this play alone."""
        return f"{self.prefix}dag-{os.getpid()}-{self.seed}"

    @property
    def runs_at(self) -> tuple[str, ...]:
        return SITES if self.prefix else (self.site,)

    def play(self, dag: Dag) -> list[str]:
        """Each job that starts before it might, in words; or those that do not end as they must."""
        try:
            return self._play(dag)
        except AssertionError as error:  # or it would hide what the others find
            return [str(error)]

    def _play(self, dag: Dag) -> list[str]:
        dag = tuple(replace(job, title=f"{job.title}-{self.mark}") for job in dag)
        word = f"/tmp/{self.mark}.word"
        ids = self._submit(dag, word)
        try:
            return list(self._differences(dag, ids, word))
        finally:
            titles = ",".join({job.title for job in dag})
            self._shell(f"{self.prefix}scancel --user={USER} --name={titles}")
            for site in self.runs_at:
                at(site, "sh", "-c", f"rm -f {word} /home/{USER}/{self.mark}*")

    def _differences(self, dag: Dag, ids: Mapping[str, str], word: str) -> Iterator[str]:
        early = {(job.name, task): CANCELLED for job in dag for task in job.cancelled}
        self._cancel(ids, [job.name for job in dag if job.cancelled])
        self._await(ids, early)
        for site in self.runs_at:
            at(site, "touch", word)
        self._await(ids, outcome(dag, late=False, plain=not self.prefix))
        self._cancel(ids, [job.name for job in dag if job.late])
        released = [ids[job.name] for job in dag if job.held == "late" and not job.cancelled]
        self._shell(*(f"{self.prefix}scontrol release {id_}" for id_ in released))
        self._await(ids, outcome(dag, late=True, plain=not self.prefix))
        yield from disorder(dag, self._times(ids, dag), lax=not self.prefix)

    def _shell(self, *lines: str, site: str = "") -> str:
        argv = ("bash", "-c", "\n".join(("set -e", *lines)))
        where = layout.site(site or self.site)
        done = inside.execute(where, argv, user=USER, timeout_s=300)
        assert done.exit_status == 0, f"{self}: {done.stderr}"
        return done.stdout

    def _submit(self, dag: Dag, word: str) -> dict[str, str]:
        """The id of each job."""
        ids = {job.name: f"${{{job.name}}}" for job in dag}
        lines = [f"cat >{self.mark}.sh <<'TXT'\n{script(f'$HOME/{self.mark}', word)}TXT"]
        for number, job in enumerate(dag):
            site, node = SITES[number % len(SITES)], f"c{1 + number % 2}"
            place = f"--nodelist={site}:{site}-{node}" if self.prefix else "--partition=local"
            options = [f'"{option}"' for option in job.options(ids)]
            fails = shlex.quote(" ".join(map(str, sorted(job.fails))))
            command = f"{self.prefix}sbatch --parsable -n1 -t5 -o /dev/null {place}"
            run = f"{self.mark}.sh {job.name} {job.lasts_s} {fails}"
            lines.append(f"{job.name}=$({command} {' '.join(options)} {run})")
        lines += [f"echo {name} {id_}" for name, id_ in ids.items()]
        return dict(line.split() for line in self._shell(*lines).splitlines())

    def _cancel(self, ids: Mapping[str, str], names: Sequence[str]) -> None:
        if names:
            self._shell(f"{self.prefix}scancel {' '.join(ids[name] for name in names)}")

    def _await(self, ids: Mapping[str, str], wanted: Mapping[Unit, str]) -> None:
        """Wait until jobs stand as they must."""
        seen: dict[Unit, str] = {}

        def look() -> bool:
            seen.update({unit: state for unit, state, _ in self._shown(ids)})
            return wanted.items() <= seen.items()

        try:
            within(40, look, 0.5)
        except AssertionError as error:
            differs = {u: (seen.get(u), s) for u, s in wanted.items() if seen.get(u) != s}
            raise AssertionError(f"{self}: stands, and should: {differs}") from error

    def _shown(self, ids: Mapping[str, str]) -> Iterator[tuple[Unit, str, str]]:
        """Each job or task, its state or the reason why it waits, and its start."""
        show = f"{self.prefix}scontrol --oneliner show job"
        text = self._shell(*(f"echo {name}; {show} {id_}" for name, id_ in ids.items()))
        name = ""
        for line in filter(None, map(str.strip, text.splitlines())):
            state = _WAITS.search(line) or _STATE.search(line)
            if state is None:
                name = line
                continue
            tasks, began = _TASKS.search(line), _BEGAN.search(line)
            for task in _numbers(tasks[1]) if tasks else [-1]:
                yield (name, task), state[1], began[1] if began else ""

    def _times(self, ids: Mapping[str, str], dag: Dag) -> dict[Unit, Times]:
        times = {unit: Times() for job in dag for unit in job.units}
        for site in self.runs_at:
            times |= told(self._shell(f"cat {self.mark} || true", site=site))
        for unit, _, began in self._shown(ids):
            if times[unit].start_s is not None:
                times[unit] = replace(times[unit], began=began)
        return times


def _numbers(text: str) -> Iterator[int]:
    """The indices of ``0,2-3%4``."""
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_dag_ends_and_is_ordered_as_under_each_slurm(
    federation: Running, seed: int
) -> None:
    dag = draw(seed, JOBS)
    players = [Player(site, seed) for site in SITES] + [Player(SITES[seed % 3], seed, "f")]
    with ThreadPoolExecutor(len(players)) as pool:
        found = list(pool.map(lambda player: player.play(dag), players))
    differs = [line for lines in found for line in lines]
    assert not differs, "\n".join(differs)
