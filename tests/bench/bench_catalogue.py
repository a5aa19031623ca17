"""Milliseconds of the catalogue of data sets: ``python -m tests.bench.bench_catalogue``.

10,000 data sets, each with replicas in all of 50 storage domains of one site each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.data_calls import data_sets, domain_rows
from federator.model.data_use import DataUse
from federator.model.dataset import DataReplica, DataSet, DataSharing, StorageDomain
from federator.model.event import DataSetKept, decode_event, encode_event
from federator.model.workload import SiteName, TenantName
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.wire.client_protocol import frame
from federator.wire.data_rows import DataSetsCall

SETS, DOMAINS = 10_000, 50
ASKED = 1_000  # of those questions that are short

CONFIG = FederationConfig.model_validate(
    {
        "federation": "demo",
        "store": "memory:",
        "regions": {"west": {"shared": "/shared"}},
        "sites": {"alpine": {"region": "west", "partitions": ["gpu"], "command": ["agent"]}},
        "tenants": {"vision": {"users": ["ada"]}},
    }
)
ADA = Caller(user="ada", operator=False)
OPERATOR = Caller(user="root", operator=True)


def data_set(k: int) -> DataSet:
    replicas = tuple(
        DataReplica(domain=f"domain{d}", path=f"vision/sets/{k}") for d in range(DOMAINS)
    )
    return DataSet(
        name=f"vision/set{k}",
        version="1",
        owner="ada",
        tenant=TenantName("vision"),
        size_bytes=10**9,
        sharing=DataSharing.ALL,
        replicas=replicas,
    )


def timed(what: str, act: Callable[[], object], times: int = 1) -> None:
    began_s = time.perf_counter()
    for _ in range(times):
        act()
    each_ms = 1000 * (time.perf_counter() - began_s) / times
    print(f"{what:<52} {each_ms:>9.3f} ms")


def main() -> None:
    ledger = Ledger()
    catalogue = ledger.catalogue
    catalogue.domains = {
        f"domain{d}": StorageDomain(mounts={SiteName(f"site{d}"): f"/d{d}"}) for d in range(DOMAINS)
    }
    records = [DataSetKept(at_s=1.0, kept=data_set(k)) for k in range(SETS)]
    timed("all are added", lambda: [ledger.apply(record) for record in records])
    saved = [encode_event(record) for record in taken(ledger, 2.0)]
    print(f"a snapshot has {sum(map(len, saved)) / 2**20:.1f} MiB")
    timed("a snapshot is taken", lambda: [encode_event(each) for each in taken(ledger, 2.0)])
    again = Ledger()
    timed("a ledger is made of it", lambda: [again.apply(decode_event(each)) for each in saved])
    names = iter(range(SETS))

    def new_uses() -> None:
        uses = tuple(
            DataUse(name=f"vision/set{next(names)}", version="1", owner="ada") for _ in range(3)
        )
        assert len(catalogue.sites_of(uses)) == DOMAINS

    timed("the sites of 3 data sets, for the first time", new_uses, ASKED)
    uses = tuple(DataUse(name=f"vision/set{k}", version="1", owner="ada") for k in range(3))
    timed("the sites of 3 data sets, again", lambda: catalogue.sites_of(uses), 100 * ASKED)
    timed("one is changed", lambda: ledger.apply(records[0]), ASKED)
    by_name = DataSetsCall(names=("vision/set77",))
    timed("federator data show", lambda: data_sets(by_name, catalogue, ADA, CONFIG, 0.0), ASKED)
    all_ = DataSetsCall()
    timed("federator data list, a page", lambda: frame(data_sets(all_, catalogue, ADA, CONFIG, 0)))
    timed("federator data usage", lambda: domain_rows(catalogue, None), ASKED)


if __name__ == "__main__":
    main()
