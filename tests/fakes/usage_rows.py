"""Makes up attempts for reports of usage, as rows of the history."""

from __future__ import annotations

from typing import Any

import msgspec

from federator.history.schema import OWNER
from federator.usage.classes import AttemptTimes
from federator.usage.days import AttemptUse, Evictor
from federator.wire.accounting_rows import AccountingAttempt, AttemptFacts


def attempt_use(number: int, ended_at_s: float, families: int = 5) -> AttemptUse:
    """The attempt of this number: an hour or so, of one of 1,000 users in 50 tenants.

    ``families``: how many names each user gives.
    """
    user = (number * 7919) % 1000
    kind = "a100" if number % 2 else "h100"
    gpus = 8 << (number % 4)
    ran_s = 600.0 + (number * 131) % 7200
    evicted = number % 10 == 0
    own = f"-{chr(97 + number % 26)}{user}" if number % 100 == 0 else ""
    return AttemptUse(
        times=AttemptTimes(
            attempt=1,
            awarded_at_s=ended_at_s - ran_s - 20,
            started_at_s=ended_at_s - ran_s,
            ended_at_s=ended_at_s,
            known_at_s=ended_at_s + 1,
            state="PREEMPTED" if evicted else "COMPLETED",
            evicted=evicted,
            told_at_s=ended_at_s - 60 if evicted else 0.0,
            saved_at_s=ended_at_s - 30 if evicted else 0.0,
        ),
        site=f"site{number % 8}",
        partition="gpu",
        gpus=gpus,
        gpu_types=f"{kind}={gpus}",
        cpus=16 * gpus,
        mem_mib=64_000 * gpus,
        tenant=f"tenant{user % 50}",
        user=f"user{user}",
        family=f"train-{number // 1000 % families}{own}",
        over_quota=number % 3 == 0,
        evictor=Evictor("tenant1", "user1", "", "serve") if evicted else Evictor(),
    )


def attempt_values(id_: int, use: AttemptUse) -> dict[str, Any]:
    """The row of ``schema.attempts``."""
    made = AccountingAttempt(
        attempt=use.times.attempt,
        site=use.site,
        site_job_id=id_ & 0xFFFFFFF,
        partition=use.partition,
        node_list="n[0001-0008]",
        nodes=8,
        cpus=use.cpus,
        gpus=use.gpus,
        gpu_types=use.gpu_types,
        mem_mib=use.mem_mib,
        awarded_at_s=use.times.awarded_at_s,
        started_at_s=use.times.started_at_s,
        ended_at_s=use.times.ended_at_s,
        state=use.times.state,
    )
    facts = AttemptFacts(
        over_quota=use.over_quota,
        evicted=use.times.evicted,
        told_at_s=use.times.told_at_s,
        saved_at_s=use.times.saved_at_s,
        known_at_s=use.times.known_at_s,
        **{f"evictor_{name}": value for name, value in use.evictor._asdict().items()},
    )
    values = msgspec.structs.asdict(made) | {
        name: int(value) if isinstance(value, bool) else value
        for name, value in msgspec.structs.asdict(facts).items()
    }
    del values["use"], values["facts"]
    owner = {name: getattr(use, name) for name in OWNER}
    return values | owner | {"id": id_, "counted": 1}
