"""What ``federator doctor`` finds of jobs on real Slurm, and whom it mails; the well it lets alone.

The nodes' GPUs are made up: a stand-in for nvidia-smi says what was recorded of trainings on an
H100 (tests/data/gpu_series). Jobs that tell of their steps do so by ``Checkpointer``. In fast
motion seconds stand for the minutes and hours of the doctor's bounds; $FEDERATOR_DOCTOR_S=660 is
real time.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from federator.cli.doctor import doctor
from federator.history import doctor_answer
from federator.testbed import layout
from federator.testbed.layout import StateDir
from federator.usage.diagnosis import THRESHOLDS, Thresholds
from tests.fakes import gpu_recordings
from tests.fakes.mail_server import SmtpServer
from tests.slurm.conftest import lasting
from tests.slurm.federation import GO, LONG_S, Running, at, until, within
from tests.slurm.guests import folder_of

pytestmark = pytest.mark.slurm

LASTS_S: Final = float(os.environ.get("FEDERATOR_DOCTOR_S", "25"))
IN_FAST_MOTION: Final = Thresholds(
    idle_s=10.0,
    steady_s=10.0,
    idle_gpu_h=0.01,
    wasted_gpu_h=0.005,
    lost_gpu_h=0.01,
    beyond_end_s=3.0,
)
BOUNDS: Final = THRESHOLDS if THRESHOLDS.steady_s < LASTS_S else IN_FAST_MOTION
TURNS: Final = 12  # of the watch, with three looks each
CONFIG: Final = "/etc/federator/node.json"
WAS: Final = CONFIG + ".before-the-test"
USE: Final = "/tmp/federator-series"  # in the container: <node>.series and <node>.at
SETTINGS: Final[dict[str, Any]] = {
    "nvidia_smi": f"{USE}/nvidia-smi",
    "gate": {"enabled": False},  # it would ask for more than the stand-in knows
    "epilog": {"gpu_memory": "off", "usage_dir": f"{layout.SPOOL_DIR}/usage"},
    "watch": {"looks": 3, "look_gap_s": 0, "interval_s": 600, "zombie_s": 86_400, "idle_s": 86_400},
}
# A line of a series for each look: memory, use, memory in all, power, its limit. All GPUs alike.
SMI: Final = f"""#!/bin/sh
series={USE}/$SLURMD_NODENAME
case "$1" in --query-gpu=*) ;; *) exit 0 ;; esac
n=$(cat $series.at 2>/dev/null || echo 0)
echo $((n + 1)) >$series.at
sed -n "$((n % $(wc -l <$series.series) + 1))p" $series.series | while read -r used busy all w most
do for k in 0 1 2 3 4 5 6 7; do echo "$k, GPU-$k, $used, $busy, Disabled, $all, $w, $most"; done
done
"""
# Two ranks that take each step together, over a socket: load, own part, exchange.
RANKS: Final = f"""#!/bin/bash
export PYTHONPATH={layout.USER_DIR}
exec srun python3 -c '
import os, socket, struct, time
from federator.checkpoint import Checkpointer

load_s, own_s, exchange_s = TIMES
rank, port = int(os.environ["SLURM_PROCID"]), 20000 + int(os.environ["SLURM_JOB_ID"]) % 10000
if rank == 0:
    other = socket.create_server(("", port)).accept()[0]
while rank == 1:
    try:
        other = socket.create_connection((os.uname().nodename, port))
        break
    except OSError:
        time.sleep(0.2)

def agree(number):
    other.sendall(struct.pack("q", number))
    return max(number, struct.unpack("q", other.recv(8, socket.MSG_WAITALL))[0])

with Checkpointer(agree=agree, rank=rank, interval_s=4) as ckpt:
    step = 0
    while not agree(os.path.exists("{GO}/end")):
        time.sleep(load_s)
        ckpt.loaded()
        time.sleep(own_s[rank])
        ckpt.computed()
        agree(0)
        time.sleep(exchange_s)
        step += 1
        ckpt.step(step, dict)
'
"""
# Saves once, and then no more; not even if Slurm still tells it that its node is gone.
SELDOM: Final = f"""#!/bin/bash
export PYTHONPATH={layout.USER_DIR}
exec python3 -c '
import math, os, time
from federator.checkpoint import Checkpointer

with Checkpointer(interval_s=math.inf, signals=()) as ckpt:
    for step in range(10**6):
        time.sleep(0.1)
        ckpt.step(step, dict)
        if step == 10:
            ckpt.save(step, lambda: bytes(1 << 20))
'
"""
HOLDS: Final = f"#!/bin/sh\n{until()}"
GPUS: Final = "--gres=gpu:8"


class Case(NamedTuple):
    """A job, where it runs, and what its nodes' GPUs do."""

    name: str
    user: str
    place: str  # "site:nodes"
    script: str
    options: tuple[str, ...]
    series: str = ""  # a recording; "": nobody watches


def ranks(load_s: float, own_s: tuple[float, float], exchange_s: float) -> str:
    return RANKS.replace("TIMES", repr((load_s, own_s, exchange_s)))


