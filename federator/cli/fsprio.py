"""fsprio: why jobs that wait rank as they do, with sprio's options."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from federator.cli import flags
from federator.cli.client import call
from federator.cli.columns import Column, Format, by_letters, fitted, lines
from federator.cli.flags import Flag, Given, Program
from federator.cli.queue_columns import Shown, job_id
from federator.cli.text import listed, printable, unexpected, users_named
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, QueueCall, QueueReply, QueueRow
from federator.wire.queue_rows import QueueRank

_DEFAULT: Final = "%.15i %9r %.8o %.10Y %.7g %.10A %.10F %.10N %.10k %.6d"
_LONG: Final = (
    "%.15i %9r %.8u %.8o %.10Y %.7g %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.10N %.10x %.20T "
    "%.10k %.6d"
)
_NORMAL: Final = "%.15i %9r %.8u %.10y %.10a %.10f"
_LOWEST: Final = 7  # priority
_ID: Final = re.compile(r"[0-9]+(?:_[0-9]+)?(?:;.+)?", re.ASCII)

PROGRAM: Final = Program(
    "fsprio",
    "[JOBID]...",
    "Show the rank of each job that waits, and the terms of it, with sprio's options.\n\n"
    "Examples: fsprio · fsprio -l -u ada · fsprio -j 4294967297 -o '%i %d %k'",
    (
        Flag("clusters", "M", "NAMES", "The federation's name, or all: what waits has no site.",
             also=("cluster",)),
        Flag("federation", about="No effect."),
        Flag("format", "o", "TEXT", "Columns by letter: '%.15i %Y %k' (docs/commands.md)."),
        Flag("jobs", "j", "IDS", "Only these job ids.", optional=True),
        Flag("local", about="No effect."),
        Flag("long", "l", about="More columns."),
        Flag("noheader", "h", about="No header line."),
        Flag("norm", "n", about="Terms between 0 and 1."),
        Flag("partition", "p", "NAMES", "Only jobs that ask for one of these partitions."),
        Flag("sort", "S", "FIELDS", "Order of the rows: Y,-k; by default that of the queue."),
        Flag("users", "u", "NAMES", "Only these users.", also=("user",)),
        Flag("verbose", "v", about="Say how many rows there are."),
        Flag("sibling", instead="a job that waits has no site; leave it out"),
        Flag("weights", "w", instead="the weights are policy.credit of federation.yaml"),
    ),
)  # fmt: skip


class RankedJob(NamedTuple):
    """One job that waits, with its rank."""

    row: QueueRow
    rank: QueueRank


def fsprio(given: Given) -> int:
    """Show the table."""
    form, order = _form(given), _order(given.get("sort"))
    reply = call(_question(given))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    jobs = [RankedJob(row, row.rank) for row in reply.rows if row.rank and row.rank.position]
    jobs.sort(key=lambda job: job.rank.position)
    for key, is_reversed in reversed(order):
        jobs.sort(key=key, reverse=is_reversed)
    if reply.left_off:
        note = f"fsprio: {reply.left_off} jobs are left off; ask for fewer (-j, -u)"
        print(note, file=sys.stderr)
    for id_ in reply.unknown:
        print(printable(f"fsprio: Invalid job id specified: {id_}"), file=sys.stderr)
    if "verbose" in given:
        print(f"fsprio: {len(jobs)} jobs", file=sys.stderr)
    if "format" not in given:
        form = fitted(form, "JobID", jobs)
    for line in lines(form, jobs, header="noheader" not in given):
        print(line)
    return 0


def _question(given: Given) -> QueueCall:
    return QueueCall(
        ids=_ids(given),
        users=users_named(given.get("users")),
        states=("PENDING",),
        partitions=listed(given.get("partition")),
        clusters=listed(given.get("clusters")),
        collapsed=True,
        why=True,
        details=True,
    )


def _ids(given: Given) -> tuple[str, ...]:
    words = (*given.operands, *filter(None, [given.get("jobs")]))
    ids = tuple(id_ for word in words for id_ in listed(word))
    for id_ in ids:
        if not _ID.fullmatch(id_):
            raise InvalidRequest(f"Invalid job id: {printable(id_[:60])}")
    return ids


def _form(given: Given) -> Format[RankedJob]:
    text = given.get("format")
    if text is not None and {"long", "norm"} & set(given.values):
        raise InvalidRequest("-o (--format) is incompatible with -l (--long) and -n (--norm)")
    if text is None:
        text = _LONG if "long" in given else _NORMAL if "norm" in given else _DEFAULT
    return by_letters(text, COLUMNS)


def _order(text: str | None) -> list[tuple[Callable[[RankedJob], Any], bool]]:
    found = []
    for word in listed(text):
        key = _KEYS.get(word.lstrip("+-"))
        if key is None:
            raise InvalidRequest(f"Invalid sort specification: {printable(word[:20])}")
        found.append((key, word.startswith("-")))
    return found


# ---- values ----


def _partitions(job: RankedJob) -> str:
    names = job.row.details.partitions if job.row.details is not None else ()
    return ",".join(names) or "(null)"


def _quota(job: RankedJob) -> str:
    if not job.rank.by_quota:
        return "n/a"
    return "within" if job.rank.within_quota else "over"


def _age_frac(job: RankedJob) -> float:
    """The age term as a part of the most that it can be."""
    most = job.rank.age_cap_h * job.rank.per_hour_waited
    return min(1.0, job.rank.age_term / most) if most else 0.0


def _share_frac(job: RankedJob) -> float:
    return 1.0 - job.rank.usage_share_frac if job.rank.by_quota else 0.0


def _priority_frac(job: RankedJob) -> float:
    return (_LOWEST - job.rank.priority) / (_LOWEST - 1)


def _term(value: Callable[[QueueRank], float]) -> Callable[[RankedJob], str]:
    return lambda job: f"{value(job.rank):.2f}"


def _frac(value: Callable[[RankedJob], float]) -> Callable[[RankedJob], str]:
    return lambda job: f"{value(job):.7f}"


def _none(_: RankedJob) -> str:
    return "0"


_C = Column[RankedJob]
COLUMNS: Final[tuple[Column[RankedJob], ...]] = (
    _C("AgeNorm", "AGE", _frac(_age_frac), "a"),
    _C("Age", "AGE", _term(lambda rank: rank.age_term), "A"),
    _C("AssocNorm", "ASSOC", _none, "b"),
    _C("Assoc", "ASSOC", _none, "B"),
    _C("Cluster", "CLUSTER", lambda job: job.row.site or "(null)", "c"),
    _C("FairShareNorm", "FAIRSHARE", _frac(_share_frac), "f"),
    _C("FairShare", "FAIRSHARE", _term(lambda rank: rank.fair_share_term), "F"),
    _C("JobID", "JOBID", lambda job: job_id(Shown(job.row)), "i"),
    _C("JobSizeNorm", "JOBSIZE", _none, "j"),
    _C("JobSize", "JOBSIZE", _none, "J"),
    _C("Nice", "NICE", _term(lambda rank: -rank.nice_term), "N"),
    _C("Account", "ACCOUNT", lambda job: job.row.tenant, "o"),
    _C("PartitionNorm", "PARTITION", _none, "p"),
    _C("PartitionFactor", "PARTITION", _none, "P"),
    _C("QOSNorm", "QOS", _none, "q"),
    _C("QOS", "QOS", _none, "Q"),
    _C("Partition", "PARTITION", _partitions, "r"),
    _C("Site", "SITE", _none, "S"),
    _C("TRESNorm", "TRES", _none, "t"),
    _C("TRES", "TRES", _none, "T"),
    _C("User", "USER", lambda job: job.row.user, "u"),
    _C("PriorityNorm", "PRIORITY", _frac(_priority_frac), "y"),
    _C("Priority", "PRIORITY", lambda job: str(job.rank.priority), "Y"),
    _C("Rank", "RANK", lambda job: str(job.rank.position), "d"),
    _C("Quota", "QUOTA", _quota, "g"),
    _C("Credit", "CREDIT", _term(lambda rank: rank.credit), "k"),
    _C("NoPreempt", "NOPREEMPT", _term(lambda rank: -rank.non_preemptible_term), "x"),
)
_KEYS: Final[Mapping[str, Callable[[RankedJob], Any]]] = MappingProxyType(
    {
        "a": _age_frac,
        "A": lambda job: job.rank.age_term,
        "d": lambda job: job.rank.position,
        "f": _share_frac,
        "F": lambda job: job.rank.fair_share_term,
        "g": lambda job: job.rank.within_quota,
        "i": lambda job: (job.row.array_id or job.row.id, job.row.array_index),
        "k": lambda job: job.rank.credit,
        "N": lambda job: -job.rank.nice_term,
        "o": lambda job: job.row.tenant,
        "r": _partitions,
        "u": lambda job: job.row.user,
        "y": _priority_frac,
        "Y": lambda job: -job.rank.priority,
    }
)


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fsprio)


if __name__ == "__main__":
    main()
