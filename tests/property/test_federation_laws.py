"""Laws that hold for every history: of submissions, cancels, faults and time.

``Loopback`` checks after every event that no workload is alive twice or at two sites, that no
ended or waiting one is alive at all, and that no node is over-allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from federator.model.event import Awarded, Changed
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadEvent, WorkloadState
from federator.model.message import Command, Record
from federator.model.site import NodeShare, SiteJobState
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.continuation import FRUITLESS_ATTEMPTS
from federator.sched.passes.eviction import victim_terms
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.queue.quota_status import quota_statuses
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import LATENCY_S, Loopback

SITES = ("alpine", "baker", "crest")
HISTORIES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CANCELLING = WorkloadState.CANCELLING
_AT_LIMIT = (WorkloadEvent.PREEMPTED, WorkloadEvent.LIMIT_STRUCK, WorkloadEvent.TIMED_OUT)

Act = tuple[str, int, int]
CALM = (
    "submit",
    "submit",
    "submit",
    "guests",
    "array",
    "het",
    "chain",
    "firm",
    "wait",
    "wait",
    "cancel",
)
FAULTS = (
    "cut off",
    "cut off",
    "site down",
    "site up",
    "refuse",
    "accept",
    "restart",
    "repeat",
    "fail job",
    "local job",
    "fail node",
    "repair node",
    "requeue",
    "stall",
    "go on",
    "save slowly",
)

UNTOLD = ("restart", "cut off")  # in ``Loopback.history``
WITH_RELOADS = (*CALM, *FAULTS, "reload", "reload")  # the log does not have them


def acts(names: tuple[str, ...]) -> st.SearchStrategy[list[Act]]:
    act = st.tuples(st.sampled_from(names), st.integers(0, 50), st.integers(0, 50))
    return st.lists(act, max_size=25)


OWNER = Tenant(name=TenantName("vision"), priority=2, quota=Allowance(gpus=20))
FAMILY = (
    Tenant(name=TenantName("lab"), quota=Allowance(gpus=28)),
    replace(OWNER, parent=TenantName("lab")),
    Tenant(name=TenantName("guest"), priority=4, parent=TenantName("lab")),
)


def fresh(evicting: bool, tenants: tuple[Tenant, ...] = (OWNER,)) -> Loopback:
    """Three small sites; ``evicting``: what is within quota displaces what is not."""
    sites = {"alpine": rack("a", 3), "baker": rack("b", 2) + rack("c", 1), "crest": rack("d", 2)}
    rules = Rules(
        launch_lease_s=20.0, pass_interval_s=60.0, grace_s=10.0, forecast_ends=not evicting
    )
    if evicting:
        rules = replace(rules, preempt_gpus=40, preempt_window_s=60.0, cooldown_s=30.0)
    f = Loopback(sites, rules, 25.0, Mast(), tenants) if evicting else Loopback(sites, rules, 25.0)
    f.enforces_limits = True
    return f


def play(f: Loopback, history: list[Act]) -> None:
    for name, x, y in history:
        ACTS[name](f, x, y)
        f.check_invariants()


def _submit(f: Loopback, x: int, y: int) -> None:
    job = replace(gang(1 + x % 3, 1 + y % 8), exclusive=y % 7 == 0)
    tenant = "vision" if x % 2 else "guest"
    requeue = y % 5 > 0 or job.exclusive  # whole nodes may be more than the quota, for ever
    f.ask(draft(job, priority=1 + y % 7, requeue=requeue, tenant=tenant))


def _guests(f: Loopback, x: int, y: int) -> None:
    """Who has no quota takes all that is free, for others to come in vain; or to evict them."""
    for nodes in (3, 3, 2):
        f.ask(draft(gang(nodes, 8), tenant="guest"))
    f.run_for(x % 4)
    f.ask(draft(gang(1 + y % 2, 1 + x % 8)))


def _array(f: Loopback, x: int, y: int) -> None:
    tasks = tuple(range(1 + x % 4))
    f.ask(
        draft(
            gang(1, 1 + y % 8),
            array_indices=tasks,
            array_max_running=y % 3,
            optional=tasks[: x % 3],
            tenant="vision" if y % 2 else "guest",
        )
    )


def _het(f: Loopback, x: int, y: int) -> None:
    """Three nodes in all, as the largest site has: no two jobs share one."""
    serve, more = gang(1, 1 + x % 4, "serve"), gang(1, 1 + y % 2, "more")
    jobs = (gang(2, 1 + y % 8), serve) if x % 2 else (gang(1, 1 + y % 8), serve, more)
    choice = ((), (1,), (2,), (1,), (1, 2))[x % 5]
    optional = tuple(k for k in choice if k < len(jobs))
    f.ask(draft(*jobs, optional=optional, tenant="vision" if y % 3 == 0 else "guest"))


def _chain(f: Loopback, x: int, y: int) -> None:
    """Longer than its time limit, and goes on; some save too slowly ever to get anywhere."""
    job = gang(1 + x % 2, 1 + y % 8)
    tasks = tuple(range(x % 3))
    f.ask(
        draft(
            job,
            continues=True,
            time_limit_s=15.0 + y % 20,
            no_preempt=x % 5 == 0,
            array_indices=tasks,
            tenant="vision" if y % 2 else "guest",
        )
    )


def _firm(f: Loopback, x: int, y: int) -> None:
    """What may not be evicted, of one who has a quota; priority 6, so that others come before."""
    f.ask(draft(gang(1, 1 + x % 8), asked_priority=6, requeue=y % 2 > 0, no_preempt=y % 2 == 0))


def _save_slowly(f: Loopback, x: int, y: int) -> None:
    f.save_s = 1e6 if y % 3 else 1.0


def _wait(f: Loopback, x: int, y: int) -> None:
    """Half the time so short that messages are still on their way."""
    f.run_for(x % 10 * LATENCY_S / 2 if y % 2 else x * 1.0)


def _cut_off(f: Loopback, x: int, y: int) -> None:
    """A channel, or the daemon, dies while a launch is somewhere on its way."""
    _submit(f, x, y)
    f.run_for(x % 10 * LATENCY_S / 2)
    if y % 4:
        f.site_down(SITES[y % 3])
    else:
        f.restart()


def _cancel(f: Loopback, x: int, y: int) -> None:
    live = [i for i, e in f.federation.ledger.entries.items() if e.state not in TERMINAL]
    if live:
        f.cancel(live[x % len(live)])


def _restart(f: Loopback, x: int, y: int) -> None:
    f.restart()


def _reload(f: Loopback, x: int, y: int) -> None:
    """Other tenants and rules, or the same again; in the middle of a pass, say."""
    f.run_for(x % 5 * LATENCY_S / 2)
    tenants = (FAMILY, (OWNER,), (), ())[y % 4] if x % 3 else None
    rules = replace(f.federation.rules, grace_s=5.0 + x % 7, cooldown_s=10.0 * (1 + y % 4))
    if y % 5 == 0:
        rules = replace(rules, preempt_gpus=(0, 8, 40)[x % 3], forecast_ends=x % 2 > 0)
    f.reload(rules if y % 3 else None, tenants)


def _repeat(f: Loopback, x: int, y: int) -> None:
    f.repeat_last_report(SITES[x % 3], after_s=float(y))


def _fail_job(f: Loopback, x: int, y: int) -> None:
    running = f.slurm(SITES[x % 3]).running()
    ends = (
        SiteJobState.FAILED,
        SiteJobState.TIMEOUT,
        SiteJobState.CANCELLED,
        SiteJobState.NODE_FAIL,
        SiteJobState.OUT_OF_MEMORY,
        SiteJobState.PREEMPTED,
    )
    if running:
        f.slurm(SITES[x % 3]).end(running[0].attempt, ends[y % len(ends)], 1)


def _local(f: Loopback, x: int, y: int) -> None:
    """A local user takes what is free of a node."""
    f.shared_nodes = True
    slurm = f.slurm(SITES[x % 3])
    node = slurm.nodes()[y % len(slurm.nodes())]
    slurm.take_locally(node.name, NodeShare())
    node = slurm.nodes()[y % len(slurm.nodes())]
    slurm.take_locally(node.name, NodeShare(gpus=node.gpus - node.gpus_alloc))


def _node(f: Loopback, x: int, y: int, broken: bool) -> None:
    f.shared_nodes = True
    slurm = f.slurm(SITES[x % 3])
    name = slurm.nodes()[y % len(slurm.nodes())].name
    if broken:
        slurm.fail_node(name)
    else:
        slurm.repair_node(name)


def _requeue(f: Loopback, x: int, y: int) -> None:
    running = f.slurm(SITES[x % 3]).running()
    if running:
        f.slurm(SITES[x % 3]).requeue(running[0].attempt, preempted=y % 2 > 0)


def _stall(f: Loopback, x: int, starts: bool) -> None:
    f.shared_nodes = True
    slurm = f.slurm(SITES[x % 3])
    slurm.starts_jobs = starts
    slurm.start_what_can()


ACTS: dict[str, Callable[[Loopback, int, int], None]] = {
    "submit": _submit,
    "guests": _guests,
    "array": _array,
    "het": _het,
    "chain": _chain,
    "firm": _firm,
    "save slowly": _save_slowly,
    "wait": _wait,
    "cancel": _cancel,
    "cut off": _cut_off,
    "site down": lambda f, x, _: f.site_down(SITES[x % 3]),
    "site up": lambda f, x, _: f.site_up(SITES[x % 3]),
    "refuse": lambda f, x, _: f.refuse_launches(SITES[x % 3]),
    "accept": lambda f, x, _: f.refuse_launches(SITES[x % 3], False),
    "restart": _restart,
    "reload": _reload,
    "repeat": _repeat,
    "fail job": _fail_job,
    "local job": _local,
    "fail node": lambda f, x, y: _node(f, x, y, True),
    "repair node": lambda f, x, y: _node(f, x, y, False),
    "requeue": _requeue,
    "stall": lambda f, x, _: _stall(f, x, False),
    "go on": lambda f, x, _: _stall(f, x, True),
}


def stop_faults(f: Loopback) -> None:
    f.save_s = 1.0
    for site in SITES:
        slurm = f.slurm(site)
        slurm.starts_jobs = True
        for node in slurm.nodes():
            slurm.repair_node(node.name)
            slurm.take_locally(node.name, NodeShare())
        f.refuse_launches(site, False)
        f.site_up(site)


@HISTORIES
@given(acts(WITH_RELOADS), st.booleans())
def test_whatever_happens_every_workload_ends_once_faults_stop(
    history: list[Act], evicting: bool
) -> None:
    f = fresh(evicting)
    rules = f.federation.rules
    play(f, history)
    stop_faults(f)
    # Without its quota work that may not be evicted waits for as long as the admin means it to.
    f.reload(rules, (OWNER,) if evicting else ())
    if evicting:
        live = {i: e for i, e in f.federation.ledger.entries.items() if e.state not in TERMINAL}
        firm = [i for i, e in live.items() if not e.workload.preemptible]
        f.cancel(*(i for i in firm if live[i].workload.tenant != OWNER.name))
    f.run_until_all_end()


@HISTORIES
@given(acts(CALM), st.booleans())
def test_without_local_users_whatever_is_launched_starts_at_once(
    history: list[Act], evicting: bool
) -> None:
    f = fresh(evicting)
    play(f, history)
    f.run_until_all_end()
    assert not f.shared_nodes  # so ``check_invariants`` has looked for jobs that wait in Slurm


@HISTORIES
@given(acts(CALM + FAULTS), st.booleans())
def test_the_log_alone_tells_how_every_workload_stands(history: list[Act], evicting: bool) -> None:
    f = fresh(evicting)
    play(f, history)
    told, known = f.replayed(), f.federation.ledger
    assert (told.epoch, told.next_id, told.keys.id_of) == (
        known.epoch,
        known.next_id,
        known.keys.id_of,
    )
    assert told.entries.keys() == known.entries.keys()
    for id_, entry in known.entries.items():
        again = told.entries[id_]
        again.refusals = entry.refusals  # volatile: of the last pass
        assert again == entry


@HISTORIES
@given(acts(tuple(a for a in CALM + FAULTS if a not in UNTOLD)), st.booleans())
def test_the_same_history_gives_the_same_commands(history: list[Act], evicting: bool) -> None:
    f = fresh(evicting)
    play(f, history)
    twin = f.new_federation()
    commands: list[Command] = []
    for observation, now_s in f.history:
        if observation is None:
            commands += twin.begin_epoch(now_s)
        else:
            commands += twin.handle(observation, now_s)
    assert commands == f.commands
    assert [c.event for c in commands if isinstance(c, Record)] == f.log


@HISTORIES
@given(acts(CALM + FAULTS))
def test_whoever_is_evicted_ran_at_a_lower_priority_and_made_room_for_one_alone(
    history: list[Act],
) -> None:
    f = fresh(evicting=True)
    play(f, history)
    event("evictions" if any(isinstance(e, Awarded) and e.victims for e in f.log) else "none")
    ledger, running, promised = f.new_ledger(), WorkloadState.RUNNING, set[tuple[int, int]]()
    for record in f.log:
        if isinstance(record, Awarded):
            going = (*record.victims, *(WorkloadId(id_) for id_, _ in record.shrinks))
            for victim in (ledger.entries[id_] for id_ in going):
                assert victim.state is running
                assert quota_statuses(ledger)[victim.workload.id].priority > record.priority
                assert victim.promised_to is None
        if isinstance(record, Changed) and record.happening is WorkloadEvent.EVICTED:
            attempt = (record.workload, record.attempt)
            assert attempt not in promised
            promised.add(attempt)
        ledger.apply(record)


class RenewedTerms:
    """The terms of evictions as they are kept, beside what is worked out from the ledger."""

    def __init__(self, f: Loopback, rules: Rules) -> None:
        self._f, self._rules = f, rules
        self._ledger = f.federation.ledger
        self._terms = EvictionTerms(self._ledger, rules)

    def check(self) -> int:
        """Renew them and compare; the number of workloads that may be evicted."""
        ledger, now_s = self._f.federation.ledger, self._f.clock.now_s
        if ledger is not self._ledger:  # the daemon was started anew
            self._ledger, self._terms = ledger, EvictionTerms(ledger, self._rules)
        known = {site: self._terms.at(SiteName(site)) for site in SITES}
        before = {site: dict(terms) for site, terms in known.items()}
        self._terms.renew(now_s)
        found = victim_terms(ledger, self._rules, now_s)
        assert self._terms.by_id == found
        for site in SITES:
            there = {id_: terms for id_, terms in found.items() if ledger.entries[id_].site == site}
            assert self._terms.at(SiteName(site)) == there
            assert known[site] == before[site]  # a question may be on its way with them
            assert before[site] != there or self._terms.at(SiteName(site)) is known[site]
        return len(found)


@HISTORIES
@given(acts(CALM + FAULTS), st.booleans(), st.integers(1, 4), st.sampled_from([0.0, 3.0]))
def test_terms_that_are_renewed_are_those_that_the_ledger_implies(
    history: list[Act], together: bool, every: int, min_run_s: float
) -> None:
    f = fresh(True, FAMILY if together else (OWNER,))
    terms, most = RenewedTerms(f, replace(f.federation.rules, min_run_s=min_run_s)), 0
    for k, (name, x, y) in enumerate(history):
        ACTS[name](f, x, y)
        if k % every == 0:
            most = max(most, terms.check())
    stop_faults(f)
    for _ in range(6):
        f.run_for(5.0)
        most = max(most, terms.check())
    event(f"at most {min(most, 3)} that may be evicted")


@HISTORIES
@given(acts(CALM + FAULTS))
def test_who_may_not_be_evicted_never_is_and_never_borrows(history: list[Act]) -> None:
    f = fresh(evicting=True)
    play(f, history)
    stop_faults(f)
    f.run_until_all_end()
    ledger = f.new_ledger()
    for record in f.log:
        if isinstance(record, Changed) and record.happening is WorkloadEvent.EVICTED:
            assert f.entry(record.workload).workload.preemptible
        ledger.apply(record)
        if isinstance(record, Awarded):
            workload = f.entry(record.attempt.workload).workload
            assert workload.preemptible or firm_gpus(ledger, workload.tenant) <= quota_gpus(
                ledger, workload.tenant
            )


def firm_gpus(ledger: Ledger, tenant: TenantName) -> int:
    """What a tenant's work that may not be evicted holds at sites."""
    return sum(
        entry.held_gpus
        for entry in ledger.in_state(*AT_SITE)
        if entry.workload.tenant == tenant and not entry.workload.preemptible
    )


