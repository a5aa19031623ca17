"""A daemon serves only agents that know what it asks of them, at sites that are its own."""

from __future__ import annotations

import msgspec
import pytest

from federator.daemon.handshake import check_hello
from federator.errors import SiteUnavailable
from federator.model.site_mode import SiteMode
from federator.model.site_names import SiteNames
from federator.model.workload import SiteName
from federator.wire.agent_protocol import PROTOCOL_VERSION, Hello, Welcome

SITE = SiteName("alpine")
WELCOME = Welcome(
    protocol=PROTOCOL_VERSION,
    epoch=1,
    site=SITE,
    partitions=("gpu",),
    poll_interval_s=1.0,
    federation="main",
)
HELLO = Hello(protocol=PROTOCOL_VERSION, site=SITE, slurm_version="24.11.5")


@pytest.mark.parametrize("other", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_an_agent_of_another_protocol_is_not_served_and_both_are_named(other: int) -> None:
    with pytest.raises(SiteUnavailable) as refused:
        check_hello(msgspec.structs.replace(HELLO, protocol=other), WELCOME)
    assert str(refused.value) == (
        f"agent speaks protocol {other}, the daemon {PROTOCOL_VERSION}; install the same release"
    )


def test_a_daemon_of_an_older_epoch_is_told_so() -> None:
    with pytest.raises(SiteUnavailable, match="has served epoch 2, this daemon is of epoch 1"):
        check_hello(msgspec.structs.replace(HELLO, last_epoch=2), WELCOME)


def test_an_agent_that_does_not_know_of_shadow_mode_is_not_served_in_it() -> None:
    welcome = msgspec.structs.replace(WELCOME, mode=SiteMode.SHADOW)
    with pytest.raises(SiteUnavailable, match=r"does not know sites\.NAME\.mode"):
        check_hello(msgspec.structs.replace(HELLO, answers=("names",)), welcome)
    check_hello(msgspec.structs.replace(HELLO, answers=("names", "shadow")), welcome)


def test_an_agent_that_does_not_know_other_names_of_users_is_not_served_with_them() -> None:
    welcome = msgspec.structs.replace(WELCOME, names=SiteNames(users={"ada": "a.one"}))
    with pytest.raises(SiteUnavailable, match=r"does not know sites\.NAME\.names\.users"):
        check_hello(msgspec.structs.replace(HELLO, answers=("names",)), welcome)
    check_hello(msgspec.structs.replace(HELLO, answers=("names", "users")), welcome)


def test_a_daemon_of_another_log_is_told_whose_the_site_is_and_what_to_do() -> None:
    hello = msgspec.structs.replace(
        HELLO, last_epoch=1_795_000_000, federation="prod", log_began=1_790_000_000, other_log=True
    )
    welcome = msgspec.structs.replace(WELCOME, log_began=1_796_000_000)
    with pytest.raises(SiteUnavailable) as refused:
        check_hello(hello, welcome)
    assert str(refused.value) == (
        "the site serves another event log of federation prod, begun 2026-09-21 14:13 UTC, last "
        "2026-11-18 11:06 UTC, and the log of this daemon began 2026-11-30 00:53 UTC: nothing was "
        "changed there. If that log is lost, build it anew with federator recover; to take the "
        "site from it, start this daemon once with --displace"
    )
