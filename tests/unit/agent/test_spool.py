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

from federator.agent import spool as spool_module
from federator.agent import spool_folder
from federator.agent.lease_wrapper import FOLDER
from federator.agent.spool import (
    AGAIN_S,
    LEASES_AT_ONCE,
    MAX_ADMISSION_BYTES,
    MAX_ADMISSION_LINES,
    TIDY_S,
    SlowThread,
    Spool,
    admission_text,
)
from federator.agent.spool_folder import JUNK_AGE_S, TICKET_LASTS_S
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock
from federator.model.site import GpuModel
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import TenantCap

_T = TypeVar("_T")
USER = "ada"


def attempt(workload: int = 7, number: int = 1) -> AttemptId:
    return AttemptId(workload=WorkloadId(workload), attempt=number)


class Disk:
    """Does at once what is asked for, or fails as a disk would."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.acts = 0

    async def __call__(self, act: Callable[[], _T]) -> _T:
        self.acts += 1
        if self.error is not None:
            raise self.error
        return act()


class Fixture:
    """A spool on a disk, and how time goes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = "alpine"
        self.disk = Disk()
        self.clock = VirtualClock()
        self.spool = self.again()

    def again(self) -> Spool:
        """As the next agent finds it."""
        self.spool = Spool(self.folder, self.site, self.clock, self.disk)
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
    spool = Spool(None, "alpine", VirtualClock(), Disk())
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


def made_at(site: Fixture, token: str, at_s: float) -> None:
    os.utime(site.folder / "tickets" / token, (at_s, at_s))


def test_a_ticket_outlives_its_agent_as_its_sbatch_may_and_goes_when_it_has_run_out(
    site: Fixture,
) -> None:
    left = site.do(site.spool.open(attempt(), USER))
    made_at(site, left, site.clock())
    spool = site.again()
    token = site.do(spool.open(attempt(8), USER))
    made_at(site, token, site.clock() - TICKET_LASTS_S - 1)  # used all the same
    assert site.names("tickets") == {left, token}
    site.clock.advance(max(TIDY_S, TICKET_LASTS_S + 1))
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


def test_who_lost_its_lease_keeps_what_starts_it_until_it_is_over(site: Fixture) -> None:
    starter = site.folder / FOLDER / "7.1"
    starter.write_text("exec /bin/sh")
    os.utime(starter, (0, 0))
    spool = site.again()
    site.do(spool.settle({attempt(): USER}, lambda _: False))
    assert (site.names("leases"), starter.exists()) == ({"7.1"}, True)
    (site.folder / "leases" / "7.1").unlink()
    site.do(site.again().settle({}, lambda _: True))
    assert not starter.exists()


def test_junk_goes_when_it_is_old_and_what_a_prolog_is_just_making_stays(site: Fixture) -> None:
    for name in ("old", "new", "9.1.job"):
        (site.folder / "leases" / name).write_text("")
    (site.folder / "leases" / "folder").mkdir()
    at_s = site.clock()
    os.utime(site.folder / "leases" / "new", (at_s, at_s))
    os.utime(site.folder / "leases" / "old", (0, at_s - JUNK_AGE_S - 1))
    site.again()
    assert site.names("leases") == {"new", "folder"}


def test_an_order_that_comes_late_takes_no_lease_of_a_later_attempt(site: Fixture) -> None:
    for number in (2, 1):
        site.do(site.spool.open(attempt(7, number), USER))
    assert site.names("leases") == {"7.1", "7.2"}


# ---- what others may put there ----


def foreign(site: Fixture, name: str) -> Path:
    """A folder that is not empty, so that nobody but its owner can remove it."""
    path = site.folder / "leases" / name
    path.mkdir()
    (path / "mine").write_text("")
    return path


@pytest.mark.parametrize("name", ["8.1", "8.1.job"])
def test_a_folder_in_the_way_of_a_lease_is_put_aside(site: Fixture, name: str) -> None:
    foreign(site, name)
    site.do(site.spool.open(attempt(8), USER))
    assert (site.folder / "leases" / "8.1").is_file()
    assert not (site.folder / "leases" / "8.1.job").exists()
    assert not site.spool.trouble


