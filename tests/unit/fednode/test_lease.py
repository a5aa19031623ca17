"""A lease is one job's: whoever comes first has it, on every node and after every requeue."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
from pathlib import Path

import pytest
from fednode.lease import Claim, LeaseVerdict, attempt_of, check, check_in_time
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


def claim(leader: str = "77", node: str = "n1", user: str = "ada") -> Claim:
    return Claim("7.1", user, "alpine", leader, node)


@pytest.fixture
def leases(tmp_path: Path) -> Path:
    folder = tmp_path / "leases"
    folder.mkdir()
    (folder / "7.1").write_text('{"user": "ada", "made_at_s": 1795000000}\n')
    return folder


def test_the_first_job_has_the_lease_on_all_its_nodes_and_after_a_requeue(leases: Path) -> None:
    for node in ("n1", "n2", "n1"):
        assert check(str(leases), claim(node=node)).ok is True
    assert (leases / "7.1.job").read_text() == "alpine 77\n"
    assert sorted(os.listdir(leases)) == ["7.1", "7.1.job"]


def test_another_job_of_the_same_attempt_is_refused(leases: Path) -> None:
    check(str(leases), claim())
    verdict = check(str(leases), claim("78"))
    why = "the attempt has started as job alpine 77 already"
    assert verdict == LeaseVerdict(False, why, "other-job")


def test_without_a_lease_or_with_another_users_a_job_is_refused(leases: Path) -> None:
    assert check(str(leases), claim(user="bob")).ok is False
    (leases / "7.1").unlink()
    assert check(str(leases), claim()) == LeaseVerdict(
        False, "there is no lease for this attempt", "no-lease"
    )
    assert os.listdir(leases) == []


def test_a_spool_that_cannot_be_read_is_neither_yes_nor_no(tmp_path: Path, leases: Path) -> None:
    assert check(str(tmp_path / "absent"), claim()).ok is None
    (leases / "7.1").write_text("{")
    assert check(str(leases), claim()).ok is None
    (leases / "7.1").unlink()
    (leases / "7.1").symlink_to("/etc/passwd")
    assert check(str(leases), claim()).ok is None


def test_a_spool_that_hangs_is_not_waited_for(leases: Path) -> None:
    never = threading.Event()

    def hang(folder: str, claim: Claim) -> LeaseVerdict:
        never.wait()
        return LeaseVerdict(True)

    assert check_in_time(str(leases), claim(), 0.05, hang).ok is None
    never.set()
    assert check_in_time(str(leases), claim(), 5).ok is True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another")
@pytest.mark.parametrize("kind", ["file", "link", "folder", "full folder", "pipe"])
def test_what_a_user_put_where_the_binding_belongs_is_taken_away(kind: str, leases: Path) -> None:
    bound = leases / "7.1.job"
    if kind == "file":
        bound.write_text("alpine 99\n")
    elif kind == "link":
        bound.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(bound)
    else:
        bound.mkdir()
        if kind == "full folder":
            (bound / "x").mkdir()
    os.chown(bound, 4321, 4321, follow_symlinks=False)
    assert check(str(leases), claim()).ok is True
    assert bound.read_text() == "alpine 77\n"
    assert check(str(leases), claim("78")).ok is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another")
def test_a_lease_that_a_user_made_is_none(leases: Path) -> None:
    os.chown(leases / "7.1", 4321, 4321)
    assert check(str(leases), claim()).ok is None


def test_a_cluster_without_a_name_has_leases_too(leases: Path) -> None:
    nameless = claim()._replace(cluster="")
    assert [check(str(leases), nameless).ok for _ in range(2)] == [True, True]


def _race(folder: str, leader: str, begin: object, results: object) -> None:
    begin.wait()  # type: ignore[attr-defined]
    results.put((leader, check(folder, claim(leader, f"n{leader}")).ok))  # type: ignore[attr-defined]


def test_of_jobs_that_start_at_once_exactly_one_has_the_lease(leases: Path) -> None:
    context = multiprocessing.get_context("spawn")
    begin, results = context.Event(), context.Queue()
    racers = [
        context.Process(target=_race, args=(str(leases), str(leader), begin, results))
        for leader in (80, 80, 81, 81, 82)
    ]
    for racer in racers:
        racer.start()
    begin.set()
    found = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    winners = {leader for leader, ok in found if ok}
    assert len(winners) == 1
    assert all(ok is (leader in winners) for leader, ok in found)


@given(st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=12))
def test_whatever_the_order_the_lease_stays_the_first_ones(order: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "7.1").write_text('{"user": "ada"}')
        answers = [check(folder, claim(leader)).ok for leader in order]
    assert answers == [leader == order[0] for leader in order]


@pytest.mark.parametrize(
    ("comment", "attempt"),
    [
        ("fed:7:1", "7.1"),
        (" fed:7:1", None),
        ("\nfed:7:1", None),
        ("fed:7:1 ticket=abc", "7.1"),
        ("fed:12:30 my own", "12.30"),
        ("", None),
        ("fed:7", None),
        ("fed:7:1x", None),
        ("my fed:7:1", None),
        ("fed:../..:1", None),
        ("fed:7:1/../8", None),
        ("\tfed:7:1", None),
        ("fed:7:1\tx", None),
    ],
)
def test_only_a_comment_of_the_federation_names_an_attempt(
    comment: str, attempt: str | None
) -> None:
    assert attempt_of(comment) == attempt


@given(st.text(max_size=60))
def test_no_comment_leads_out_of_the_folder(comment: str) -> None:
    found = attempt_of(comment)
    assert found is None or set(found) <= set("0123456789.")
