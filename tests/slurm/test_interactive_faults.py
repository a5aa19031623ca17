"""Interactive jobs on terminals while something dies: they go on, or end with a word, for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import LIVE, Running, agents, at, within
from tests.slurm.terminals import alive, begun, shell, window
from tests.slurm.weather import restart_slurmctld

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
GPU = {site.name: f"--gres=gpu:{site.gpu_type}:1" for site in layout.SITES}
READY = "env PS1='ready> ' bash --norc --noprofile -i"
WORD = "/tmp/tests-type-on"  # at the site of the job; the typist waits for it
WAITS = f"echo wai''ting; until [ -e {WORD} ]; do sleep 0.2; done; stty size; exit 6\r"


@pytest.fixture(scope="module")
def running(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("interactive-faults")
    yield from lasting(Running(folder, interactive={"silence_s": 6}))


@pytest.fixture
def federation(running: Running) -> Iterator[Running]:
    for site in SITES:
        at(site, "rm", "-f", WORD)
    yield running
    running.cancel_all()


def session(there: str) -> str:
    """A shell on a node of a site; two sites have GPUs of one type."""
    return f"fsrun --pty -w {there}-g2 {GPU[there]} {READY}"


def at_prompt(there: str) -> str:
    """Whether somebody's shell is there on a node of a site."""
    return at(there, "sh", "-c", "pgrep -f '^bash --norc' || true")


def daemon_dies(federation: Running, _there: str) -> None:
    federation.kill()
    federation.start()


def agent_dies(federation: Running, there: str) -> None:
    before = agents(there)
    at(there, "kill", "-9", *map(str, before))
    within(60, lambda: set(agents(there)) - {*before} and federation.all_up())


def slurmctld_dies(_federation: Running, there: str) -> None:
    restart_slurmctld(there)


@pytest.mark.parametrize(
    ("dies", "there"),
    [
        (daemon_dies, "cedar"),
        (agent_dies, "boreal"),
        *((slurmctld_dies, site) for site in SITES),
    ],
)
def test_a_terminal_goes_on_while_what_serves_it_dies(
    federation: Running, dies: Callable[[Running, str], None], there: str
) -> None:
    here = SITES[SITES.index(there) - 1]
    command, acts = session(there), (("ready> ", "type", WAITS),)
    with ThreadPoolExecutor(1) as typist:
        shown = typist.submit(window, here, command, *acts)
        id_ = begun(federation, "env", "RUNNING")["id"]
        within(60, lambda: at_prompt(there))
        dies(federation, there)
        at(there, "touch", WORD)
        status, text = shown.result()
    assert status == 6, text
    assert "33 111" in text
    assert federation.await_end(id_)[0]["state"] not in LIVE
    within(30, lambda: not alive(there))


def way_breaks(there: str) -> None:
    """The sshd of the session at the site's login node dies."""
    at(there, "sh", "-c", "kill -9 $(pgrep -u vision1 -f '^sshd')")


def node_dies(there: str) -> None:
    at(there, "scontrol", "update", f"nodename={there}-g2", "state=down", "reason=it died")


@pytest.mark.parametrize(
    ("breaks", "there"), [(way_breaks, "alpine"), *((node_dies, site) for site in SITES)]
)
def test_a_terminal_whose_way_or_node_dies_ends_and_leaves_nothing(
    federation: Running, breaks: Callable[[str], None], there: str
) -> None:
    here = SITES[SITES.index(there) - 1]
    command = session(there)
    try:
        with ThreadPoolExecutor(1) as typist:
            shown = typist.submit(window, here, command, ("ready> ", "type", WAITS))
            id_ = begun(federation, "env", "RUNNING")["id"]
            within(60, lambda: at_prompt(there))
            breaks(there)
            status, text = shown.result()
    finally:
        at(there, "sh", "-c", f"scontrol update nodename={there}-g2 state=resume || true")
    assert status not in (0, 6), text
    gone = federation.await_end(id_)[0]
    assert (gone["state"] not in LIVE, gone["attempt"]) == (True, 1), "it does not start elsewhere"
    within(30, lambda: not alive(there))


def test_with_no_kill_an_allocation_outlives_one_of_its_nodes(federation: Running) -> None:
    options = f"--no-shell --no-kill -N2 -w cedar-g[3-4] {GPU['cedar']}"
    kept = shell("alpine", f"fsalloc {options}")
    assert kept.exit_status == 0, kept.stderr
    (*_, row) = federation.rows()
    try:
        at("cedar", "scontrol", "update", "nodename=cedar-g4", "state=down", "reason=it died")
        done = shell("alpine", f"fsrun --jobid={row['id']} -w cedar-g3 -N1 -n1 hostname")
        assert (done.exit_status, done.stdout) == (0, "cedar\n"), done.stderr
        assert federation.row(row["id"])["state"] == "RUNNING"
    finally:
        at("cedar", "sh", "-c", "scontrol update nodename=cedar-g4 state=resume || true")


def test_two_users_on_terminals_of_one_node_at_once_have_their_own(federation: Running) -> None:
    """Each with a window of a size that breaks programs."""
    sizes = {"vision1": (1, 1), "nlp1": (65535, 65535)}

    def typed(user: str) -> tuple[int, str]:
        acts = (
            ("ready> ", "size", sizes[user]),
            ("", "type", WAITS.replace("stty size", "id -un; stty size")),
        )
        return window("alpine", f"fsrun --pty -w cedar-g5 {GPU['cedar']} {READY}", *acts, user=user)

    with ThreadPoolExecutor(2) as typists:
        shown = {user: typists.submit(typed, user) for user in sizes}
        within(60, lambda: len([r for r in federation.rows() if r["state"] == "RUNNING"]) == 2)
        at("cedar", "touch", WORD)
    for user, (rows, columns) in sizes.items():
        status, text = shown[user].result()
        assert status == 6, text
        assert {user, f"{rows} {columns}"} <= set(text.splitlines()), text
    federation.await_end(*(row["id"] for row in federation.rows()[-2:]))
    within(30, lambda: not alive("cedar"))