def quota_gpus(ledger: Ledger, tenant: TenantName) -> float:
    quota = ledger.tenancy.quotas[ledger.tenancy.row(tenant)]
    return quota[0] if quota is not None else 0.0


@HISTORIES
@given(acts(CALM + FAULTS), st.booleans())
def test_who_goes_on_at_its_time_limit_is_never_stopped_by_it_while_it_saves_something(
    history: list[Act], evicting: bool
) -> None:
    f = fresh(evicting)
    play(f, history)
    stop_faults(f)
    f.run_until_all_end()
    ledger, in_vain = f.new_ledger(), dict[WorkloadId, int]()
    for record in f.log:
        if isinstance(record, Changed) and record.happening in _AT_LIMIT:
            entry, leave = ledger.entries[record.workload], record.leave
            saved = leave is not None and leave.saved_at_s > entry.started_at_s
            saved |= record.site_state in ("NODE_FAIL", "BOOT_FAIL")  # not its own fault
            told = entry.at_its_limit and leave is not None
            number = in_vain.get(record.workload, 0)
            in_vain[record.workload] = 0 if saved else number + told
            if record.happening is WorkloadEvent.TIMED_OUT and entry.workload.continues:
                assert in_vain[record.workload] == FRUITLESS_ATTEMPTS or entry.state is CANCELLING
        ledger.apply(record)
    chains = [e for e in ledger.entries.values() if e.workload.continues]
    event("chains" if any(e.attempt > 1 for e in chains) else "none")
    assert all(e.preemptions == 0 for e in chains if not evicting)