def test_a_folder_that_looks_like_a_lease_is_none_and_no_trouble(site: Fixture) -> None:
    foreign(site, "1.1")
    for workload in (7, 8):
        site.do(site.spool.open(attempt(workload), USER))
    foreign(site, "7.1.job")
    spool = site.again()
    assert spool.leased == {attempt(7), attempt(8)}
    site.do(spool.settle({}, lambda _: True))
    assert (spool.trouble, spool.leased) == ("", frozenset())
    assert not {"7.1", "7.1.job", "8.1"} & site.names("leases")


def test_who_lives_gets_a_lease_though_another_made_something_of_its_name(site: Fixture) -> None:
    foreign(site, "7.1")
    spool = site.again()
    site.do(spool.settle({attempt(): USER, attempt(8): USER}, lambda _: False))
    assert spool.leased == {attempt(), attempt(8)}
    assert (site.folder / "leases" / "7.1").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lease_that_another_wrote_is_none(site: Fixture) -> None:
    (site.folder / "leases" / "7.1").write_text("{}")
    os.chown(site.folder / "leases" / "7.1", 12345, 12345)
    assert site.again().leased == frozenset()
    assert site.names("leases") == set()


def test_the_job_that_has_consumed_a_lease_is_told(site: Fixture) -> None:
    site.do(site.spool.open(attempt(8), USER))
    bound = site.folder / "leases" / "8.1.job"
    assert site.do(site.spool.bound_job(attempt(8), USER)) == 0
    bound.write_text("alpine 4711\n")
    assert site.do(site.spool.bound_job(attempt(8), USER)) == 4711


@pytest.mark.parametrize("text", ["", "alpine\n", "alpine 0\n", "alpine 12 3\n", "a 7\nb 8\n"])
def test_what_no_hook_would_write_names_no_job(site: Fixture, text: str) -> None:
    site.do(site.spool.open(attempt(8), USER))
    (site.folder / "leases" / "8.1.job").write_text(text)
    assert site.do(site.spool.bound_job(attempt(8), USER)) == 0


def test_a_folder_or_a_link_in_place_of_a_binding_names_no_job(site: Fixture) -> None:
    site.do(site.spool.open(attempt(8), USER))
    foreign(site, "8.1.job")
    assert site.do(site.spool.bound_job(attempt(8), USER)) == 0
    site.do(site.spool.open(attempt(9), USER))
    (site.folder / "elsewhere").write_text("alpine 4711\n")
    (site.folder / "leases" / "9.1.job").symlink_to(site.folder / "elsewhere")
    assert site.do(site.spool.bound_job(attempt(9), USER)) == 0
    assert not site.spool.trouble


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_binding_that_a_stranger_wrote_names_no_job(site: Fixture) -> None:
    site.do(site.spool.open(attempt(8), USER))
    bound = site.folder / "leases" / "8.1.job"
    bound.write_text("alpine 4711\n")
    os.chown(bound, 12345, 12345)
    assert site.do(site.spool.bound_job(attempt(8), USER)) == 0


