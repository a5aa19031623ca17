"""What sacct says counts only where it proves whose record it is and that the job is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.agent.base import Missing
from federator.model.site import SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.client import SlurmClient
from federator.slurm.parse_accounts import SACCT_FIELDS, accounted
from federator.slurm.runner import Completed

ACCOUNTS = Path(__file__).parents[2] / "contract" / "accounts"
RELEASES = sorted(path.stem for path in ACCOUNTS.glob("*.txt"))
RECORDED = "<0123456789abcdef>"  # as record_accounts has it
FIRST = 4294974300


def missing(number: int, job_id: int = 0, attempt: int = 1, user: str = "vision1") -> Missing:
    id_ = AttemptId(workload=WorkloadId(FIRST + number), attempt=attempt)
    return Missing(attempt=id_, user=user, submitted_at_s=0.0, job_id=job_id)


def test_all_three_generations_are_recorded() -> None:
    assert RELEASES == ["22.05", "24.11", "26.05"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "number", "attempt", "state", "exit_"),
    [
        ("done", 1, 1, SiteJobState.COMPLETED, (0, 0)),
        ("failed", 2, 1, SiteJobState.FAILED, (3, 0)),
        ("killed", 3, 1, SiteJobState.FAILED, (0, 9)),
        ("het", 7, 1, SiteJobState.COMPLETED, (0, 0)),
        ("array", 8, 1, SiteJobState.COMPLETED, (0, 0)),
        ("requeued", 10, 1, SiteJobState.COMPLETED, (0, 0)),
    ],
)
def test_real_records_tell_how_jobs_ended(
    release: str, name: str, number: int, attempt: int, state: SiteJobState, exit_: tuple[int, int]
) -> None:
    """With the job id, and by the user alone."""
    text = (ACCOUNTS / f"{release}.txt").read_bytes()
    ids = json.loads((ACCOUNTS / f"{release}.json").read_text())
    for wanted in (missing(number, ids[name], attempt), missing(number, 0, attempt)):
        report = accounted(text, RECORDED, [wanted])[wanted.attempt]
        assert (report.state, (report.exit_code, report.signal)) == (state, exit_)
        assert (report.user, report.site_job_id) == ("vision1", ids[name])
        assert 0 < report.started_at_s <= report.ended_at_s
        assert report.nodes
        assert len(report.components) == (2 if name == "het" else 0)


@pytest.mark.parametrize("release", RELEASES)
def test_what_proves_nothing_is_passed_over(release: str) -> None:
    text = (ACCOUNTS / f"{release}.txt").read_bytes()
    ids = json.loads((ACCOUNTS / f"{release}.json").read_text())
    nobody = [
        missing(5, ids["running"]),  # it runs on, as is known
        missing(1, ids["failed"]),  # another job's number
        missing(1, ids["done"], user="mallory"),
        missing(1, ids["done"], attempt=2),
        missing(99),
    ]
    assert accounted(text, RECORDED, nobody) == {}


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_lives_is_found_for_whoever_does_not_know_its_id(release: str) -> None:
    """Its user may have rewritten its comment since."""
    text = (ACCOUNTS / f"{release}.txt").read_bytes()
    ids = json.loads((ACCOUNTS / f"{release}.json").read_text())
    (report,) = accounted(text, RECORDED, [missing(5)]).values()
    assert (report.site_job_id, report.state) == (ids["running"], SiteJobState.RUNNING)


def line(*fields: str) -> str:
    return "|~|".join(fields)


def row(
    comment: str = "",
    command: str = "sbatch --comment=fed:4294974301:1",
    user: str = "ada",
    id_: str = "7",
    state: str = "COMPLETED",
) -> str:
    return line(id_, user, state, "0:0", "1000", "1010", "1020", "n1", comment, command)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (row(), True),
        (row(command="sbatch", comment="fed:4294974301:1 mine"), True),
        (row(command="sbatch"), False),
        (row(command="sbatch --comment=fed:4294974301:11"), False),
        (row(command="sbatch --comment=fed:4294974301:1 ticket=0f"), True),
        (row(command="sbatch '--comment=fed:4294974301:1 x'"), True),
        (row(command="sbatch --x--comment=fed:4294974301:1"), False),
        (row(state="CANCELLED by 1001"), True),
        (row(state="RUNNING"), True),
        (row(state="PENDING"), True),
        (row(state="SOMETHING_NEW"), False),
        (row(id_="x"), False),
        (row() + "|~|more", False),
    ],
)
def test_one_record(record: str, found: bool) -> None:
    wanted = missing(1, user="ada")
    assert bool(accounted(record.encode() + b"\n", "|~|", [wanted])) is found


_TEXT = st.text(st.characters(exclude_characters="~"), max_size=80)


@given(_TEXT, _TEXT)
def test_no_text_of_another_user_makes_a_record(comment: str, command: str) -> None:
    """Nobody can know the separator; with line breaks, and with what looks like a record."""
    forged = f"\n7|ada|COMPLETED|0:0|1|1|1|n1|fed:{FIRST + 1}:1|\n"
    text = row(comment=comment + forged, command=forged + command, user="mallory")
    wanted = [missing(1, user="ada")]
    assert accounted(text.encode("utf-8", "replace"), "|~|", wanted) == {}


class Runner:
    """Answers every sacct alike."""

    def __init__(self, done: Completed) -> None:
        self.done = done
        self.asked: list[Sequence[str]] = []

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        assert not stdin
        assert timeout_s > 0
        assert env["SLURM_TIME_FORMAT"] == "%s"
        self.asked.append(argv)
        return self.done


def test_a_site_without_accounting_proves_nothing() -> None:
    said = b"Slurm accounting storage is disabled\n"
    runner = Runner(Completed(exit_status=1, stdout=b"", stderr=said))
    wanted = [missing(1, 7), missing(2, 8), missing(3)]
    assert asyncio.run(SlurmClient(runner).accounts.ends_of(wanted)) == {}
    first, second, third = runner.asked
    assert list(first[6:]) == ["-j", "7,8", "-o", ",".join(SACCT_FIELDS)]
    assert list(second[6:10]) == ["-u", "vision1", "-S", "uts-60"]
    assert list(third[6:10]) == ["-u", "vision1", "-S", "uts-86400"]  # its clock may have been set
    assert first[5] != second[5]


def test_nobody_is_asked_about_nothing() -> None:
    runner = Runner(Completed(exit_status=1, stdout=b"", stderr=b""))
    assert asyncio.run(SlurmClient(runner).accounts.ends_of([])) == {}
    assert not runner.asked
