"""A daemon that a site does not serve is told why before any agent there is disturbed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from federator.agent.journal import Journal, OtherLog, Served
from federator.agent.services.handshake import (
    check_greeted,
    refuse_foreign_daemon,
    refuse_other_folder,
    term_of,
)
from federator.agent.tenure import AgentTenure
from federator.errors import StaleState
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    FromAgent,
    Hello,
    Welcome,
    from_agent_decoder,
)

PROD = Served(50, "prod", 10)
WELCOME = Welcome(
    protocol=PROTOCOL_VERSION,
    epoch=60,
    site="alpine",
    partitions=("gpu",),
    poll_interval_s=10.0,
    federation="trial",
    log_began=60,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Journal(tmp_path, 0.0).accept(PROD)
    return tmp_path


def refused(folder: Path, welcome: Welcome) -> list[FromAgent]:
    """What such a daemon is told."""
    said: list[FromAgent] = []

    def write(data: bytes) -> None:
        said.append(from_agent_decoder.decode(data[4:]))

    with pytest.raises(StaleState):
        refuse_foreign_daemon(folder, "alpine", welcome, write)
    assert Journal(folder, 0.0).served == PROD
    return said


def hello(*, other_log: bool) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION,
        site="alpine",
        slurm_version="",
        last_epoch=50,
        federation="prod",
        log_began=10,
        other_log=other_log,
    )


@pytest.mark.parametrize(
    ("welcome", "said"),
    [
        (
            msgspec.structs.replace(WELCOME, protocol=PROTOCOL_VERSION + 1),
            f"the daemon speaks protocol {PROTOCOL_VERSION + 1}, this agent {PROTOCOL_VERSION}; "
            "install the same release",
        ),
        (
            msgspec.structs.replace(WELCOME, site="birch"),
            "the daemon takes this for site 'birch', and agent.yaml says 'alpine'",
        ),
    ],
    ids=["protocol", "site"],
)
def test_a_daemon_of_another_protocol_or_for_another_site_is_told_so(
    welcome: Welcome, said: str
) -> None:
    with pytest.raises(StaleState) as refused:
        check_greeted(welcome, "alpine")
    assert str(refused.value) == said
    check_greeted(WELCOME, "alpine")


def test_a_trial_daemon_is_told_whose_the_site_is_and_changes_nothing(folder: Path) -> None:
    assert refused(folder, WELCOME) == [hello(other_log=True)]
    renamed = msgspec.structs.replace(WELCOME, federation="prod")
    assert refused(folder, renamed) == [hello(other_log=True)]


def test_a_daemon_of_an_older_epoch_is_told_which_one_is_served(folder: Path) -> None:
    late = msgspec.structs.replace(WELCOME, epoch=40, log_began=10)
    assert refused(folder, late) == [hello(other_log=False)]


@pytest.mark.parametrize("change", [{"displaces": True}, {"log_began": 10}, {"log_began": 0}])
def test_the_same_log_and_who_displaces_are_served(
    folder: Path, change: dict[str, bool | int]
) -> None:
    welcome = msgspec.structs.replace(WELCOME, **change)
    refuse_foreign_daemon(folder, "alpine", welcome, lambda _: pytest.fail("it is served"))
    journal = Journal(folder, 0.0)
    journal.accept(term_of(welcome), displaces=welcome.displaces)
    assert journal.served == Served(60, "trial", welcome.log_began or 10)


def test_another_log_is_refused_also_if_it_was_served_meanwhile(folder: Path) -> None:
    """Both waited for an older agent to end."""
    with pytest.raises(OtherLog):
        Journal(folder, 0.0).accept(term_of(WELCOME))


SERVED = msgspec.structs.replace(WELCOME, channel=8, served_channel=7, served_host="login1")


def begin(folder: Path, host: str, channel: int, epoch: int = 60) -> None:
    AgentTenure(folder, epoch, channel, host=host, process="1").begin()


@pytest.mark.parametrize("is_new", [False, True], ids=["a copy", "a new one"])
def test_a_folder_in_which_the_last_channel_of_another_host_did_not_begin_serves_nobody(
    tmp_path: Path, is_new: bool
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    begin(there, "login1", 9, epoch=59)
    if is_new:
        here.mkdir()
    else:
        shutil.copytree(there, here)
    begin(there, "login1", 7)
    before = {path: path.read_bytes() for path in here.iterdir()}
    for channel in (8, 9):  # nor when it is tried again
        said: list[bytes] = []
        welcome = msgspec.structs.replace(SERVED, channel=channel)
        with pytest.raises(StaleState, match="not the folder that the agent at login1 has"):
            refuse_other_folder(here, "alpine", "login2", welcome, said.append)
        hello = from_agent_decoder.decode(said[0][4:])
        assert isinstance(hello, Hello)
        assert (hello.other_folder, hello.host) == (True, "login2")
    assert {path: path.read_bytes() for path in here.iterdir()} == before


def torn(folder: Path) -> None:
    (folder / "tenure").write_bytes(b"60 7 log")


@pytest.mark.parametrize(
    ("prepare", "host", "welcome"),
    [
        (lambda folder: begin(folder, "login1", 7), "login2", SERVED),
        (lambda folder: begin(folder, "login3", 8), "login2", SERVED),  # its Hello was lost
        (torn, "login2", SERVED),
        (lambda _: None, "login1", SERVED),
        (lambda _: None, "login2", WELCOME),
    ],
    ids=["it began", "a later one did", "a torn line", "the same host", "nobody served"],
)
def test_a_folder_that_may_be_the_other_login_node_s_serves(
    tmp_path: Path, prepare: Callable[[Path], None], host: str, welcome: Welcome
) -> None:
    prepare(tmp_path)
    refuse_other_folder(tmp_path, "alpine", host, welcome, lambda _: pytest.fail("it is served"))
