"""The watch's decision: whom it warns, whom it reclaims, and whom it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from fednode import watching
from fednode.watching import (
    BUSY,
    IDLE,
    NOTHING,
    RECLAIM,
    WARN,
    WARN_AGAIN,
    ZOMBIE,
    Policy,
    Quiet,
    Reading,
    Story,
)
from hypothesis import given
from hypothesis import strategies as st

POLICY = Policy(reclaim=True)
HELD, FREE = 40_000.0, 3.0


@dataclass
class Job:
    """A job under watch, minute by minute, on a clock of the test's own."""

    policy: Policy = POLICY
    now_s: float = 1000.0
    quiet: Quiet | None = None
    story: Story | None = None
    steps: list[tuple[float, str]] = field(default_factory=list)
    delivered: bool = True  # whether Slurm takes what is done

    def look(self, doing: str | None, after_s: float = 60.0) -> str:
        """One run of the watch; None: nothing is known."""
        self.now_s += after_s
        if doing is None:
            return NOTHING
        self.quiet = watching.extended(self.quiet, doing, self.now_s, self.policy)
        finding = watching.judge(self.quiet, self.policy)
        step = watching.step(finding, self.story, self.policy)
        done = step if self.delivered else NOTHING
        self.story = watching.after_notice(self.story, finding, done)
        if step != NOTHING:
            self.steps.append((self.now_s, step))
        return step

    def looks(self, doing: str | None, minutes: int) -> list[str]:
        """The steps that so many minutes bring."""
        return [step for step in (self.look(doing) for _ in range(minutes)) if step != NOTHING]


# ---- what a job does ----


@pytest.mark.parametrize(
    ("readings", "doing"),
    [
        ([Reading(HELD, 0.0)], ZOMBIE),
        ([Reading(HELD, 0.049)], ZOMBIE),
        ([Reading(HELD, 0.05)], BUSY),
        ([Reading(FREE, 0.0)], IDLE),
        ([Reading(FREE, 0.01)], BUSY),
        ([Reading(FREE, 0.0), Reading(HELD, 0.0)], ZOMBIE),
        ([Reading(HELD, 0.9), Reading(HELD, 0.0)], BUSY),
        ([Reading(HELD, 0.9), None], BUSY),
        ([Reading(HELD, 0.0), None], None),
        ([Reading(HELD, None)], None),
        ([Reading(None, 0.0)], None),
        ([Reading(float("nan"), 0.0)], None),
        ([Reading(HELD, float("nan"))], None),
        ([], None),
    ],
)
def test_one_busy_gpu_makes_a_job_busy_and_one_unknown_gpu_acquits_it(
    readings: list[Reading | None], doing: str | None
) -> None:
    assert watching.doing(readings, POLICY) == doing


# ---- its story ----


def test_a_zombie_is_warned_after_ten_minutes_again_and_then_reclaimed() -> None:
    job = Job()
    assert job.looks(ZOMBIE, 10) == []
    assert job.looks(ZOMBIE, 1) == [WARN]
    assert job.looks(ZOMBIE, 14) == []
    assert job.looks(ZOMBIE, 1) == [WARN_AGAIN]
    assert job.looks(ZOMBIE, 14) == []
    assert job.looks(ZOMBIE, 1) == [RECLAIM]


def test_an_idle_job_is_warned_after_two_hours() -> None:
    job = Job()
    assert job.looks(IDLE, 120) == []
    assert job.looks(IDLE, 1) == [WARN]


def test_who_warns_only_does_so_twice_however_long_it_goes_on() -> None:
    job = Job(policy=Policy(reclaim=False))
    assert job.looks(ZOMBIE, 3000) == [WARN, WARN_AGAIN]


def test_a_job_that_computes_again_begins_anew() -> None:
    job = Job()
    job.looks(ZOMBIE, 35)
    job.look(BUSY)
    assert job.looks(ZOMBIE, 10) == []
    assert job.looks(ZOMBIE, 1) == [WARN]


