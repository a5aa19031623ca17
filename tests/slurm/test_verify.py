"""A site is verified by its agent, on three generations of Slurm: all well, and a node that is bad.

Asked as an operator's command asks the daemon.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from federator.cli.client import call
from federator.testbed import layout
from federator.wire.client_protocol import Finding, Verdict, VerifyCall, VerifyReply
from tests.slurm.federation import Running, at, open_to_all, within
from tests.slurm.test_node_failures import WHY, failing_prolog

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def _socket(federation: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDERATOR_SOCKET", str(federation.folder / "daemon.sock"))


SITES = [site.name for site in layout.SITES]


def verified(site: str, *nodes: str) -> dict[str, Finding]:
    """The findings by check; no probe may be left."""
    reply = call(VerifyCall(site=site, user="vision1", nodes=nodes), 400.0)
    assert isinstance(reply, VerifyReply), reply
    live = ("squeue", "--noheader", "--name=fed-verify", "--states=PD,CF,R")
    assert at(site, *live) == ""
    within(60, lambda: at(site, "squeue", "--noheader", "--name=fed-verify") == "")  # its epilog
    assert at(site, "find", f"{layout.SPOOL_DIR}/leases", "-name", "0.*") == ""
    return {finding.check: finding for finding in reply.findings}


def failures(found: dict[str, Finding]) -> dict[str, str]:
    return {c: f.detail for c, f in found.items() if f.verdict is Verdict.FAIL}


def test_a_site_that_is_set_up_has_no_failure_and_an_open_partition_is_one() -> None:
    def check(site: str) -> None:
        nodes = (f"{site}-g2", f"{site}-c1")
        found = verified(site, *nodes)
        assert failures(found) == {}
        proved = (
            "spool",
            "helper for vision1",
            "helper refuses",
            "partition fed",
            "clock",
            "direct submission to fed",
            *(f"probe on {node}" for node in nodes),
        )
        assert {found[name].verdict for name in proved} == {Verdict.OK}
        with open_to_all(site):
            assert set(failures(verified(site))) == {"direct submission to fed"}

    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(check, SITES))


def test_a_node_that_its_gate_drains_is_a_failure_in_the_gates_words() -> None:
    def check(site: str) -> None:
        bad = f"{site}-g3"
        with failing_prolog(site, bad, held=False):
            found = verified(site, bad)
        assert failures(found) == {f"probe on {bad}": f"the node is drained now: {WHY}"}

    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(check, SITES))