def test_who_is_always_quicker_spoils_one_name_only(
    site: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = spool_folder._clear
    foreign(site, "7.1")
    monkeypatch.setattr(
        spool_folder, "_clear", lambda path: None if path.name == "7.1" else clear(path)
    )
    with pytest.raises(SiteUnavailable, match="in the way"):
        site.do(site.spool.open(attempt(), USER))
    assert not site.spool.trouble
    site.do(site.spool.open(attempt(8), USER))


@pytest.mark.parametrize("name", ["07.1", "7.01", "7.0"])
def test_a_name_that_the_agent_would_not_write_is_no_lease(site: Fixture, name: str) -> None:
    (site.folder / "leases" / name).write_text("{}")
    assert site.again().leased == frozenset()


# ---- one spool for each site ----


def test_another_sites_spool_is_trouble_and_nothing_in_it_is_touched(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    before = site.names("tickets"), site.names("leases")
    site.site = "boreal"
    other = site.again()
    assert "alpine" in other.trouble
    site.do(other.settle({}, lambda _: True))
    with pytest.raises(SiteUnavailable, match="alpine"):
        site.do(other.open(attempt(), "eve"))
    site.do(other.write_admission((), {}))
    assert (site.names("tickets"), site.names("leases")) == before
    assert "ada" in (site.folder / "leases" / "7.1").read_text()
    assert not (site.folder / "admission.tsv").exists()


def test_a_spool_that_becomes_anothers_is_left_alone(site: Fixture) -> None:
    site.do(site.spool.open(attempt(), USER))
    (site.folder / "site").write_text("boreal\n")
    site.clock.advance(TIDY_S)
    site.do(site.spool.settle({}, lambda _: True))
    assert "boreal" in site.spool.trouble
    assert "7.1" in site.names("leases")


# ---- when it fails ----


def test_a_submission_that_nobody_waits_for_leaves_no_ticket_behind(site: Fixture) -> None:
    async def withdrawn() -> None:
        hangs = asyncio.Event()

        async def write_and_hang(act: Callable[[], _T]) -> _T:
            act()
            await hangs.wait()
            raise AssertionError

        site.spool._act = write_and_hang
        opening = asyncio.create_task(site.spool.open(attempt(), USER))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})

    site.do(withdrawn())
    (left,) = site.names("tickets")
    made_at(site, left, site.clock())
    site.spool._act = site.disk
    site.clock.advance(max(TIDY_S, TICKET_LASTS_S + 1))
    site.do(site.spool.look())
    assert site.names("tickets") == set()


def test_many_leases_go_in_several_acts(site: Fixture) -> None:
    many = {attempt(n): USER for n in range(1, 3 * LEASES_AT_ONCE)}
    site.do(site.spool.settle({}, lambda _: True))
    site.disk.acts = 0
    site.do(site.spool.settle(many, lambda _: False))
    assert (site.disk.acts, len(site.names("leases"))) == (3, len(many))
    site.do(site.spool.settle({}, lambda _: True))
    assert site.disk.acts == 6
    assert site.names("leases") == set()


def test_a_slow_file_system_with_many_acts_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each act has its own time from its turn on."""
    monkeypatch.setattr(spool_module, "TAKES_S", 1.0)

    async def script() -> None:
        thread, gate = SlowThread(), threading.Event()
        acts = [asyncio.ensure_future(thread(lambda: gate.wait(0.3))) for _ in range(5)]
        await asyncio.gather(*acts)  # 1.5 s in all

    asyncio.run(script())


def test_figures_that_could_not_be_written_are_written_when_the_spool_is_back(
    site: Fixture,
) -> None:
    site.disk.error = OSError(28, "No space left on device")
    site.do(site.spool.write_admission((cap("vision", 64, 16),), {}))
    site.disk.error = None
    site.clock.advance(AGAIN_S)
    site.do(site.spool.look())
    assert "tenant\tvision\t64\t16" in (site.folder / "admission.tsv").read_text()


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
    assert set(os.listdir(site.folder)) == {
        *("tickets", "leases", "starts", "usage"),
        *("admission.tsv", "site"),
    }


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


def test_hooks_and_plugin_read_the_name_that_the_site_has_for_a_user(site: Fixture) -> None:
    site.spool = Spool(site.folder, site.site, site.clock, site.disk, {"ada": "a.one"}.__getitem__)
    token = site.do(site.spool.open(attempt(), USER))
    assert (site.folder / "tickets" / token).read_text().startswith("fed:7:1 a.one ")
    assert json.loads((site.folder / "leases" / "7.1").read_text())["user"] == "a.one"
    site.do(site.spool.settle({attempt(8): USER}, lambda _: False))
    assert json.loads((site.folder / "leases" / "8.1").read_text())["user"] == "a.one"
