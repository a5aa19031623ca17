"""A play of the queue: who starts when, if runs take as long as they were drawn to."""

from __future__ import annotations

from math import inf

from federator.sched.starts.playout import Closure, Coming, Play, PlayedRun, PlayShape, Pool


def one_node(gpus: int, *pools: int) -> PlayShape:
    return PlayShape(gpus, 1, gpus, pools or (0,))


def waiting(shape: PlayShape, runs_s: float = 100.0) -> Coming:
    return Coming(0.0, shape, runs_s)


def test_a_workload_starts_when_enough_has_ended_on_one_node() -> None:
    pools = [Pool([2, 2])]
    running = [PlayedRun(0, ((0, 6),), 50.0), PlayedRun(0, ((1, 6),), 80.0)]
    assert Play(pools, running, [waiting(one_node(8))]).run(inf) == [50.0]


def test_gpus_that_are_free_on_several_nodes_do_not_make_a_whole_node() -> None:
    pools = [Pool([4, 4])]
    running = [PlayedRun(0, ((0, 4),), 500.0)]
    assert Play(pools, running, [waiting(one_node(8))]).run(inf) == [500.0]


def test_a_gang_waits_until_it_has_all_its_nodes() -> None:
    pools = [Pool([0, 0, 0])]
    running = [PlayedRun(0, ((node, 8),), 10.0 * (node + 1)) for node in range(3)]
    gang = PlayShape(16, 2, 8, (0,))
    assert Play(pools, running, [waiting(gang)]).run(inf) == [20.0]


def test_gpus_asked_for_in_all_may_come_from_any_nodes() -> None:
    pools = [Pool([3, 3])]
    running = [PlayedRun(0, ((0, 1),), 30.0), PlayedRun(0, ((1, 1),), 60.0)]
    assert Play(pools, running, [waiting(PlayShape(7, 0, 0, (0,)))]).run(inf) == [30.0]


def test_the_first_by_rank_goes_first_and_others_pass_it_by_where_it_does_not_fit() -> None:
    pools = [Pool([0])]
    running = [PlayedRun(0, ((0, 4),), 10.0), PlayedRun(0, ((0, 4),), 200.0)]
    queue = [waiting(one_node(8)), waiting(one_node(4), 50.0), waiting(one_node(4), 50.0)]
    # At 10 s the second starts, at 60 s the third; at 200 s the first has all of the node.
    assert Play(pools, running, queue).run(inf) == [200.0, 10.0, 60.0]


def test_nothing_starts_before_something_ends() -> None:
    """The pass before has tried it: there is a reason that a play does not know."""
    assert Play([Pool([8])], [], [waiting(one_node(1))]).run(inf) == [inf]


LICENSED = PlayShape(4, 1, 4, (0,), licenses=(("matlab", 1),))


def test_licences_come_free_when_their_holder_ends_wherever_that_runs() -> None:
    pools = [Pool([8]), Pool([0])]
    running = [PlayedRun(1, ((0, 8),), 60.0, LICENSED.licenses)]
    queue = [waiting(LICENSED), waiting(LICENSED), waiting(one_node(1))]
    # The last would fit all the while, and waits for what a play does not know.
    assert Play(pools, running, queue).run(1_000.0) == [60.0, 160.0, 160.0]


def test_free_gpus_start_nobody_whose_licences_others_hold() -> None:
    running = [PlayedRun(0, ((0, 8),), 50.0), PlayedRun(0, (), 80.0, LICENSED.licenses)]
    queue = [waiting(LICENSED), waiting(one_node(4), 10.0)]
    assert Play([Pool([0])], running, queue).run(inf) == [80.0, 50.0]


def test_who_comes_waits_for_licences_too() -> None:
    coming = iter([Coming(10.0, LICENSED, 200.0), Coming(20.0, LICENSED, 300.0)])
    running = [PlayedRun(0, ((0, 4),), 100.0)]
    play = Play([Pool([4])], running, [waiting(one_node(8))], coming)
    # At 100 s there are GPUs for the second, and no licence: it would run until 400 s.
    assert play.run(inf, {"matlab": 1}) == [210.0]


def test_what_comes_meanwhile_takes_what_is_free() -> None:
    pools = [Pool([4])]
    running = [PlayedRun(0, ((0, 4),), 100.0)]
    coming = iter([Coming(20.0, one_node(4), 300.0), Coming(1000.0, one_node(1), 1.0)])
    # Without it a whole node would be free at 100 s.
    assert Play(pools, running, [waiting(one_node(8))], coming).run(inf) == [320.0]