GANG: Final = ("-N2", "--ntasks-per-node=1", GPUS)
CASES: Final = (
    Case("idle", "vision1", "cedar:cedar-g1", HOLDS, (GPUS,), "idle"),
    Case("shards", "vision1", "cedar:cedar-g[2-3]", HOLDS, ("-N2", GPUS), "starved-shards"),
    *(
        Case(f"tiny-{k}", "vision2", "cedar:cedar-g4", HOLDS, ("--gres=gpu:2",), "tiny")
        for k in range(3)
    ),
    Case(
        "loader", "vision2", "boreal:boreal-g[1-2]", ranks(0.4, (0.3, 0.3), 0), GANG, "starved-50"
    ),
    Case(
        "bound", "vision2", "boreal:boreal-g[3-4]", ranks(0, (0.2, 0.2), 0.5), GANG, "communication"
    ),
    Case("late", "vision1", "boreal:boreal-g[5-6]", ranks(0, (0.2, 0.6), 0), GANG, "healthy"),
    # These are well.
    Case("sound", "nlp1", "boreal:boreal-g[7-8]", ranks(0, (0.4, 0.4), 0.02), GANG, "healthy"),
    Case("steady", "nlp1", "cedar:cedar-g5", HOLDS, (GPUS,), "healthy"),
)
SELDOM_NODES: Final = ("cedar-g6", "cedar-g7", "cedar-g8")
FOUND: Final = {
    ("zombie", "vision1", "beyond"),
    ("idle", "vision1", "idle"),
    ("starved", "vision1", "shards"),
    ("starved", "vision2", "loader"),
    ("communication", "vision2", "bound"),
    ("straggler", "vision1", "late"),
    ("failing", "vision2", "fails-#"),
    ("timeout", "vision1", "endless-#"),
    ("checkpoint", "vision1", "seldom-#"),
    ("gpu-size", "vision2", "tiny-#"),
}


def everywhere(work: Callable[[str], object]) -> None:
    with ThreadPoolExecutor(len(layout.SITES)) as pool:
        list(pool.map(work, [site.name for site in layout.SITES]))


def shell(site: str, script: str, stdin: str = "") -> str:
    return at(site, "sh", "-ec", script, stdin=stdin)


def set_up(site: str) -> None:
    shell(
        site,
        f"rm -rf {USE}; mkdir -p {USE}; [ ! -e {CONFIG} ] || [ -e {WAS} ] || mv {CONFIG} {WAS}",
    )
    shell(site, f"cat >{USE}/nvidia-smi; chmod 755 {USE}/nvidia-smi", stdin=SMI)
    shell(site, f"cat >{CONFIG}", stdin=json.dumps(SETTINGS))


def tear_down(site: str) -> None:
    shell(site, f"rm -rf {CONFIG} {USE}; [ ! -e {WAS} ] || mv {WAS} {CONFIG}")
    shell(site, "scontrol update partitionname=fed overtimelimit=0")
    shell(site, "scontrol update nodename=ALL state=resume || true")  # says no if all are well


class Mailing(NamedTuple):
    """A daemon, and the mail server beside it."""

    running: Running
    server: SmtpServer


@pytest.fixture
def mailing(testbed: StateDir, tmp_path: Path) -> Iterator[Mailing]:
    server, running = SmtpServer(), Running(tmp_path)
    settings = yaml.safe_load(running.config.read_text())
    settings["mail"] = {"smtp": server.address, "domain": "example.org"}
    running.config.write_text(yaml.safe_dump(settings))
    try:
        everywhere(set_up)
        for started in lasting(running):
            yield Mailing(started, server)
    finally:
        server.end()
        everywhere(tear_down)


def nodes_of(case: Case) -> list[str]:
    site, _, names = case.place.partition(":")
    numbers = [int(text) for text in re.findall(r"\d+", names)]
    return [f"{site}-g{number}" for number in range(numbers[0], numbers[-1] + 1)]


def watch(turns: int) -> None:
    """So many turns of the watch on every node that has a series, as its timer would do them."""
    nodes: dict[str, dict[str, str]] = {}
    for case in CASES:
        for name in nodes_of(case):
            nodes.setdefault(name.partition("-")[0], {})[name] = case.series

    def look(site: str) -> None:
        for name, label in nodes.get(site, {}).items():
            looks = [x for some in gpu_recordings.looks_at(label, 1, TURNS) for x in some]
            lines = (
                f"{x.memory_mib:.0f} {100 * (x.busy_frac or 0):.0f} {x.total_mib:.0f} "
                f"{700 * (x.power_frac or 0):.1f} 700\n"
                for x in looks
            )
            shell(site, f"cat >{USE}/{name}.series", stdin="".join(lines))
        each = " ".join(nodes.get(site, ()))
        run = "SLURMD_NODENAME=$node /opt/federator/libexec/fed-watch; done; done"
        shell(site, f"for turn in $(seq {turns}); do for node in {each}; do {run}")

    everywhere(look)