def test_histories_with_two_tenants_do_evict() -> None:
    """Otherwise the laws above would say nothing of evictions."""
    f = fresh(evicting=True)
    play(f, [("guests", 3, 0), ("wait", 5, 0)])
    assert any(isinstance(record, Awarded) and record.victims for record in f.log)


@HISTORIES
@given(acts(CALM + FAULTS), st.booleans(), st.integers(0, 3))
def test_after_a_reload_the_queue_is_as_after_a_restart(
    history: list[Act], evicting: bool, choice: int
) -> None:
    f = fresh(evicting)
    play(f, history)
    f.reload(tenants=((), (OWNER,), FAMILY, FAMILY[:2])[choice])
    known, now_s = f.federation.ledger, f.clock.now_s
    f.compact()
    told = f.replayed()
    assert told.entries.keys() == known.entries.keys()
    for id_, entry in known.entries.items():
        told.entries[id_].refusals = entry.refusals  # volatile: of the last pass
        assert told.entries[id_] == entry
    assert len(told.backlog) == len(known.backlog)
    rows = range(len(known.tenancy))
    assert [told.holdings.used(row) for row in rows] == [known.holdings.used(row) for row in rows]
    counted = [known.holdings.counted(row) for row in rows]
    assert [told.holdings.counted(row) for row in rows] == counted
    usage = pytest.approx(known.holdings.averages(now_s).tolist())
    assert told.holdings.averages(now_s).tolist() == usage
    policy = Mast()
    assert policy.rank(told, now_s).listed() == policy.rank(known, now_s).listed()
    stop_faults(f)
    f.run_until_all_end()
