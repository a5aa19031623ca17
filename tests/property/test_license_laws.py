"""Laws of licences that all sites share, for every history of submissions, faults and restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from federator.model.lifecycle import AT_SITE
from federator.sched.state.fleet_licenses import asked_of_pools
from tests.fakes.build import draft, gang
from tests.fakes.loopback import Loopback
from tests.property.test_federation_laws import ACTS, CALM, FAULTS, HISTORIES, Act, acts, fresh

POOLS = {"flexlm": 4, "solver": 1}
ACTS_OF_POOLS = ("licensed", "licensed", "licensed array")


def _licensed(f: Loopback, name: str, x: int, y: int) -> None:
    amounts = {"flexlm": x % 4, "solver": y % 2}
    job = replace(
        gang(1 + x % 2, 1 + y % 8),
        fleet_licenses=tuple((pool, n) for pool, n in amounts.items() if n),
    )
    tasks = tuple(range(1 + y % 4)) if name == "licensed array" else ()
    tenant = "vision" if y % 3 else "guest"
    f.ask(draft(job, array_indices=tasks, array_max_running=x % 3 * len(tasks[:1]), tenant=tenant))


def _play(f: Loopback, name: str, x: int, y: int) -> None:
    if name in ACTS_OF_POOLS:
        _licensed(f, name, x, y)
    else:
        ACTS[name](f, x, y)
    f.check_invariants()


def _held(f: Loopback) -> Counter[str]:
    """By pool, what those that are at sites ask for."""
    found: Counter[str] = Counter()
    for entry in f.federation.ledger.in_state(*AT_SITE):
        found.update(dict(asked_of_pools(entry.workload.jobs)))
    return found


@HISTORIES
@given(acts((*CALM, *FAULTS, *ACTS_OF_POOLS * 3)), st.booleans())
def test_never_is_more_of_a_pool_in_use_than_there_is(history: list[Act], evicting: bool) -> None:
    f = fresh(evicting)
    f.reload(replace(f.federation.rules, licenses=POOLS))
    for act in history:
        _play(f, *act)
        held = _held(f)
        assert held <= Counter(POOLS)
        assert +f.federation.ledger.counts.licenses == held
    assert _held(f) == Counter(dict(f.replayed().counts.licenses))