def begin(running: Running) -> dict[str, list[int]]:
    """The ids by family; all run, but for those that fail by themselves."""
    ids: dict[str, list[int]] = {}

    def submit(name: str, script: str, *options: str, user: str) -> None:
        family = re.sub(r"\d+", "#", name)
        id_ = running.submit(script, f"-J{name}", *options, user=user)
        ids.setdefault(family, []).append(id_)

    at("alpine", "scontrol", "update", "partitionname=fed", "overtimelimit=unlimited")
    beyond = ("--nodelist=alpine:alpine-g1", "--gres=gpu:1", "-t1")
    submit("beyond", f"#!/bin/sh\nsleep {LONG_S}\n", *beyond, user="vision1")
    for case in CASES:
        submit(
            case.name,
            case.script,
            f"--nodelist={case.place}",
            "-t60",
            *case.options,
            user=case.user,
        )
    for k, node in enumerate(SELDOM_NODES):
        place = f"--nodelist=cedar:{node}"
        submit(f"seldom-{k}", SELDOM, place, GPUS, "-t60", user="vision1")
    for k in range(3):
        place = "--nodelist=cedar:cedar-c1"
        submit(f"endless-{k}", f"#!/bin/sh\nsleep {LONG_S}\n", place, "-t1", user="vision1")
    for id_ in (id_ for family, some in ids.items() if family != "endless-#" for id_ in some):
        running.await_state(id_, "RUNNING")
    for k in range(5):
        submit(f"fails-{k}", "#!/bin/sh\nexit 3\n", "-t5", user="vision2")
    for k, status in enumerate((1, 1, 0)):  # it was repaired
        submit(f"mended-{k}", f"#!/bin/sh\nexit {status}\n", "-t5", user="nlp1")
    return ids


def nodes_die(running: Running, ids: list[int]) -> None:
    """Those of the jobs that hardly save. One that is not drained, too, may come back by itself."""
    within(60, lambda: all((folder_of(id_, user="vision1") / ".fed").exists() for id_ in ids))
    try:
        for node in SELDOM_NODES:
            for state in ("drain", "down"):
                shell("cedar", f"scontrol update nodename={node} state={state} reason=power")
        within(90, lambda: all(running.row(id_)["state"] == "PENDING" for id_ in ids))
        assert running.run("fscancel", *map(str, ids)).returncode == 0
        running.await_end(*ids)
    finally:
        for node in SELDOM_NODES:
            shell("cedar", f"scontrol update nodename={node} state=resume || true")


def asked(running: Running, *words: str) -> dict[str, Any]:
    """What the command prints, by its history alone."""
    done = CliRunner().invoke(
        doctor, ["--json", "--config", str(running.config), *words], standalone_mode=False
    )
    assert done.exception is None, done.output
    return dict(json.loads(done.stdout))


def test_jobs_that_waste_what_they_hold_are_found_and_their_users_mailed(
    mailing: Mailing, go: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_answer, "answer", partial(doctor_answer.answer, bounds=BOUNDS))
    running, server = mailing
    ids = begin(running)
    began_s = time.monotonic()
    watch(TURNS)
    within(LASTS_S + 60, lambda: time.monotonic() - began_s >= LASTS_S, 0.5)
    nodes_die(running, ids["seldom-#"])
    go()
    ended = [id_ for family, some in ids.items() if family != "beyond" for id_ in some]
    running.await_end(*ended, timeout_s=150)

    def look() -> list[dict[str, Any]] | None:
        running.await_end(running.submit("#!/bin/sh\n", "-n1", "-t5", user="nlp1"))  # time goes on
        found = asked(running)["findings"]
        return found if len(found) >= len(FOUND) else None

    findings = within(BOUNDS.beyond_end_s + 120, look, 2.0)
    assert findings is not None
    print("found:", json.dumps(findings))
    assert {(each["kind"], each["user"], each["family"]) for each in findings} == FOUND
    assert [each["jobs"] for each in findings if each["kind"] == "zombie"] == [ids["beyond"]]
    seen = {each["family"]: each["evidence"] for each in findings}
    assert (seen["late"]["slow_rank"], seen["late"]["ranks"]) == (1, 2)
    assert seen["bound"]["step_s"] > 1.5 * seen["bound"]["own_most_s"]
    assert 0.3 < seen["loader"]["load_s"] < seen["loader"]["step_s"]
    assert seen["shards"]["spread_frac"] > 0.3
    assert seen["idle"]["busy_frac"] < 0.05
    assert seen["seldom-#"]["interruptions"] == 3
    assert seen["fails-#"]["in_a_row"] == 5
    asked(running, "--mail")
    mails = {}
    for got in server.got:
        text = got.get_payload(decode=True)
        assert isinstance(text, bytes)
        mails[str(got["To"]).partition("@")[0]] = text.decode()
    for user in {user for _, user, _ in FOUND}:
        told = re.findall(r"^([a-z-]+): (\w+) \(vision\) '([^']+)'", mails.pop(user), re.M)
        assert set(told) == {each for each in FOUND if each[1] == user}
    assert mails == {}