def test_a_play_goes_on_where_what_may_come_is_no_longer_known() -> None:
    """Else a busy federation's, of which a few hours are foretold, would say "half a day"."""
    running = [PlayedRun(0, ((0, 8),), 100.0)]
    coming = iter([Coming(20.0, one_node(1), 1.0)])
    assert Play([Pool([0])], running, [waiting(one_node(8))], coming).run(inf) == [100.0]


def test_a_start_beyond_the_horizon_is_not_known() -> None:
    running = [PlayedRun(0, ((0, 8),), 100.0)]
    assert Play([Pool([0])], running, [waiting(one_node(8))]).run(99.0) == [inf]


def test_a_workload_starts_in_none_but_the_pools_that_it_may_use() -> None:
    pools = [Pool([0]), Pool([0])]
    running = [PlayedRun(0, ((0, 8),), 10.0), PlayedRun(1, ((0, 8),), 70.0)]
    assert Play(pools, running, [waiting(one_node(8, 1))]).run(inf) == [70.0]


def test_what_could_run_into_a_closure_waits_until_it_is_over_and_shorter_ones_pass() -> None:
    running = [PlayedRun(0, ((0, 8),), 50.0)]
    long, short = (PlayShape(8, 1, 8, (0,), limit_s) for limit_s in (600.0, 100.0))
    queue = [waiting(long), waiting(short, 20.0)]
    closures = [[Closure(300.0, 1000.0)]]
    play = Play([Pool([0])], running, queue, closures=closures)
    assert play.run(inf) == [1000.0, 50.0]


def test_what_comes_before_a_closure_starts_at_once_only_if_it_is_over_by_then() -> None:
    long, short = (PlayShape(4, 1, 4, (0,), limit_s) for limit_s in (600.0, 100.0))
    running = [PlayedRun(0, ((0, 4),), 900.0)]
    coming = iter([Coming(20.0, long, 5.0), Coming(30.0, short, 5000.0)])
    closures = [[Closure(300.0, 2000.0)]]
    play = Play([Pool([4])], running, [waiting(one_node(8))], coming, closures=closures)
    # The short one starts, and what it holds the first has to wait for.
    assert play.run(inf) == [5030.0]


class _Asked(Pool):
    """Counts how often it is asked whether something fits."""

    __slots__ = ("times",)

    def fits(self, shape: PlayShape, *, off_slow: bool = False) -> bool:
        self.times = getattr(self, "times", 0) + 1
        return super().fits(shape, off_slow=off_slow)


def test_time_limits_that_are_nearly_alike_are_asked_about_once() -> None:
    """Where a window closes a pool; a queue may have as many limits as jobs."""
    pool = _Asked([0])
    running = [PlayedRun(0, ((0, 8),), 50.0)]
    queue = [waiting(PlayShape(8, 1, 8, (0,), 600.0 + k)) for k in range(2000)]
    closures = [[Closure(100.0, 5000.0)]]
    starts_s = Play([pool], running, queue, closures=closures).run(5000.0)
    assert starts_s[:2] == [5000.0, inf]
    assert pool.times <= 2 * 4 * 3  # two looks, 600 to 2,600 s: twice and twice again


def test_one_before_a_window_starts_by_its_own_limit_and_not_by_that_of_its_like() -> None:
    running = [PlayedRun(0, ((0, 8),), 50.0)]
    queue = [waiting(PlayShape(8, 1, 8, (0,), limit_s)) for limit_s in (1000.0, 1050.0)]
    closures = [[Closure(1055.0, 2000.0)]]
    assert Play([Pool([0])], running, queue, closures=closures).run(inf) == [50.0, 2000.0]


def test_a_gang_waits_for_the_end_of_runs_on_other_nodes_than_slow_ones() -> None:
    """The first node is slow; a job of one node starts there."""
    running = [PlayedRun(0, ((node, 8),), 10.0 * (node + 1)) for node in range(4)]
    gang = PlayShape(16, 2, 8, (0,), off_slow=(0,))
    queue = [waiting(gang), waiting(one_node(8), 5.0)]
    assert Play([Pool([0] * 4, {0})], running, queue).run(inf) == [30.0, 10.0]
    assert Play([Pool([0] * 4)], running, queue).run(inf) == [20.0, 10.0]


def test_gpus_asked_for_in_all_come_from_other_nodes_than_slow_ones() -> None:
    running = [PlayedRun(0, ((node, 8),), 10.0 * (node + 1)) for node in range(3)]
    asked = waiting(PlayShape(12, 0, 0, (0,), off_slow=(0,)))
    pool = Pool([0] * 3, {0})
    assert Play([pool], running, [asked]).run(inf) == [30.0]
    assert pool.free == [8, 0, 4]
