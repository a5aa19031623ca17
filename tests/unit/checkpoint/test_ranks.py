"""Several ranks decide together, write once, and begin again with the same checkpoint.

Ranks are threads that meet at a barrier. Processes of a real group, with PyTorch and gloo, are in
tests/slurm/test_checkpoint_training.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from federator.checkpoint import Checkpointer, Due, FederatedJob

RANKS = 3
Act = Callable[[int, Checkpointer], Any]


class AllReduce:
    """The largest number of all ranks', to each of them."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=20)
        self._numbers = [0] * size

    def of(self, rank: int) -> Callable[[int], int]:
        def agree(number: int) -> int:
            self._numbers[rank] = number
            self._barrier.wait()
            largest = max(self._numbers)
            self._barrier.wait()  # nobody begins the next round before all have read this one
            return largest

        return agree


def together(act: Act, jobs: list[FederatedJob], **options: Any) -> list[Any]:
    """What ``act`` returns, or the exception that it ends with, on each rank."""
    all_reduce = AllReduce(len(jobs))

    def rank(number: int) -> Any:
        agree = all_reduce.of(number)
        try:
            with Checkpointer(rank=number, agree=agree, job=jobs[number], **options) as ckpt:
                return act(number, ckpt)
        except (Exception, SystemExit) as error:
            return error

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(rank, range(len(jobs))))


@pytest.fixture
def jobs(tmp_path: Path) -> list[FederatedJob]:
    """Each rank's view of the job; only rank 1 can see the deadline file."""
    (tmp_path / ".fed").mkdir()
    seen, unseen = tmp_path / ".fed" / "deadline.1", tmp_path / ".fed" / "unseen"
    return [FederatedJob(tmp_path, 1, seen if n == 1 else unseen) for n in range(RANKS)]


