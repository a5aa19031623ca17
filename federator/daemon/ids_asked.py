"""Reads the job ids of a call, as clients write them; and says whose an unknown one may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federator.errors import InvalidRequest
from federator.model.workload import FIRST_WORKLOAD_ID, Workload
from federator.sched.state.expiry import LIVE
from federator.sched.state.ledger import Ledger

MAX_IDS: Final = 1_000


def own_ids(ids: tuple[str, ...], federation: str) -> tuple[str, ...]:
    """Take off what ``fsbatch --parsable -M`` writes behind an id: ``;FEDERATION``.

    Raises:
        InvalidRequest: it is the id of another federation; or there are too many.
    """
    if len(ids) > MAX_IDS:
        raise InvalidRequest(f"{len(ids)} job ids in one request, at most {MAX_IDS}")
    bare = []
    for id_ in ids:
        number, mark, named = id_.partition(";")
        if mark and named != federation:
            raise InvalidRequest(
                f"Invalid job id specified: {id_[:60]} is of another federation; this one is "
                f"called {federation}"
            )
        bare.append(number)
    return tuple(bare)


def whose_number(ledger: Ledger, name: str, may: Callable[[Workload], bool]) -> str:
    """What helps with an id that there is not: it may be the number of a job at a site.

    Args:
        ledger: knows the sites' numbers of jobs that live.
        name: the id.
        may: whether who asks may change a workload; others are not told of.

    Returns:
        Words to be put behind Slurm's; "": nothing is known.
    """
    number = name.partition("_")[0]
    if not (number.isascii() and number.isdecimal() and len(number) < 11):
        return ""
    if int(number) >= FIRST_WORKLOAD_ID:
        return ""
    ours = [
        f"job {entry.workload.id} has this number at {entry.site}"
        for entry in ledger.in_state(*LIVE)
        if entry.site_job_id == int(number) and may(entry.workload)
    ]
    if ours:
        return "; " + ", ".join(ours[:3])
    return "; a job that was submitted to a site itself is known there alone: use that site's Slurm"
