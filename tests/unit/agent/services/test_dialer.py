"""A site that dials: ssh first, then an agent on its streams, and all of it again."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from federator.agent.config import AgentConfig, DialTo
from federator.agent.services import dialer as module
from federator.agent.services.dialer import Dialer, DialTurns, only_dialer, ssh_argv
from federator.errors import SiteUnavailable

ONE = DialTo(host="one", key="/k", known_hosts="/h")
TWO = DialTo(host="two", key="/k", known_hosts="/h")
# Stands for ssh: a login shell's words, then a daemon that asks and wants an answer.
SERVES = "echo motd; echo federator: attached; echo welcome; read said; echo $said >>{0}/heard"
AGENT = "read asked; echo $asked >>{0}/asked; echo report"


def shell(script: str, folder: Path) -> list[str]:
    return ["sh", "-c", script.format(folder)]


RETRY_S = module.RETRY_S


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", (0.0,))


def dial(
    folder: Path, scripts: dict[str, str], until: Callable[[list[str]], bool], agent: str = AGENT
) -> list[str]:
    """Dial hosts whose ssh is a script, until the log is as wanted; the log."""
    said: list[str] = []

    async def play() -> None:
        def tell(line: str) -> None:
            said.append(line)
            if until(said):
                dialer.stop()

        dialer = Dialer(
            (ONE, TWO) if len(scripts) == 2 else (ONE,),
            shell(agent, folder),
            tell,
            lambda to: shell(scripts[to.host], folder),
        )
        await asyncio.wait_for(dialer.run(), 20.0)

    asyncio.run(play())
    return said


def test_agent_and_daemon_speak_over_ssh_and_a_lost_channel_is_opened_again(tmp_path: Path) -> None:
    ended = "one: the channel ended"
    said = dial(tmp_path, {"one": SERVES}, lambda said: said.count(ended) == 2)
    assert said == ["one: attached", ended] * 2
    assert (tmp_path / "asked").read_text() == "welcome\n" * 2
    assert (tmp_path / "heard").read_text() == "report\n" * 2


def test_a_host_whose_daemon_does_not_lead_is_followed_by_the_next_and_starts_no_agent(
    tmp_path: Path,
) -> None:
    scripts = {"one": "echo motd; echo no daemon that leads >&2; exit 69", "two": SERVES}
    said = dial(tmp_path, scripts, lambda said: len(said) == 3)
    assert said == ["one: no daemon that leads", "two: attached", "two: the channel ended"]
    assert (tmp_path / "asked").read_text() == "welcome\n"


def test_it_pauses_longer_and_longer_and_only_when_every_daemon_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", RETRY_S)
    turns = DialTurns(2)
    tried = [(turns.next, turns.ended(lasted=False)) for _ in range(12)]
    assert tried[:4] == [(0, 0.5), (1, 1.0), (0, 0.5), (1, 2.0)]
    assert tried[-2:] == [(0, 0.5), (1, 10.0)]
    turns.ended(lasted=False)
    assert (turns.next, turns.ended(lasted=True)) == (1, 0.5)
    assert turns.next == 1  # who served is dialled first


def test_the_same_failure_again_and_again_is_told_once(tmp_path: Path) -> None:
    tried = "echo x >>{0}/tries; [ $(wc -l <{0}/tries) -lt 4 ] || echo federator: attached"
    scripts = {"one": f"{tried}; echo down >&2"}
    said = dial(tmp_path, scripts, lambda said: len(said) == 2, "true")
    assert said == ["one: down", "one: attached"]


def test_an_agent_that_ends_ends_ssh_and_says_why(tmp_path: Path) -> None:
    scripts = {
        "one": "echo federator: attached; exec cat >/dev/null"
    }  # a daemon that then hangs up
    why = "one: the channel ended / a newer daemon has been here"
    agent = "echo a newer daemon has been here >&2; exit 75"
    assert dial(tmp_path, scripts, lambda said: len(said) == 2, agent) == ["one: attached", why]


def test_a_login_node_stands_by_while_another_is_attached_and_starts_its_agent_then(
    tmp_path: Path,
) -> None:
    released = "while ! [ -e {0}/go ]; do :; done; echo federator: attached"
    served = "while ! [ -e {0}/agent ]; do :; done"
    scripts = {"one": f"echo federator: standing by; {released}; {served}"}

    def until(said: list[str]) -> bool:
        if len(said) == 1:
            assert not (tmp_path / "agent").exists()
            (tmp_path / "go").touch()
        return len(said) == 3

    said = dial(tmp_path, scripts, until, "touch {0}/agent")
    stands_by = "one: stands by: another login node of this site is attached"
    assert said == [stands_by, "one: attached", "one: the channel ended"]
    assert (tmp_path / "agent").exists()


def test_to_stop_ends_a_channel_that_is_up_and_one_that_is_only_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_WORDS_S", 0.0)
    scripts = {"one": "echo federator: attached; exec sleep 600"}
    assert dial(tmp_path, scripts, bool, "exec sleep 600")[0] == "one: attached"

    async def play() -> None:
        started = tmp_path / "started"
        command = shell("touch {0}/started; exec sleep 600", tmp_path)
        dialer = Dialer((ONE,), ["true"], lambda _line: None, lambda _to: command)
        running = asyncio.create_task(dialer.run())
        while not started.exists():
            await asyncio.sleep(0)
        dialer.stop()
        await asyncio.wait_for(running, 20.0)

    asyncio.run(play())


def test_an_agent_that_is_asked_to_end_is_heard_to_its_last_word(tmp_path: Path) -> None:
    hears = "echo federator: attached; cat >{0}/heard"
    agent = "trap 'echo the last; exit' TERM; touch {0}/serves; while :; do read word; done"
    said: list[str] = []

    async def play() -> None:
        dialer = Dialer(
            (ONE,), shell(agent, tmp_path), said.append, lambda _to: shell(hears, tmp_path)
        )
        running = asyncio.create_task(dialer.run())
        while not (tmp_path / "serves").exists():
            await asyncio.sleep(0)
        dialer.stop()
        await asyncio.wait_for(running, 20.0)

    asyncio.run(play())
    assert (tmp_path / "heard").read_text() == "the last\n"


def test_a_daemon_that_hangs_before_it_attaches_the_site_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTACHED_WITHIN_S", 0.0)
    monkeypatch.setattr(module, "LASTING_S", 0.0)  # waiting is not lasting
    scripts = {"one": "exec sleep 600", "two": "echo no >&2; exec sleep 600"}
    said = dial(tmp_path, scripts, lambda said: len(said) == 2)
    assert said[0] == "one: no daemon has attached the site"
    assert said[1].startswith("two: ")


def test_a_flood_on_standard_error_stops_nothing(tmp_path: Path) -> None:
    flood = "head -c 3000000 /dev/zero >&2"
    scripts = {"one": f"{flood}; echo federator: attached; echo welcome; read said; {flood}"}
    said = dial(tmp_path, scripts, lambda said: len(said) == 2)
    assert said[0] == "one: attached"


def test_a_host_that_only_chatters_is_no_daemon(tmp_path: Path) -> None:
    scripts = {"one": "exec cat /dev/zero"}
    said = dial(tmp_path, scripts, bool)
    assert said == ["one: no daemon has attached the site"]


def test_an_ssh_that_is_not_installed_is_said() -> None:
    said: list[str] = []

    async def play() -> None:
        def tell(line: str) -> None:
            said.append(line)
            dialer.stop()

        dialer = Dialer((ONE,), ["true"], tell, none)
        await asyncio.wait_for(dialer.run(), 20.0)

    def none(_to: DialTo) -> list[str]:
        return ["/absent/ssh"]

    files = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    asyncio.run(play())
    assert "No such file" in said[0]
    assert len(os.listdir("/proc/self/fd")) == files


def test_one_dialler_a_site(tmp_path: Path) -> None:
    lock = only_dialer(tmp_path)
    with pytest.raises(SiteUnavailable, match="another dialler"):
        only_dialer(tmp_path)
    os.close(lock)
    os.close(only_dialer(tmp_path))
    with pytest.raises(SiteUnavailable, match="No such file"):
        only_dialer(tmp_path / "absent")


def test_ssh_takes_its_own_key_the_pinned_host_key_and_nobody_s_configuration() -> None:
    to = DialTo(host="-oProxyCommand=x", port=2200, user="fed", key="/etc/k", known_hosts="/etc/h")
    argv = ssh_argv(to)
    assert argv[:3] == ["ssh", "-F", "/dev/null"]
    assert argv[-3:-1] == ["--", "-oProxyCommand=x"]  # a host, never an option
    assert argv[-1] == socket.gethostname()  # which login node this is
    for option in ("StrictHostKeyChecking=yes", "UserKnownHostsFile=/etc/h", "BatchMode=yes"):
        assert option in argv
    assert argv[argv.index("-l") + 1 :][:1] == ["fed"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("key: k", "expected an absolute path"),
        ("known_hosts: /a b", "without blanks"),
        ("key: /home/%u/k", "without blanks"),
        ("known_hosts: /home/${USER}/h", "without blanks"),
        ("port: 0", "expected 1 to 65535"),
    ],
)
def test_agent_yaml_refuses_what_ssh_would_read_otherwise(change: str, says: str) -> None:
    daemon = {"host": "fed", "key": "/k", "known_hosts": "/h"}
    key, value = change.split(": ", 1)
    daemon[key] = int(value) if key == "port" else value  # type: ignore[assignment]
    settings = {"site": "alpine", "socket": "/s", "state_dir": "/d", "daemons": [daemon]}
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(settings, AgentConfig)
