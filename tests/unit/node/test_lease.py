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
    assert verdict == LeaseVerdict(False, "the attempt has started as job alpine 77 already")


def test_without_a_lease_or_with_another_users_a_job_is_refused(leases: Path) -> None:
    assert check(str(leases), claim(user="bob")).ok is False
    (leases / "7.1").unlink()
    assert check(str(leases), claim()) == LeaseVerdict(False, "there is no lease for this attempt")
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
def test_a_file_that_a_user_made_is_no_lease_and_binds_nothing(leases: Path) -> None:
    bound = leases / "7.1.job"
    bound.write_text("alpine 99\n")
    os.chown(bound, 4321, 4321)
    assert check(str(leases), claim()).ok is None
    bound.unlink()
    os.chown(leases / "7.1", 4321, 4321)
    assert check(str(leases), claim()).ok is None


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
        ("fed:7:1", "7.1"), ("fed:7:1 ticket=abc", "7.1"), ("fed:12:30 my own", "12.30"),
        ("", None), ("fed:7", None), ("fed:7:1x", None), ("my fed:7:1", None),
        ("fed:../..:1", None), ("fed:7:1/../8", None),
        (" fed:7:1", None), ("\tfed:7:1", None), ("\nfed:7:1", None), ("fed:7:1\tx", None),
    ],
)  # fmt: skip
def test_only_a_comment_of_the_federation_names_an_attempt(
    comment: str, attempt: str | None
) -> None:
    assert attempt_of(comment) == attempt


@given(st.text(max_size=60))
def test_no_comment_leads_out_of_the_folder(comment: str) -> None:
    found = attempt_of(comment)
    assert found is None or set(found) <= set("0123456789.")
