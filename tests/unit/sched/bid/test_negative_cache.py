"""What one failure says about other requests, by hand; and that a pass does not ask in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.event import Submitted
from federator.model.lifecycle import WorkloadState
from federator.model.reason import Alternative, Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import Ask, SiteAnswer
from federator.model.workload import FIRST_WORKLOAD_ID, Job, SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.bid.negative_cache import NegativeCache, Rights, as_for
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.round import Round
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback, sent

FAILED = replace(gang(4), gpu_types=("a100", "h100"), partitions=("gpu", "dev"))


def answered(failed: Job, asked: Job, rights: Rights = Rights()) -> bool:  # noqa: B008
    cache: NegativeCache[str] = NegativeCache()
    cache.add((failed,), Rights(priority=3, preempt_gpus=64.0), "no")
    return cache.find((asked,), rights) is not None


@pytest.mark.parametrize(
    "asked",
    [
        FAILED,
        replace(FAILED, name="other"),
        replace(FAILED, nodes=5),
        replace(FAILED, cpus_per_node=9),
        replace(FAILED, mem_mib_per_node=1),
        replace(FAILED, gpu_types=("h100",)),
        replace(FAILED, partitions=("gpu",)),
        replace(FAILED, features=("ib",)),
        replace(FAILED, exclusive=True),
    ],
)
def test_the_same_or_more_on_the_same_or_narrower_hardware_is_answered(asked: Job) -> None:
    assert answered(FAILED, asked)


@pytest.mark.parametrize(
    "asked",
    [
        replace(FAILED, nodes=3),
        replace(FAILED, gpus_per_node=7),
        replace(FAILED, gpu_types=()),
        replace(FAILED, gpu_types=("a100", "v100")),
        replace(FAILED, partitions=()),
        Job(name="train", gpus=64, gpu_types=("a100",), partitions=("gpu",)),
    ],
)
def test_less_or_other_hardware_is_worth_a_try(asked: Job) -> None:
    assert not answered(FAILED, asked)


def test_what_wants_memory_with_each_cpu_proves_nothing_for_what_wants_less() -> None:
    failed = Job(name="tasks", cpus=8, mem_mib_per_cpu=1000)
    assert answered(failed, replace(failed, mem_mib_per_cpu=2000))
    assert answered(replace(failed, mem_mib_per_cpu=0), failed)
    assert not answered(failed, replace(failed, mem_mib_per_cpu=999))
    gpus = Job(name="tasks", gpus=8, mem_mib_per_gpu=1000)
    assert answered(gpus, replace(gpus, gpus=9))
    assert not answered(gpus, replace(gpus, mem_mib_per_gpu=0))


def test_who_avoids_nodes_proves_nothing_for_who_does_not() -> None:
    avoids = replace(FAILED, avoid=("n1",))
    assert answered(FAILED, avoids)
    assert answered(avoids, replace(FAILED, avoid=("n1", "n2")))
    assert not answered(avoids, FAILED)
    assert not answered(avoids, replace(FAILED, avoid=("n2",)))


def test_a_reservation_that_is_full_proves_nothing_for_other_jobs_nor_they_for_it() -> None:
    inside = replace(FAILED, reservation=("r1",))
    assert answered(inside, replace(inside, nodes=5))
    assert not answered(inside, FAILED)
    assert not answered(inside, replace(FAILED, reservation=("r2",)))
    assert not answered(FAILED, inside)


def test_cpus_that_come_in_larger_pieces_are_not_more_of_a_total() -> None:
    """Two nodes with 6 CPUs free hold no 12 in fours, but 12 in sixes."""
    fours = Job(name="t", cpus=12, cpus_per_node=4)
    assert not answered(fours, Job(name="t", cpus=12, cpus_per_node=6))
    assert not answered(fours, Job(name="t", nodes=2, cpus_per_node=6))
    assert answered(fours, Job(name="t", cpus=16, cpus_per_node=8))


def test_who_may_evict_more_is_worth_a_try() -> None:
    assert answered(FAILED, FAILED, Rights(priority=3, preempt_gpus=64.0))
    assert answered(FAILED, FAILED, Rights(priority=5, preempt_gpus=8.0))
    assert not answered(FAILED, FAILED, Rights(priority=2, preempt_gpus=64.0))
    assert not answered(FAILED, FAILED, Rights(priority=3, preempt_gpus=65.0))


def test_one_job_that_fails_alone_fails_in_any_company() -> None:
    cache: NegativeCache[str] = NegativeCache()
    cache.add((gang(4),), Rights(), "no")
    known = cache.find((gang(1, name="serve"), gang(4)), Rights())
    assert known is not None
    assert (known.jobs, known.answer) == ((gang(4),), "no")
    assert cache.find((gang(1, name="serve"), gang(3)), Rights()) is None


def test_the_answer_is_put_in_terms_of_who_asked() -> None:
    reason = Reason(code=ReasonCode.RESOURCES, job="train", needed=4, free=2, unit="nodes")
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,))
    (told,) = as_for((gang(6, name="mine"),), (gang(4),), refusal).reasons
    assert (told.job, told.needed, told.free) == ("mine", 6, 2)


def test_what_would_start_instead_is_said_only_of_the_very_same_jobs() -> None:
    reason = Reason(code=ReasonCode.RESOURCES, job="train", needed=4, free=2, unit="nodes")
    refusal = Refusal(
        kind=RefusalKind.WAIT,
        reasons=(reason,),
        starts_in_s=60.0,
        alternatives=(Alternative(nodes=2, gpus=8),),
    )
    assert as_for((gang(4),), (gang(4),), refusal) == refusal
    other = as_for((gang(6),), (gang(4),), refusal)
    assert (other.starts_in_s, other.alternatives) == (None, ())


def test_a_pass_asks_once_about_what_cannot_start_and_tells_everybody_why() -> None:
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)}, Rules(window=2))
    busy = [f.submit(draft(gang(2))) for _ in range(2)]
    f.run_for(1.0)
    assert [f.state(i) for i in busy] == [WorkloadState.RUNNING] * 2
    f.site_down("alpine")
    waiting = [f.submit(draft(gang(n))) for n in (1, 1, 2, 1, 2, 1, 1)]
    f.run_for(1.0)
    f.commands.clear()
    f.site_up("alpine")
    f.run_for(1.0)
    (asked,) = sent(f.commands, Ask)  # of one round; baker's answers hold
    assert (asked[0], len(asked[1].requests)) == ("alpine", 2)
    for id_ in waiting:
        codes = {s: r.reasons[0].code for s, r in f.refusals(id_).items()}
        assert codes == dict.fromkeys(("alpine", "baker"), ReasonCode.RESOURCES)


def test_what_fits_is_found_behind_what_does_not() -> None:
    f = Loopback({"alpine": rack("a", 3)}, Rules(window=1))
    f.submit(draft(gang(2)))
    f.run_for(1.0)
    large = [f.submit(draft(gang(2))) for _ in range(3)]
    small = f.submit(draft(gang(1)))
    f.run_for(1.0)
    assert f.state(small) is WorkloadState.RUNNING
    assert [f.state(i) for i in large] == [WorkloadState.PENDING] * 3


def test_a_refusal_of_one_user_says_nothing_about_another() -> None:
    ledger = Ledger()
    for k, user in enumerate(("stranger", "ada")):
        wanted = draft(gang(1), user=user)
        first = WorkloadId(FIRST_WORKLOAD_ID + k)
        ledger.apply(Submitted(at_s=0.0, draft=wanted, first_id=first, key=user))
    alpine = SiteName("alpine")
    pass_ = SchedulingPass(Fifo().rank(ledger, 1.0), ledger, known=KnownRefusals([alpine]))
    (asked,) = pass_.next_window((), 1, [alpine])
    pass_.round = Round(pass_id=1, requests={asked.id: asked}, waiting_for={alpine}, deadline_s=9.0)
    unknown = Refusal(kind=RefusalKind.REJECT, reasons=(Reason(code=ReasonCode.UNKNOWN_USER),))
    pass_.round.take(alpine, [SiteAnswer(id=asked.id, refusal=unknown)])
    pass_.learn(asked.id)
    (following,) = pass_.next_window((), 1, [alpine])
    assert following.user == "ada"


def test_what_was_said_of_components_together_is_told_by_the_names_of_who_asks() -> None:
    told = Reason(code=ReasonCode.TOO_FEW_NODES, needed=2, unit="nodes", apart=("mine+0", "mine+1"))
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(told,))
    known = (gang(1, name="mine+0"), gang(1, 4, name="mine+1"))
    asked = (gang(1, name="yours+0"), gang(1, 4, name="yours+1"))
    (reason,) = as_for(asked, known, refusal).reasons
    assert reason.apart == ("yours+0", "yours+1")
    asked = (gang(1, name="yours+0"), gang(1, 8, name="yours+1"))
    (reason,) = as_for(asked, known, refusal).reasons
    assert reason.apart == ("yours+0", "yours+1")
