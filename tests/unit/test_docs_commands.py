"""The blocks of commands in README.md and docs/*.md run, or their pages say why they do not here.

Here there is the real daemon with three simulated sites (``tests/fakes/live_federation.py``), and
commands are typed in a shell; experiments have ``--quick`` added, and small traces; measurements
are short. How a page marks other blocks is said in ``tests/fakes/shown_blocks.py``. Of one that
another test does in its own way, the code of that test has each program and each option
(``tests/fakes/typed_words.py``), or the test takes the block from the page and types it.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.fakes.live_federation import (
    ALL_S,
    FURNISHED_WITHIN_S,
    LiveFederation,
    live_federation,
)
from tests.fakes.shown_blocks import ROOT, ShownBlock, blocks, without_commands
from tests.fakes.typed_words import EXTRA, words_in, words_of
from tests.unit.cli.test_data import WAREHOUSE

BLOCKS: Final = list(blocks())
HERE: Final = [block for block in BLOCKS if not block.how]
ELSEWHERE: Final = [block for block in BLOCKS if block.how in ("run", "host")]
ON_HOSTS: Final = {"docs/install-site.md": 2, "docs/packaging.md": 4, "docs/planner.md": 1}
"""Blocks that change a host, by page. The list may only shrink."""
NOT_RUN: Final = {"docs/packaging.md": 1, "docs/pyslurm.md": 1, "docs/results.md": 2}
"""Blocks that no test runs, by page. The list may only shrink."""
NO_COMMANDS: Final = (
    ("README.md", "fsbatch fsrun fsqueue fs"),
    ("docs/adoption.md", "sites:"),
    ("docs/architecture.md", "fsbatch fsqueue fscancel"),
    ("docs/architecture.md", "web  >  cli  >  faults"),
    ("docs/audit.md", "award fed:4294967300:1 o"),
    ("docs/capacity.md", "PARTITION         NODES"),
    ("docs/commands.md", "fsbatch: error: AssocMax"),
    ("docs/data-placement.md", "users: east -> west: sav"),
    ("docs/doctor.md", "idle: ada (vision) 'trai"),
    ("docs/doctor.md", "# /etc/cron.d/federator"),
    ("docs/doctor.md", "56 whole days known from"),
    ("docs/drain.md", "# NODES (a host list, or"),
    ("docs/failures.md", "#SBATCH --nodes=2"),
    ("docs/formats.md", "federator-admission"),
    ("docs/install-site.md", 'restrict,command="/opt/f'),
    ("docs/install-site.md", "Match User federator"),
    ("docs/install-site.md", "Defaults:federator env_r"),
    ("docs/install-site.md", 'restrict,command="/opt/f'),
    ("docs/install-site.md", "Match User federator"),
    ("docs/interactive.md", "Host fed"),
    ("docs/metrics.md", "avg_over_time(clamp_min("),
    ("docs/metrics.md", "sum(increase(federator_d"),
    ("docs/reload.md", "tenants.vision.quota.gpu"),
    ("docs/simulator.md", "policy pool-sjf, seed 0,"),
    ("docs/simulator.md", "policy mast, seed 0, 202"),
    ("docs/usage.md", "0 7 2 * *  federator  fe"),
)
"""Blocks of output and of files: the page, and how each begins. One with a command is marked."""
JOB: Final = re.compile(r"\b(?:7387947728902|1722470400001|4294967300)\b")
A_JOB: Final = """\
job=$(fsbatch --parsable --gres=gpu:1 --wrap=true)
until fsqueue -h -t all -j $job -o %t | grep -qv PD; do :; done
"""
HEADING: Final = "submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id\n"
POOLS: Final = "pool,nodes,gpus_per_node,gpus\nant,2,8,16\nbee,2,8,16\n"
NINE_DAYS_S: Final = 9 * 86400


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFederation]:
    with live_federation(tmp_path_factory.mktemp("federation")) as running:
        furnish(running)
        yield running


def furnish(running: LiveFederation) -> None:
    """Lay out what commands of documents read."""
    desk = running.desk
    (desk / "train.sh").write_text("#!/bin/sh\ntrue\n")
    for name in ("jobs", "helios-venus-sept2020", "T"):
        (desk / f"{name}.csv.gz").write_bytes(gzip.compress(nine_days().encode()))
    for name in ("pools", "helios-venus-sept2020.pools", "P"):
        (desk / f"{name}.csv").write_text(POOLS)
    (desk / "warehouse.json").write_text(json.dumps(WAREHOUSE))
    (desk / "examples").symlink_to(ROOT / "examples")
    (desk / ".venv").symlink_to(Path(sys.executable).parents[1])
    (desk / ".testbed").symlink_to(running.folder)
    (desk / "keys").mkdir()
    (desk / "keys" / "known_hosts").write_text("")
    (desk / "federation.yaml").write_text(shown_configuration())
    images = running.folder / "lustre/fed/vision/imagenet"
    images.mkdir(parents=True)
    (images / "images.bin").write_bytes(b"pixels")
    old = "federator data add imagenet@1 --at west-flash:vision/old"
    assert running.shell(old, FURNISHED_WITHIN_S).returncode == 0
    keys = yaml.safe_load(running.config.read_text())
    keys["tenants"]["vision"]["quota"]["gpus"] = 96
    (desk / "proposed.yaml").write_text(yaml.safe_dump(keys))


def nine_days() -> str:
    """A trace in place of those that results were had with: small, and always the same."""
    draw = random.Random(25)
    rows = [
        f"{at_s},{draw.choice((60, 600, 3600, 14400))},{draw.choice((1, 1, 2, 4, 8))},1,"
        f"{draw.choice(('ant', 'ant', 'bee'))},ann,{draw.choice(('COMPLETED', 'FAILED'))},8,{k}\n"
        for k, at_s in enumerate(sorted(draw.randrange(NINE_DAYS_S) for _ in range(200)))
    ]
    return HEADING + "".join(rows)


def shown_configuration() -> str:
    """The federation.yaml that docs/formats.md shows."""
    text = (ROOT / "docs" / "formats.md").read_text()
    (found,) = re.findall(r"^```yaml\n(federation: demo\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found)


def script_of(block: ShownBlock, running: LiveFederation) -> str:
    """A block as it is typed here: its job is one that there is, and so are its paths."""
    text = "\n".join(block.commands).replace("/etc/federator/federation.yaml", str(running.config))
    text = re.sub("/(?:lustre/fed|gpfs/data)/", lambda root: f"{running.folder}{root[0]}", text)
    if JOB.search(text):
        text = f"{A_JOB}{text}"
    return JOB.sub("$job", text)


@pytest.mark.parametrize(("how", "known"), [("host", ON_HOSTS), ("not run", NOT_RUN)])
def test_what_is_not_run_here_is_listed_and_becomes_less(how: str, known: dict[str, int]) -> None:
    found = Counter(block.page for block in BLOCKS if block.how == how)
    assert dict(found) == known, "a block more needs a reason; one less: take it off the list"


def test_a_block_in_which_no_command_is_seen_is_listed() -> None:
    found = list(without_commands())
    assert [page for page, _ in found] == [page for page, _ in NO_COMMANDS]
    for (page, line), (_, begins) in zip(found, NO_COMMANDS, strict=True):
        assert line.startswith(begins), f"{page}: {line!r}: add its program to OTHERS, or list it"


def test_most_blocks_are_run_here() -> None:
    assert len(HERE) >= 25


def test_a_federation_that_hangs_fails_its_test_before_pytest_ends_the_run() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert settings["ini_options"]["faulthandler_timeout"] > ALL_S


@pytest.mark.slow
@pytest.mark.parametrize("block", HERE, ids=lambda block: block.name)
def test_the_commands_of_a_block_run(federation: LiveFederation, block: ShownBlock) -> None:
    done = federation.shell(script_of(block, federation))
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("block", ELSEWHERE, ids=lambda block: block.name)
def test_a_block_that_is_run_elsewhere_is_run_there(block: ShownBlock) -> None:
    tests = block.where.split(", ")
    assert all(re.fullmatch(r"tests/(?:\w+/)*test_\w+\.py", test) for test in tests)
    has = frozenset[str]().union(*(words_in(ROOT / test) for test in tests))
    if {"shown_commands", Path(block.page).name} <= has:  # it types what the page says
        return
    wanted = {word for command in block.commands for word in words_of(command)}
    assert wanted - has == set()


def test_a_measurement_that_a_page_names_has_its_options() -> None:
    found = [command for b in BLOCKS if b.how == "not run" for command in b.commands]
    for command in (each for each in found if "bench_" in each):
        (name,) = re.findall(r"bench_\w+", command)
        has = words_in(ROOT / "tests" / "bench" / f"{name}.py")
        assert {word for word in re.findall(r"--[a-z-]+", command) if word not in has} == set()


def test_what_pip_is_asked_for_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    asked = {
        name
        for block in BLOCKS
        for command in block.commands
        if re.match(r"(?:\S*/)?pip install", command)
        for name in EXTRA.findall(command)
    }
    assert asked
    assert asked <= set(extras)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("federator site verify alpine --user USER", ["federator", "site", "verify", "--user"]),
        ("federator simulate --set a=1 --out X", ["federator", "simulate", "--set", "a", "--out"]),
        ("A=b python -m venv build && build/bin/pip wheel -w out .", ["python", "-m", "pip", "-w"]),
        ("echo data | fsrun --gres=gpu:1 ./filter --own", ["fsrun", "--gres"]),
        ("fsrun sh -c 'exec /usr/sbin/sshd -D'", ["fsrun", "-c", "sshd", "-D"]),
        ("pip install 'federator[top]'", []),
    ],
)
def test_the_words_of_a_command_are_its_programs_and_options(
    command: str, words: list[str]
) -> None:
    assert list(words_of(command)) == words


def test_a_test_has_the_words_of_its_code_and_not_those_of_its_comments(tmp_path: Path) -> None:
    test = tmp_path / "test_x.py"
    test.write_text(
        '"""It runs fsbatch."""\nfrom federator.cli.shadow_step import step\n# fsrun\n'
        'run("fsqueue", "--me", f"{KIT}/leave.sh")\n'
    )
    has = words_in(test)
    assert {"fsqueue", "--me", "leave.sh", "shadow-step", "step"} <= has
    assert {"fsbatch", "fsrun"} & has == set()
