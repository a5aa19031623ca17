"""What an agent leaves in its spool for the site's hooks, and what it takes away again."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import SiteUnavailable
from federator.model.site import GpuModel
from federator.model.workload import AttemptId, WorkloadId
from federator.sites import spool as spool_module
from federator.sites.protocol import TenantCap
from federator.sites.spool import (
    AGAIN_S,
    JUNK_AGE_S,
    MAX_ADMISSION_BYTES,
    MAX_ADMISSION_LINES,
    TICKET_LASTS_S,
    TIDY_S,
    SlowThread,
    Spool,
    admission_text,
)
from tests.fakes.clock import VirtualClock

_T = TypeVar("_T")
USER = "ada"


def attempt(workload: int = 7, number: int = 1) -> AttemptId:
    return AttemptId(workload=WorkloadId(workload), attempt=number)


class Disk:
    """Does at once what is asked for, or fails as a disk would."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def __call__(self, act: Callable[[], _T]) -> _T:
        if self.error is not None:
            raise self.error
        return act()


class Fixture:
    """A spool on a disk, and how time goes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Disk()
        self.clock = VirtualClock()
        self.spool = self.again()

    def again(self) -> Spool:
        """As the next agent finds it."""
        self.spool = Spool(self.folder, self.clock, self.disk)
        asyncio.run(self.spool.look())
        return self.spool

    def do(self, work: Coroutine[None, None, _T]) -> _T:
        return asyncio.run(work)

    def names(self, kind: str) -> set[str]:
        return set(os.listdir(self.folder / kind))

    def mode(self, *path: str) -> int:
        return self.folder.joinpath(*path).stat().st_mode & 0o7777


@pytest.fixture
def site(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


# ---- folders ----


def test_tickets_cannot_be_listed_and_leases_can_be_tied_by_any_node(site: Fixture) -> None:
    assert site.mode("tickets") == 0o711
    assert site.mode("leases") == 0o1733


def test_a_folder_with_another_mode_is_set_right(site: Fixture) -> None:
    (site.folder / "tickets").chmod(0o755)
    site.again()
    assert site.mode("tickets") == 0o711


def test_a_missing_spool_is_trouble_that_says_where(tmp_path: Path) -> None:
    site = Fixture(tmp_path / "none")
    assert str(tmp_path / "none") in site.spool.trouble
    assert "no such folder" in site.spool.trouble
    with pytest.raises(SiteUnavailable, match="cannot be used"):
        site.do(site.spool.open(attempt(), USER))


def test_a_folder_that_vanishes_is_trouble_until_it_is_back(site: Fixture) -> None:
    """What is to be removed from it is gone, too, but that mends nothing."""
    site.folder.rename(site.folder.with_suffix(".away"))
    with pytest.raises(SiteUnavailable):
        site.do(site.spool.open(attempt(), USER))
    site.do(site.spool.release(attempt()))
    assert site.spool.trouble
    site.folder.with_suffix(".away").rename(site.folder)
    site.clock.advance(AGAIN_S)
    site.do(site.spool.look())
    assert not site.spool.trouble


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "leases").symlink_to(elsewhere)
    site = Fixture(folder)
    assert site.spool.trouble
    assert elsewhere.stat().st_mode & 0o7777 == 0o755


def test_without_a_spool_nothing_is_written_and_nothing_is_wrong() -> None:
    spool = Spool(None, VirtualClock(), Disk())
    assert asyncio.run(spool.open(attempt(), USER)) == ""
    assert spool.trouble == ""
    assert spool.leased == frozenset()


# ---- tickets ----


def test_a_ticket_names_attempt_user_and_end_and_is_readable_by_whoever_has_the_token(
    site: Fixture,
) -> None:
    token = site.do(site.spool.open(attempt(), USER))
    assert len(token) == 32
    assert set(token) <= set("0123456789abcdef")
    text = (site.folder / "tickets" / token).read_text()
    assert text == f"fed:7:1 ada {int(site.clock() + TICKET_LASTS_S)}\n"
    assert site.mode("tickets", token) == 0o644


def test_a_ticket_goes_when_sbatch_has_returned_and_the_lease_stays(site: Fixture) -> None:
    site.do(site.spool.shut(site.do(site.spool.open(attempt(), USER))))
    assert (site.names("tickets"), site.names("leases")) == (set(), {"7.1"})


def test_no_two_tickets_are_alike(site: Fixture) -> None:
    assert site.do(site.spool.open(attempt(), USER)) != site.do(site.spool.open(attempt(), USER))


def test_tickets_of_an_agent_that_died_are_removed_and_those_in_use_are_kept(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    left = site.names("tickets")
    spool = site.again()
    assert not left & site.names("tickets")
    token = site.do(spool.open(attempt(8), USER))
    site.clock.advance(TIDY_S)
    site.do(spool.look())
    assert site.names("tickets") == {token}


# ---- leases ----


def test_a_lease_says_for_whom_and_since_when(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    text = (site.folder / "leases" / "7.1").read_text()
    assert json.loads(text) == {"user": "ada", "made_at_s": int(site.clock())}
    assert text.endswith("\n")
    assert site.mode("leases", "7.1") == 0o644


def test_a_lease_begins_tied_to_no_job_whatever_lay_there(site: Fixture) -> None:
    (site.folder / "leases" / "7.1").symlink_to("/etc/passwd")
    (site.folder / "leases" / "7.1.job").write_text("elsewhere 1\n")
    site.do(site.spool.open(attempt(), USER))
    assert site.names("leases") == {"7.1"}
    assert not (site.folder / "leases" / "7.1").is_symlink()


def test_a_lease_goes_with_the_job_it_was_tied_to(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    (site.folder / "leases" / "7.1.job").write_text("alpine 12\n")
    site.do(site.spool.release(attempt()))
    assert site.names("leases") == set()


def test_the_next_attempt_of_a_workload_takes_the_lease_of_the_one_before(site: Fixture) -> None:
    for number in (1, 2):
        site.do(site.spool.open(attempt(7, number), USER))
    site.do(site.spool.open(attempt(8), USER))
    assert site.names("leases") == {"7.2", "8.1"}
    assert site.spool.leased == {attempt(7, 2), attempt(8)}


def test_the_next_agent_keeps_leases_and_removes_those_of_what_is_over(site: Fixture) -> None:
    for workload in (7, 8):
        site.do(site.spool.open(attempt(workload), USER))
    spool = site.again()
    site.do(spool.settle({attempt(7): USER}, lambda a: a.workload == 8))
    assert site.names("leases") == {"7.1"}


def test_who_has_a_job_and_no_lease_gets_one(site: Fixture) -> None:
    """As when the admin gives a site its spool while jobs wait, or the folder was emptied."""
    site.do(site.spool.settle({attempt(): USER}, lambda _: False))
    assert site.names("leases") == {"7.1"}


def test_junk_goes_when_it_is_old_and_what_a_prolog_is_just_making_stays(site: Fixture) -> None:
    for name in ("old", "new", "9.1.job"):
        (site.folder / "leases" / name).write_text("")
    (site.folder / "leases" / "folder").mkdir()
    at_s = site.clock()
    os.utime(site.folder / "leases" / "new", (at_s, at_s))
    os.utime(site.folder / "leases" / "old", (0, at_s - JUNK_AGE_S - 1))
    site.again()
    assert site.names("leases") == {"new", "folder"}


# ---- when it fails ----


def test_what_could_not_be_removed_is_removed_later(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    site.disk.error = OSError(28, "No space left on device")
    site.do(site.spool.release(attempt()))
    assert "No space left on device" in site.spool.trouble
    site.disk.error = None
    site.clock.advance(AGAIN_S)
    site.do(site.spool.settle({}, lambda _: True))
    assert site.spool.trouble == ""
    assert site.names("leases") == set()


def test_a_spool_that_failed_is_looked_at_again_but_not_at_once(site: Fixture) -> None:
    site.disk.error = TimeoutError()
    with pytest.raises(SiteUnavailable, match="no answer within 3 s"):
        site.do(site.spool.open(attempt(), USER))
    site.disk.error = None
    site.do(site.spool.settle({}, lambda _: False))
    assert site.spool.trouble
    site.clock.advance(AGAIN_S)
    site.do(site.spool.settle({}, lambda _: False))
    assert not site.spool.trouble


def test_a_file_system_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits as long as it may; while that hangs, the others fail at once."""
    monkeypatch.setattr(spool_module, "TAKES_S", 0.05)
    hangs = threading.Event()
    done: list[str] = []

    async def script() -> None:
        thread = SlowThread()
        for act in (hangs.wait, lambda: done.append("too early")):
            with pytest.raises(TimeoutError):
                await thread(act)
        hangs.set()
        for each in threading.enumerate():
            if each.name == "spool":
                each.join()
        await thread(lambda: done.append("again"))

    asyncio.run(script())
    assert done == ["again"]


