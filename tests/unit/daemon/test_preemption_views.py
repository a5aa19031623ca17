"""What is told of evictions, to users and about tenants."""

from __future__ import annotations

from federator.daemon.tenant_views import tenant_rows
from federator.daemon.views import RankView, queue_rows
from federator.model.site import Leave
from federator.model.workload import WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.credit import CreditWeights
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of
from federator.wire.client_protocol import QueueCall
from federator.wire.queue_rows import PreemptionRow
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

GRACE_S = 60.0
RULES = Rules(preempt_gpus=64, grace_s=GRACE_S)


def contested() -> tuple[Loopback, WorkloadId, WorkloadId]:
    """A guest on the only node, told to leave for an owner within quota; it saves for 30 s."""
    tenants = (tenant("owner", 8, priority=2), tenant("guest"))
    f = Loopback({"alpine": rack("a", 1)}, RULES, None, Mast(), tenants)
    f.save_s = 30.0
    guest = f.submit(draft(gang(1), tenant="guest"))
    f.run_for(10.0)
    owner = f.submit(draft(gang(1), tenant="owner"))
    f.run_for(5.0)
    return f, guest, owner


def told(f: Loopback, id_: WorkloadId) -> PreemptionRow | None:
    ((row,), _) = queue_rows(f.federation, QueueCall(ids=(str(id_),), ended=True), 10)
    return row.preemption


def test_of_what_was_never_evicted_and_evicts_nobody_there_is_nothing_to_tell() -> None:
    f = Loopback({"alpine": rack("a", 1)})
    id_ = f.submit(draft())
    f.run_for(1.0)
    assert told(f, id_) is None


def test_who_must_leave_shows_for_whom_and_until_when_and_the_winner_whom_it_displaces() -> None:
    f, guest, owner = contested()
    entry = f.entry(guest)
    assert told(f, guest) == PreemptionRow(
        preemptions=1,
        evicted_for=owner,
        evicted_at_s=entry.evicted_at_s,
        leave_by_s=entry.evicted_at_s + GRACE_S,
    )
    assert told(f, owner) == PreemptionRow(victims=(guest,))


def test_what_an_eviction_destroyed_shows_at_both_and_survives_a_restart() -> None:
    f, guest, owner = contested()
    started_s = f.entry(guest).started_at_s
    f.run_for(40.0)
    lost = f.entry(guest).lost_gpu_s
    assert lost > 8 * (f.entry(guest).evicted_at_s - started_s)  # it has saved nothing
    f.restart()
    f.run_for(5.0)
    victim, winner = told(f, guest), told(f, owner)
    assert victim is not None
    assert winner is not None
    assert (victim.preemptions, victim.lost_gpu_s, victim.leave_by_s) == (1, lost, 0.0)
    assert (winner.evictions, winner.destroyed_gpu_s) == (1, lost)


def test_a_checkpoint_and_the_save_times_of_its_kind_are_told() -> None:
    f, guest, _ = contested()
    ledger, entry = f.federation.ledger, f.entry(guest)
    ledger.saves.learn(family_of(entry.workload), Leave(told_at_s=10.0, saved_at_s=17.0), 0.0)
    entry.saved_at = entry.site
    row = told(f, guest)
    assert row is not None
    assert (row.saved_at, row.saves_seen, row.save_p95_s) == ("alpine", 1, 7.0)


def test_a_tenant_is_shown_what_was_destroyed_for_it_and_what_it_lost() -> None:
    f, guest, _ = contested()
    f.run_for(40.0)
    weights = CreditWeights()
    ranks = RankView(f.federation, "mast", weights).at(f.clock.now_s)
    rows = {row.name: row for row in tenant_rows(f.federation, {}, weights, ranks, f.clock.now_s)}
    lost = f.entry(guest).lost_gpu_s
    amounts = {n: (r.preempt_tax_gpu_s, r.preempt_lost_gpu_s) for n, r in rows.items()}
    assert amounts == {"owner": (lost, 0.0), "guest": (0.0, lost)}
    assert lost > 0
