"""The numbers of tenants, worked out by hand: has, uses, borrows and lends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from federator.daemon.tenant_views import shared_out, tenant_rows
from federator.daemon.views import RankView
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import TenantName
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.queue.policy import Policy
from federator.sched.state.credit import CreditWeights
from federator.wire.client_protocol import TenantRow
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

LAB = (
    tenant("bio", 8),
    tenant("vision", 24, parent="lab", priority=2),
    tenant("lab", 32),
    tenant("nlp", 16, parent="lab"),
    tenant("guest"),
)


def fleet(*tenants: Tenant, nodes: int = 6, policy: Policy = Mast()) -> Loopback:  # noqa: B008
    """One site of ``nodes`` nodes with 8 GPUs and 64 CPUs each."""
    return Loopback({"alpine": rack("a", nodes)}, policy=policy, tenants=tenants)


def run(f: Loopback, name: str, times: int = 1, gpus: int = 8) -> None:
    for _ in range(times):
        f.submit(draft(gang(1, gpus), tenant=name))
        f.run_for(1.0)


def seen(f: Loopback, policy: str = "mast", users: Iterable[str] = ()) -> dict[str, TenantRow]:
    """The rows by tenant, in their order."""
    weights = CreditWeights()
    ranks = RankView(f.federation, policy, weights if policy == "mast" else None).at(f.clock.now_s)
    configured = {TenantName(name): ("ada",) for name in users}
    rows = tenant_rows(f.federation, configured, weights, ranks, f.clock.now_s)
    return {row.name: row for row in rows}


def gpus(rows: dict[str, TenantRow], amounts: str) -> dict[str, int]:
    return {name: getattr(row, amounts)["gpus"] for name, row in rows.items()}


def test_children_follow_their_parent_and_tenants_never_configured_come_last() -> None:
    f = fleet(*LAB)
    run(f, "gone")
    rows = seen(f, users=[t.name for t in LAB])
    assert [(row.name, row.depth, row.parent) for row in rows.values()] == [
        ("bio", 0, ""),
        ("lab", 0, ""),
        ("vision", 1, "lab"),
        ("nlp", 1, "lab"),
        ("guest", 0, ""),
        ("gone", 0, ""),
    ]
    assert [row.name for row in rows.values() if not row.configured] == ["gone"]
    assert (rows["gone"].priority, rows["gone"].quota, rows["gone"].users) == (7, None, ())
    assert rows["vision"].users == ("ada",)


def test_quota_and_limit_show_what_is_not_counted_as_nothing() -> None:
    quota = Allowance(gpus=16, gpu_types={"h100": 4})
    f = fleet(tenant("vision", quota, limit=32), tenant("guest"))
    rows = seen(f)
    assert rows["vision"].quota == {"gpus": 16, "cpus": None, "h100": 4}
    assert rows["vision"].limit == {"gpus": 32, "cpus": None, "h100": None}
    assert rows["guest"].quota is None
    assert rows["guest"].limit == {"gpus": None, "cpus": None, "h100": None}


def test_a_parent_uses_what_those_below_it_do() -> None:
    f = fleet(*LAB)
    run(f, "vision", 2)
    run(f, "nlp")
    run(f, "lab", gpus=4)
    rows = seen(f)
    assert gpus(rows, "used") == {"bio": 0, "lab": 28, "vision": 16, "nlp": 8, "guest": 0}
    assert gpus(rows, "used_own") == {"bio": 0, "lab": 4, "vision": 16, "nlp": 8, "guest": 0}
    assert rows["lab"].used["cpus"] == 4


def test_borrowers_use_first_what_is_promised_to_nobody_then_what_stands_idle() -> None:
    # 48 GPUs, 40 promised (lab 32 + bio 8), 8 to nobody. Vision holds 8, guest borrows 32: 8 of
    # nobody's, 24 lent. Lab has 24 idle, all of it of vision (16 idle) and nlp (16 idle), so 12
    # each; bio has 8. 24 over (12, 12, 8) is (9, 9, 6).
    f = fleet(*LAB)
    run(f, "vision")
    run(f, "guest", 4)
    rows = seen(f)
    assert gpus(rows, "borrowed") == {"bio": 0, "lab": 0, "vision": 0, "nlp": 0, "guest": 32}
    assert gpus(rows, "lent") == {"bio": 6, "lab": 0, "vision": 9, "nlp": 9, "guest": 0}


def test_a_parent_lends_what_it_keeps_from_its_children() -> None:
    # 48 GPUs, all promised to lab, of which 16 are vision's. Guest borrows 24 of 48 idle:
    # in proportion to vision's 16 and lab's own 32.
    f = fleet(tenant("lab", 48), tenant("vision", 16, parent="lab"), tenant("guest"))
    run(f, "guest", 3)
    assert gpus(seen(f), "lent") == {"lab": 16, "vision": 8, "guest": 0}


def test_who_borrows_lends_nothing() -> None:
    # Vision holds 24 of 16; guest borrows 8 too. 16 borrowed, 8 of them of nobody: 8 lent by nlp.
    f = fleet(tenant("vision", 16), tenant("nlp", 24), tenant("guest"))
    run(f, "vision", 3)
    run(f, "guest", 1)
    rows = seen(f)
    assert gpus(rows, "borrowed") == {"vision": 8, "nlp": 0, "guest": 8}
    assert gpus(rows, "lent") == {"vision": 0, "nlp": 8, "guest": 0}


def test_nobody_lends_more_than_what_is_idle_and_a_site_that_is_not_heard_has_nothing() -> None:
    f = fleet(tenant("vision", 8), tenant("guest"))
    run(f, "guest", 5)  # 40 of 48: all of it of nobody's
    assert gpus(seen(f), "lent") == {"vision": 0, "guest": 0}
    f.site_down("alpine")
    rows = seen(f)
    assert gpus(rows, "borrowed") == {"vision": 0, "guest": 40}
    assert gpus(rows, "lent") == {"vision": 8, "guest": 0}


def test_each_resource_is_figured_alone() -> None:
    # 16 GPUs all promised, 128 CPUs of which 100 are. Guest holds 8 GPUs and 40 CPUs.
    quota = Allowance(gpus=16, cpus=100)
    f = fleet(tenant("vision", quota), tenant("nlp", 0), tenant("guest"), nodes=2)
    f.submit(draft(gang(1, 8, cpus_per_node=40), tenant="guest"))
    f.run_for(1.0)
    rows = seen(f)
    assert rows["guest"].borrowed == {"gpus": 8, "cpus": 40}
    assert rows["vision"].lent == {"gpus": 8, "cpus": 12}


def test_gpus_of_a_type_are_counted_where_a_quota_names_them() -> None:
    quota = Allowance(gpus=8, gpu_types={"a100": 8})
    f = fleet(tenant("vision", quota), tenant("guest"), nodes=1)
    run(f, "guest")
    rows = seen(f)
    assert rows["guest"].borrowed == {"gpus": 8, "cpus": 1, "a100": 8}
    assert rows["vision"].lent == {"gpus": 8, "cpus": 0, "a100": 8}


def test_what_was_borrowed_becomes_a_tenants_own_when_its_quota_comes_free() -> None:
    f = fleet(tenant("vision", 8))
    first = f.submit(draft(gang(1)))
    run(f, "vision")
    assert gpus(seen(f), "borrowed") == {"vision": 8}
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_for(15.0)
    assert gpus(seen(f), "borrowed") == {"vision": 0}


def test_what_waits_is_counted_within_and_over_quota() -> None:
    f = fleet(tenant("vision", 16), tenant("guest"), nodes=1)
    run(f, "guest", 2)
    run(f, "vision", 3)
    rows = seen(f)
    counts = {n: (r.pending, r.pending_within, r.pending_over) for n, r in rows.items()}
    assert counts == {"vision": (3, 2, 1), "guest": (1, 0, 1)}


def test_usage_is_averaged_and_shared() -> None:
    f = fleet(tenant("vision", 16), tenant("nlp", 16))
    run(f, "vision")
    run(f, "nlp", 3)
    f.clock.advance(8 * 86_400.0)  # the average is over a week
    rows = seen(f)
    assert rows["nlp"].average_gpus == pytest.approx(24.0, rel=1e-3)
    assert rows["nlp"].usage_share_frac == pytest.approx(0.75, rel=1e-3)
    assert rows["nlp"].fair_share_term == pytest.approx(6.0, rel=1e-3)


def test_a_policy_without_quota_counts_what_waits_and_no_more() -> None:
    f = fleet(tenant("vision", 8), nodes=1, policy=Fifo())
    run(f, "vision", 2)
    row = seen(f, "fifo")["vision"]
    assert (row.pending, row.pending_within, row.pending_over) == (1, None, None)
    assert row.fair_share_term is None


@pytest.mark.parametrize(
    ("total", "wanted", "parts"),
    [
        (0, [], []),
        (0, [0, 0], [0, 0]),
        (0, [3], [0]),
        (24, [0, 12, 12, 8], [0, 9, 9, 6]),
        (1, [1, 1], [1, 0]),
        (2, [1, 1, 1], [1, 1, 0]),
        (10, [1, 2, 2**53], [0, 0, 10]),
        (7, [3, 4], [3, 4]),
    ],
)
def test_a_number_is_divided_in_proportion_and_nothing_is_lost(
    total: int, wanted: Sequence[int], parts: list[int]
) -> None:
    assert shared_out(total, wanted) == parts
