"""The tenants' last hours, as this process has seen them; a restart begins anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from federator.wire.client_protocol import TenantRow, TenantsReply

EVERY_S: Final = 60.0
KEPT: Final = 720  # samples: 12 hours


class TenantSample(NamedTuple):
    """GPUs of one tenant at one time."""

    used: int
    borrowed: int
    lent: int
    quota: int | None


class Past:
    """Samples of all tenants.

    Args:
        wall: Unix time.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._samples: deque[tuple[float, Mapping[str, TenantSample]]] = deque(maxlen=KEPT)

    def take(self, reply: TenantsReply) -> None:
        """Keep an answer, unless the last one kept is of this minute."""
        now_s = self._wall()
        if self._samples and now_s < self._samples[-1][0] + EVERY_S:
            return
        self._samples.append((now_s, {row.name: _sample(row) for row in reply.rows}))

    def of(self, tenant: str) -> tuple[tuple[float, TenantSample], ...]:
        """A tenant's samples with their Unix times, oldest first."""
        return tuple((at_s, found[tenant]) for at_s, found in self._samples if tenant in found)


def _sample(row: TenantRow) -> TenantSample:
    quota = None if row.quota is None else row.quota.get("gpus")
    return TenantSample(
        used=row.used.get("gpus", 0),
        borrowed=row.borrowed.get("gpus", 0),
        lent=row.lent.get("gpus", 0),
        quota=quota,
    )
