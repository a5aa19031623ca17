"""The QOS of a site are known without any sweep waiting for slurmdbd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from federator.errors import SiteUnavailable
from federator.slurm.accounting_names import AccountingNames
from federator.slurm.recent_qos import FRESH_S, RecentQos
from federator.slurm.runner import Completed


class Dbd:
    """Sacctmgr; "": there is no slurmdbd, None: it hangs."""

    def __init__(self, says: str | None) -> None:
        self.says = says
        self.asked = 0

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        assert argv[0] == "sacctmgr"
        self.asked += 1
        if self.says is None:
            raise SiteUnavailable("sacctmgr: no end after 10 s")
        return Completed(exit_status=0 if self.says else 1, stdout=self.says.encode(), stderr=b"")


def test_the_names_come_beside_the_sweeps_and_are_asked_for_anew() -> None:
    async def scene() -> None:
        dbd, now_s = Dbd("normal\nurgent\n"), 0.0
        qos = RecentQos(AccountingNames(dbd), lambda: now_s)
        assert qos.names() is None, "the first sweep does not wait"
        await asyncio.sleep(0)
        assert qos.names() == frozenset({"normal", "urgent"})
        dbd.says, now_s = "normal\n", FRESH_S - 1
        qos.names()
        await asyncio.sleep(0)
        assert dbd.asked == 1
        now_s = FRESH_S
        qos.names()
        await asyncio.sleep(0)
        assert qos.names() == frozenset({"normal"})

    asyncio.run(scene())


def test_a_site_whose_slurmdbd_does_not_answer_tells_nothing() -> None:
    async def scene(then: str | None) -> None:
        dbd, now_s = Dbd("normal\n"), 0.0
        qos = RecentQos(AccountingNames(dbd), lambda: now_s)
        qos.names()
        await asyncio.sleep(0)
        dbd.says, now_s = then, FRESH_S
        qos.names()
        await asyncio.sleep(0)
        assert qos.names() is None

    for then in ("", None):
        asyncio.run(scene(then))
    assert RecentQos(None).names() is None
