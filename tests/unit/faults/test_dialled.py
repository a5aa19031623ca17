"""Sites of fault histories that dial the daemon: a channel that is lost is opened anew."""

from __future__ import annotations

import pytest

from federator.faults.history import run_history
from federator.faults.kinds import FaultKind
from federator.faults.network import Line
from federator.faults.process import Process
from federator.faults.site_host import SiteHost

MOST_SEEDS = 40


def test_a_site_that_loses_its_link_is_served_from_its_other_login_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Soon, in whichever history: another change elsewhere makes every seed another history."""
    serving: list[tuple[str, str]] = []  # sites, each with the login node of an agent
    as_ever = SiteHost.start_agent

    def start_agent(self: SiteHost, node: str, line: Line) -> Process:
        if self.diallers:
            serving.append((self.name, node))
        return as_ever(self, node, line)

    monkeypatch.setattr(SiteHost, "start_agent", start_agent)
    for seed in range(MOST_SEEDS):
        serving.clear()
        found = run_history(seed, (FaultKind.OUTBOUND_LINK_LOST,))
        assert found.broken == ()
        assert not found.struck[FaultKind.OUTBOUND_LINK_LOST] or len(serving) > 1
        if found.struck[FaultKind.OUTBOUND_LINK_LOST] and any(
            {(site, "login1"), (site, "login2")} <= set(serving) for site, _ in serving
        ):
            return
    pytest.fail(f"{MOST_SEEDS} histories, and in none a site was served from two login nodes")