def test_a_thread_hands_on_what_went_wrong() -> None:
    async def script() -> None:
        thread = SlowThread()
        assert await thread(lambda: 7) == 7
        with pytest.raises(FileNotFoundError):
            await thread(Path("/none/of/these").read_text)

    asyncio.run(script())


# ---- admission.tsv ----


def cap(name: str, limit: int | None = None, used: int = 0) -> TenantCap:
    return TenantCap(name=name, limit_gpus=limit, used_gpus=used)


def test_admission_tells_tenants_and_gpu_models(site: Fixture) -> None:
    gpus = {"a100": GpuModel(mem_gib=80, nvlink=True), "l4": GpuModel(mem_gib=22.5)}
    site.do(site.spool.write_admission((cap("vision", 64, 16), cap("bio")), gpus))
    at_s = int(site.clock())
    assert (site.folder / "admission.tsv").read_text() == (
        f"federator-admission\t1\t{at_s}\n"
        "gpu\ta100\t80\t1\ngpu\tl4\t22.5\t0\n"
        "tenant\tvision\t64\t16\ntenant\tbio\t-\t0\n"
    )
    assert site.mode("admission.tsv") == 0o644
    assert set(os.listdir(site.folder)) == {"tickets", "leases", "admission.tsv"}


@given(st.lists(st.text(max_size=30), max_size=50))
def test_no_name_can_break_a_line_of_admission(names: list[str]) -> None:
    text = admission_text(map(cap, names), {name: GpuModel() for name in names}, 1.0)
    lines = text.split("\n")
    assert lines.pop() == ""
    assert lines[0] == "federator-admission\t1\t1"
    assert all(len(line.split("\t")) == 4 for line in lines[1:])
    assert all(line.startswith(("tenant\t", "gpu\t")) for line in lines[1:])
    text.encode()


def test_only_models_that_the_reader_knows_as_names_are_written() -> None:
    models = dict.fromkeys(["a100", "a100+", "é", "h_1.0-x", "a\n", ""], GpuModel())
    lines = admission_text((), models, 1.0).splitlines()[1:]
    assert [line.split("\t")[1] for line in lines] == ["a100", "h_1.0-x"]


def test_admission_stays_within_its_bounds() -> None:
    many = admission_text((cap(f"t{n}") for n in range(20_000)), {}, 1.0)
    assert many.count("\n") == MAX_ADMISSION_LINES
    long = admission_text((cap("t" * 1000 + str(n)) for n in range(9_000)), {}, 1.0)
    assert len(long.encode()) <= MAX_ADMISSION_BYTES
    assert long.endswith("\n")