def test_memory_held_and_let_go_in_turns_is_idle_and_no_zombie() -> None:
    job = Job()
    for _ in range(60):
        assert job.look(ZOMBIE) == NOTHING
        assert job.look(IDLE) == NOTHING
    assert job.look(ZOMBIE) == WARN


def test_a_warning_that_did_not_reach_the_user_does_not_count() -> None:
    job = Job(delivered=False)
    assert set(job.looks(ZOMBIE, 200)) == {WARN}


def test_two_missed_looks_are_forgiven_and_a_long_silence_is_not() -> None:
    job = Job()
    job.looks(ZOMBIE, 8)
    job.looks(None, 2)
    assert job.looks(ZOMBIE, 1) == [WARN]
    job = Job()
    job.looks(ZOMBIE, 10)
    job.looks(None, 3)
    assert job.looks(ZOMBIE, 11) == [WARN]
    assert job.steps[0][0] - 1000 == 24 * 60


def test_a_clock_that_stands_still_or_goes_back_proves_nothing() -> None:
    job = Job()
    job.looks(ZOMBIE, 10)
    assert job.look(ZOMBIE, after_s=0) == NOTHING
    assert job.looks(ZOMBIE, 9) == []
    assert job.look(ZOMBIE, after_s=-3600) == NOTHING
    assert job.looks(ZOMBIE, 9) == []


# ---- laws ----

windows = st.floats(1, 20)
policies = st.builds(
    Policy,
    zombie_s=windows,
    idle_s=windows,
    max_gap_s=st.floats(0.5, 5),
    warn_again_s=windows,
    reclaim_after_s=windows,
    reclaim=st.just(True),
)
histories = st.lists(
    st.tuples(
        st.sampled_from([ZOMBIE, ZOMBIE, ZOMBIE, IDLE, IDLE, IDLE, BUSY, None]),
        st.one_of(st.floats(0.1, 3), st.sampled_from([1.0, 0.0, 30.0, -10.0])),
    ),
    max_size=80,
)


@given(policies, histories)
def test_no_step_is_taken_on_a_job_that_computed_or_was_not_seen_within_the_window(
    policy: Policy, history: list[tuple[str | None, float]]
) -> None:
    job = Job(policy=policy)
    seen: list[tuple[float, str]] = []
    for doing, after_s in history:
        step = job.look(doing, after_s)
        if doing is not None:
            seen.append((job.now_s, doing))
        if step == NOTHING:
            continue
        assert doing is not None
        run = quiet_run(seen, policy)
        zombie = quiet_run(seen, policy, (ZOMBIE,))
        longest = [(zombie, policy.zombie_s), (run, policy.idle_s)]
        assert any(times and times[-1] - times[0] >= window for times, window in longest)


@given(policies, histories)
def test_who_is_reclaimed_was_warned_of_it_long_enough_before_without_a_break_since(
    policy: Policy, history: list[tuple[str | None, float]]
) -> None:
    job = Job(policy=policy)
    seen: list[tuple[float, str]] = []
    for doing, after_s in history:
        step = job.look(doing, after_s)
        if doing is not None:
            seen.append((job.now_s, doing))
        if step == RECLAIM:
            run = quiet_run(seen, policy)
            warned = [at for at, what in job.steps if what == WARN and run[0] <= at]
            assert any(job.now_s - at >= policy.reclaim_after_s for at in warned)


def quiet_run(
    seen: list[tuple[float, str]], policy: Policy, kinds: tuple[str, ...] = (ZOMBIE, IDLE)
) -> list[float]:
    """The times of the last unbroken run of ``kinds``, found the slow way."""
    run: list[float] = []
    for at, doing in reversed(seen):
        if doing not in kinds or (run and not 0 < run[0] - at <= policy.max_gap_s):
            break
        run.insert(0, at)
    return run