def test_what_one_rank_knows_all_do_at_the_same_step(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    (tmp_path / ".fed" / "deadline.1").write_text("1795000000.0\n")
    asked: list[int] = []

    def act(rank: int, ckpt: Checkpointer) -> None:
        ckpt.step(5, lambda: asked.append(rank))

    ends = together(act, jobs)
    assert [end.code for end in ends] == [85] * RANKS
    assert sorted(asked) == [0, 1, 2]  # each may have to gather what the others have
    (written,) = tmp_path.glob("ckpt-*")
    assert sorted(os.listdir(written)) == ["state-0", "state-0.seal.json"]  # one writes
    notes = ["checkpointed", "deadline.1", "progress.1", "saved.1"]  # one writes these, too
    assert sorted(os.listdir(tmp_path / ".fed")) == notes


def test_a_failure_of_the_writing_rank_is_told_to_all(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    def full(_state: object, _path: Path) -> None:
        raise OSError("disk full")

    ends = together(lambda _rank, ckpt: ckpt.save(5, str), jobs, save=full)
    assert isinstance(ends[0], OSError)
    assert [str(end) for end in ends[1:]] == ["another rank could not save step 5"] * (RANKS - 1)
    assert [path.name for path in tmp_path.iterdir()] == [".fed"]


def test_a_state_may_be_gathered_from_all_ranks(jobs: list[FederatedJob]) -> None:
    """As FSDP gathers a full state dict: who asks for it waits for the others."""
    gather = AllReduce(RANKS)

    def act(rank: int, ckpt: Checkpointer) -> Any:
        ckpt.save(5, lambda: gather.of(rank)(10 * rank))
        return ckpt.latest()

    assert [found.state for found in together(act, jobs)] == [20] * RANKS


def test_a_rank_that_cannot_look_at_the_deadline_file_still_decides_with_the_others(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    jobs[2] = jobs[2]._replace(deadline_file=tmp_path / ("x" * 300))  # no such name can be
    assert together(lambda _rank, ckpt: ckpt.due(1), jobs) == [Due.NOTHING] * RANKS


def test_all_ranks_hear_of_one_that_cannot_look_for_checkpoints(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    jobs[1] = jobs[1]._replace(directory=tmp_path / ("x" * 300))
    ends = together(lambda _rank, ckpt: ckpt.latest(), jobs)
    assert isinstance(ends[1], OSError)
    assert [str(ends[n]) for n in (0, 2)] == ["another rank could not look for checkpoints"] * 2


def test_all_ranks_hear_of_one_that_cannot_load(jobs: list[FederatedJob]) -> None:
    together(lambda _rank, ckpt: ckpt.save(1, str), jobs)
    first = threading.Lock()

    def load(_path: Path) -> Any:
        if first.acquire(blocking=False):
            raise MemoryError

    ends = together(lambda _rank, ckpt: ckpt.latest(), jobs, load=load)
    assert sorted(type(end).__name__ for end in ends) == ["MemoryError", *["RuntimeError"] * 2]


def test_what_rank_0_removes_misleads_no_rank_that_looked_before(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    """Slurm started the same attempt again: the deadline of its earlier run has passed."""
    (tmp_path / ".fed" / "deadline.1").write_text("1000.0\n")
    later = [job._replace(restarts=1) for job in jobs]
    with Checkpointer(rank=1, agree=lambda number: number, job=later[1]) as ckpt:
        assert not ckpt.told_to_leave
        assert (tmp_path / ".fed" / "deadline.1").exists()
    with Checkpointer(rank=0, agree=lambda number: number, job=later[1]):
        assert not (tmp_path / ".fed" / "deadline.1").exists()


def test_every_rank_may_write_a_part_of_its_own(jobs: list[FederatedJob], tmp_path: Path) -> None:
    def act(rank: int, ckpt: Checkpointer) -> Any:
        ckpt.save(5, lambda: f"shard {rank}")
        return ckpt.latest()

    found = together(act, jobs, all_ranks_write=True)
    assert [saved.state for saved in found] == ["shard 0", "shard 1", "shard 2"]


def test_all_ranks_load_the_newest_that_is_whole_for_all(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    def write(rank: int, ckpt: Checkpointer) -> None:
        for step in (1, 2, 3):
            ckpt.save(step, partial(int, step))

    together(write, jobs, all_ranks_write=True)
    (tmp_path / "ckpt-00000003-step-3" / "state-2").write_bytes(b"")
    (tmp_path / "ckpt-00000002-step-2" / "state-0").unlink()
    found = together(lambda _rank, ckpt: ckpt.latest(), jobs, all_ranks_write=True)
    assert [saved.step for saved in found] == [1] * RANKS


def test_a_torn_checkpoint_is_skipped_by_ranks_that_only_read(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    def write(_rank: int, ckpt: Checkpointer) -> None:
        for step in (1, 2):
            ckpt.save(step, partial(int, step))

    together(write, jobs)
    (tmp_path / "ckpt-00000002-step-2" / "state-0").write_bytes(b"")
    found = together(lambda _rank, ckpt: ckpt.latest(), jobs)
    assert [saved.step for saved in found] == [1] * RANKS


def test_shards_of_another_number_of_ranks_are_refused(
    jobs: list[FederatedJob], tmp_path: Path
) -> None:
    together(lambda _rank, ckpt: ckpt.save(1, str), jobs, all_ranks_write=True)
    ends = together(lambda _rank, ckpt: ckpt.latest(), jobs[:2], all_ranks_write=True)
    assert [str(end).partition(" was ")[2] for end in ends] == [
        "written by 3 ranks; there are 2 now"
    ] * 2


def test_ranks_whose_clocks_differ_save_together(jobs: list[FederatedJob]) -> None:
    """One rank's interval is over: then it is for all."""

    def act(rank: int, ckpt: Checkpointer) -> Any:
        ckpt.interval_s = 1e-9 if rank == 2 else 1e9
        return ckpt.due(1)

    assert together(act, jobs) == [Due.SAVE] * RANKS
