"""Reads the job ids of a call, as clients write them, and explains unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from federator.errors import InvalidRequest
from federator.model.lifecycle import AT_SITE
from federator.model.workload import FIRST_WORKLOAD_ID, Workload
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


class SiteNumbers:
    """Explains an id that the federation does not have: it may be the number of a job at a site.

    Of one call: jobs are looked through once, when the first such id comes, however many come.

    Args:
        ledger: knows the sites' numbers of jobs that are there.
        may: whether the caller may change a workload; of others nothing is said.
    """

    def __init__(self, ledger: Ledger, may: Callable[[Workload], bool]) -> None:
        self._ledger, self._may = ledger, may
        self._known: dict[int, list[str]] | None = None

    def whose(self, name: str) -> str:
        """Words to be put behind Slurm's; "": nothing is known of this id."""
        number = name.partition("_")[0]
        if not (number.isascii() and number.isdecimal() and len(number) < 11):
            return ""
        if int(number) >= FIRST_WORKLOAD_ID:
            return ""
        if self._known is None:
            self._known = self._at_sites()
        if own := self._known.get(int(number)):
            return "; " + ", ".join(own[:3])
        return (
            "; a job that was submitted to a site itself is known there alone: use that site's "
            "Slurm"
        )

    def _at_sites(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for entry in self._ledger.in_state(*AT_SITE):
            if entry.site_job_id and self._may(entry.workload):
                words = f"job {entry.workload.id} has this number at {entry.site}"
                found.setdefault(entry.site_job_id, []).append(words)
        return found
