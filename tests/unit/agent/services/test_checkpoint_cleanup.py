"""Folders are removed for each user alone, and never of what lives here."""

from __future__ import annotations

import asyncio
from pathlib import Path

from federator.agent.base import Removal, Tidying
from federator.agent.services.checkpoint_cleanup import Tidier
from federator.errors import SiteRefused
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import Tidied, TidyOrder


class Site:
    """A driver that keeps what it is asked."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.asked: list[tuple[str, Tidying]] = []

    async def tidy(self, user: str, order: Tidying) -> Removal:
        self.asked.append((user, order))
        if user == self.refuses:
            raise SiteRefused("the site does not let us act for them")
        return Removal(removed=order.ended)


NOW_S = 1e6


def tidied(site: Site, order: TidyOrder, live: dict[AttemptId, str] | None = None) -> list[Tidied]:
    told: list[Tidied] = []
    known = {"ada", "bob", "eve"}
    tidier = Tidier(site, lambda: live or {}, known.__contains__, lambda: NOW_S, told.append)
    asyncio.run(tidier.tidy(order))
    return told


def attempt(workload: int) -> AttemptId:
    return AttemptId(workload=WorkloadId(workload), attempt=1)


def test_each_user_is_asked_for_their_own_and_what_lives_here_stays() -> None:
    site = Site(refuses="ada")
    order = TidyOrder(
        shared="/s",
        ended={"ada": (7, 8), "bob": (9,), "mallory": (1,)},
        live={"bob": (10,)},
        below=11,
        order_id=3,
    )
    told = tidied(site, order, {attempt(12): "bob", attempt(13): "ada"})
    assert told == [
        Tidied(order_id=3, user="ada", wrong="the site does not let us act for them"),
        Tidied(order_id=3, user="bob", removed=(9,)),
        Tidied(order_id=3),
    ]
    assert site.asked == [
        ("ada", Tidying(root="/s/ada/checkpoints", ended=(7, 8), live=(13,), below=11)),
        ("bob", Tidying(root="/s/bob/checkpoints", ended=(9,), live=(10, 12), below=11)),
    ]


def test_for_old_folders_everybody_with_one_on_the_storage_is_asked(tmp_path: Path) -> None:
    for name in ("ada", "eve", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "bob").symlink_to(tmp_path / "ada")
    site = Site()
    tidied(site, TidyOrder(shared=str(tmp_path), live={"eve": (5,)}, below=9, before_s=4.0))
    assert [(user, o.live, o.before_s) for user, o in site.asked] == [
        ("ada", (), 4.0),
        ("eve", (5,), 4.0),
    ]


def test_storage_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    site = Site()
    tidied(site, TidyOrder(shared=str(tmp_path / "absent"), before_s=4.0))
    assert site.asked == []


def test_nothing_goes_before_its_time_by_the_sites_own_clock(tmp_path: Path) -> None:
    """Whatever the daemon's clock says."""
    (tmp_path / "ada").mkdir()
    site = Site()
    for before_s in (NOW_S + 1e9, NOW_S - 200.0):
        tidied(site, TidyOrder(shared=str(tmp_path), before_s=before_s, keep_s=100.0))
    assert [order.before_s for _, order in site.asked] == [NOW_S - 100.0, NOW_S - 200.0]


def test_a_daemon_that_waits_for_no_answer_gets_none() -> None:
    assert tidied(Site(), TidyOrder(shared="/s", ended={"ada": (7,)})) == []
