"""Asks sacct how jobs have ended and what they used, where a site keeps accounts."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from federator.agent.base import Missing
from federator.errors import SiteUnavailable
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId
from federator.slurm.helper_client import USER_NAME
from federator.slurm.parse_accounts import SACCT_FIELDS, accounted
from federator.slurm.parse_usage import USAGE_FIELDS, measured
from federator.slurm.runner import Completed
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

ACCOUNTED_AT_ONCE: Final = 200  # job ids of one sacct
KEEPS_NONE: Final = "accounting storage is disabled"  # sacct's words, since 22.05 at least
LOOK_BACK_S: Final = (60.0, 86_400.0)  # in accounts: the clock may have been set since


class SlurmAccounts:
    """The accounts of one Slurm; nothing where it keeps none, or slurmdbd is down.

    Args:
        run: carries a command out; raises ``SiteUnavailable`` where that fails.
    """

    def __init__(self, run: Callable[[Sequence[str]], Awaitable[Completed]]) -> None:
        self._run = run

    async def ends_of(self, missing: Collection[Missing]) -> dict[AttemptId, AttemptReport]:
        """The ends of those of these whom accounting knows for certain; see ``parse_accounts``.

        Of one whose job id is not known, also how it stands if it lives, by accounts. Nothing where
        the site keeps none, or cannot be asked now.
        """
        found: dict[AttemptId, AttemptReport] = {}
        by_id = [each for each in missing if each.job_id]
        for start in range(0, len(by_id), ACCOUNTED_AT_ONCE):
            some = by_id[start : start + ACCOUNTED_AT_ONCE]
            ids = ",".join(str(each.job_id) for each in some)
            found |= await self._sacct(("-j", ids), some)
        for each in missing:
            for back_s in LOOK_BACK_S:
                if each.job_id or each.attempt in found or not USER_NAME.fullmatch(each.user):
                    break
                since = f"uts{int(each.submitted_at_s - back_s)}"
                found |= await self._sacct(("-u", each.user, "-S", since), [each])
        return found

    async def _sacct(
        self, which: tuple[str, ...], missing: Sequence[Missing]
    ) -> dict[AttemptId, AttemptReport]:
        separator = f"<{secrets.token_hex(8)}>"
        argv = (
            "sacct",
            "-n",
            "-P",
            "-X",
            "-D",
            f"--delimiter={separator}",
            *which,
            "-o",
            ",".join(SACCT_FIELDS),
        )
        try:
            done = await self._run(argv)
        except SiteUnavailable:  # "Slurm accounting storage is disabled", or slurmdbd is down
            return {}
        return accounted(done.stdout, separator, missing)

    async def use_of(self, jobs: Sequence[EndedJob]) -> list[MeasuredUse | None]:
        """What each of these used, by accounting; None: it does not say, or cannot be asked now.

        Of a site that keeps no accounts an empty answer each: there is none to wait for.
        """
        found: list[MeasuredUse | None] = []
        for start in range(0, len(jobs), ACCOUNTED_AT_ONCE):
            some = jobs[start : start + ACCOUNTED_AT_ONCE]
            ids = ",".join(str(job.site_job_id) for job in some)
            argv = ("sacct", "-n", "-P", "-D", "-j", ids, "-o", ",".join(USAGE_FIELDS))
            try:
                done = await self._run(argv)
            except SiteUnavailable as error:  # as in ``_sacct``
                return [MeasuredUse() if KEEPS_NONE in str(error) else None] * len(jobs)
            found += measured(done.stdout.decode("utf-8", "replace"), some)
        return found
