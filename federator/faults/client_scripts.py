"""The scripts of simulated users: what each submits, and what it does about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import Final

from federator.model.site import Node
from federator.model.submission import Option, Submission
from federator.slurm.options.quantities import array

USERS: Final = ("ada", "bob", "eve")
_PLAIN: Final = ((1, 4), (1, 8), (2, 8))
_HET: Final = (
    ((1, 4), (1, 0)),
    ((1, 8), (1, 4)),
    ((1, 8), (1, 0), (1, 0)),
    ((1, 4), (1, 8), (1, 0)),
)
ELASTIC_PART: Final = 0.4
SUBMISSIONS: Final = (3, 6, 6, 8, 11, 11)
QUIET: Final = 3  # submissions: nodes are idle, and jobs that may grow do; nearly all are elastic
ELASTIC_IF_QUIET_PART: Final = 0.9
WRITING_PART: Final = 0.4
SPARE_PART: Final = 0.7  # of the jobs of one size that may have any node, where a site has three
_WITH_SPARE: Final = ((2, 4),)  # what these become, one node more for the spare
_ELASTIC: Final = {1: ("1-2", "1-3", "1-3:2"), 2: ("1-2", "1-3", "2-3")}  # by nodes asked for
_ARRAYS: Final = ("0-1", "0-2%1", "1,4-7:3,9%2", "0-4%2")
_KINDS: Final = ("afterok", "afterany", "afternotok", "after")
_WISHES: Final = ("", "", "", "hold", "chain", "chain", "node", "exclude", "deadline", "session")

_ANYWHERE: Final = ("", "hold", "chain", "deadline")  # wishes of who may have any node


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What a job waits for: ``--dependency=KIND:JOB``, killed if that can never be."""

    kind: str
    script: int  # number of the one that submits the other job


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientScript:
    """One submission, and what its owner does about it."""

    number: int
    at_s: float  # from the beginning
    user: str
    parts: tuple[tuple[int, int], ...]  # of each component: nodes, and GPUs of each; 0: CPUs alone
    time_limit_s: int
    array: str = ""  # as sbatch's --array; "": none
    elastic: str = ""  # as --fed-elastic; "": it has one size
    spare: int = 0  # as --fed-spare; 0: it has none
    writes: str = ""  # as --fed-output; "": it writes no data set
    site: str = ""  # of the node that it names
    nodelist: str = ""  # a node that it must have
    exclude: str = ""  # one that it must not have, at any site
    deadline_s: float = 0.0  # later than its latest start; 0: it has no deadline
    waits_for: Chain | None = None
    released_after_s: float | None = None  # submitted on hold; None: it was not
    terminal_s: float = 0.0  # its command waits at a terminal, then dies; 0: it is no session
    cancel_after_s: float | None = None
    cancels_one_task: bool = False  # of an array, not all of it
    loses_answer: bool = False
    asks_again: bool = False  # though it knows
    cancels_twice: bool = False
    reuses_key: bool = False  # for something else

    @property
    def key(self) -> str:
        return f"wish-{self.number:04d}"

    @property
    def tasks(self) -> tuple[int, ...]:
        """The indices of its array; empty: it is none."""
        return array(self.array)[0] if self.array else ()

    def submission(self, now_s: float, after: int = 0) -> Submission:
        """What it submits at this Unix time; ``after``: the id of the job that it waits for."""
        return Submission(
            components=tuple(self._component(*part, now_s, after) for part in self.parts),
            script="#!/bin/sh\ntrue\n",
        )

    def _component(self, nodes: int, gpus: int, now_s: float, after: int) -> tuple[Option, ...]:
        minutes, seconds = divmod(self.time_limit_s, 60)
        asked = {
            "job-name": f"w{self.number}",
            "nodes": str(nodes),
            "time": f"{minutes}:{seconds:02d}",
        }
        asked |= {"gpus-per-node": str(gpus)} if gpus else {"cpus-per-task": "8"}
        asked |= {"array": self.array} if self.array else {}
        asked |= {"fed-elastic": self.elastic} if self.elastic else {}
        asked |= {"fed-spare": str(self.spare)} if self.spare else {}
        asked |= {"fed-output": self.writes} if self.writes else {}
        asked |= {"nodelist": f"{self.site}:{self.nodelist}"} if self.nodelist else {}
        asked |= {"exclude": self.exclude} if self.exclude else {}
        if self.deadline_s:
            lasts_s = ceil(self.time_limit_s / 60) * 60
            asked |= {"deadline": f"uts{now_s + lasts_s + self.deadline_s:.0f}"}
        if self.waits_for is not None:
            asked |= {"dependency": f"{self.waits_for.kind}:{after}", "kill-on-invalid-dep": "yes"}
        options = tuple(Option(name=name, value=value) for name, value in asked.items())
        on_hold = self.released_after_s is not None
        return (*options, Option(name="hold", value=None)) if on_hold else options


def client_scripts(rng: Random, nodes: Mapping[str, Sequence[Node]]) -> list[ClientScript]:
    """The scripts of the users of one history; ``nodes``: of each site."""
    count = rng.choice(SUBMISSIONS)
    elastic_part = ELASTIC_IF_QUIET_PART if count == QUIET else ELASTIC_PART
    return [_client_script(rng, number, nodes, elastic_part) for number in range(count)]


def _client_script(
    rng: Random, number: int, nodes: Mapping[str, Sequence[Node]], elastic_part: float
) -> ClientScript:
    kind = rng.choice(("plain", "plain", "plain", "het", "array"))
    parts = rng.choice(_HET) if kind == "het" else (rng.choice(_PLAIN),)
    wish = rng.choice(_WISHES)
    site = rng.choice(list(nodes))
    named = rng.choice([node.name for node in nodes[site] if node.gpus])
    chain = Chain(kind=rng.choice(_KINDS), script=rng.randrange(number)) if number else None
    script = ClientScript(
        number=number,
        at_s=rng.uniform(0.0, 55.0),
        user=rng.choice(USERS),
        parts=parts,
        array=rng.choice(_ARRAYS) if kind == "array" else "",
        time_limit_s=rng.choice((20, 90, 180)),
        site=site if wish == "node" and kind != "het" else "",
        nodelist=named if wish == "node" and kind != "het" else "",
        exclude=named if wish == "exclude" else "",
        deadline_s=rng.uniform(5.0, 120.0) if wish == "deadline" else 0.0,
        waits_for=chain if wish == "chain" else None,
        released_after_s=rng.uniform(0.0, 40.0) if wish == "hold" else None,
        terminal_s=rng.uniform(5.0, 80.0) if wish == "session" and kind == "plain" else 0.0,
        cancel_after_s=rng.uniform(0.0, 40.0) if rng.random() < 0.25 else None,
        cancels_one_task=rng.random() < 0.5,
        loses_answer=rng.random() < 0.2,
        asks_again=rng.random() < 0.1,
        reuses_key=rng.random() < 0.1,
        cancels_twice=rng.random() < 0.4,
    )
    script = _elastic(script, elastic_part) if kind == "plain" and not script.terminal_s else script
    most = max(sum(node.gpus > 0 for node in each) for each in nodes.values())
    script = _with_spare(script, most) if kind == "plain" and wish in _ANYWHERE else script
    return script if kind == "het" else _writing(script)


def _writing(script: ClientScript) -> ClientScript:
    """The same; some write a data set. All else is drawn as if there were none."""
    own = Random(f"output {script.at_s}")
    version = f"@v{script.number}" if not script.array and own.random() < 0.5 else ""
    if own.random() < WRITING_PART:
        return replace(script, writes=f"{script.user}/maps{version}")
    return script


def _with_spare(script: ClientScript, most_nodes: int) -> ClientScript:
    """The same; some are gangs with a spare node. All else is drawn as if there were none."""
    own = Random(f"spare {script.at_s}")
    if script.elastic or most_nodes < 3 or own.random() >= SPARE_PART:
        return script
    return replace(script, parts=_WITH_SPARE, spare=1, time_limit_s=180)


def _elastic(script: ClientScript, part: float) -> ClientScript:
    """The same; some run on a range of nodes. All else is drawn as if there were none."""
    own = Random(f"elastic {script.at_s}")
    ((nodes, _),) = script.parts
    if own.random() < part:
        return replace(script, elastic=own.choice(_ELASTIC[nodes]), time_limit_s=180)
    return script
