"""Copies that meet a full disk, strangers, and tricks with paths, on real clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, within
from tests.slurm.test_mover import READS, data, digest_at, why
from tests.slurm.weather import cut_off

pytestmark = pytest.mark.slurm

SMALL = "/small-of-tests"  # a file system of its own at cedar
SETS = "/shared/west/troubled-of-tests"
FEDERATOR = "/opt/federator/bin/federator"
MIB = 48
LEAVE_MIB = 2
USER, STRANGER = "vision1", "nlp1"
NEEDS = ("--gres=gpu:a100:1", "-t", "2")


@pytest.fixture(scope="module")
def troubled(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A federation with a small storage domain at cedar, and a sealed data set in the west."""
    made = Running(tmp_path_factory.mktemp("troubled"), pass_interval_s=10.0)
    settings = yaml.safe_load(made.config.read_text())
    small = {"mounts": {"cedar": SMALL}, "keep_free_gib": 0, "copy_mib_per_s": 2}
    settings["storage"]["small"] = small
    made.config.write_text(yaml.safe_dump(settings))
    at("cedar", "sh", "-c", f"mkdir -p {SMALL}; umount -q {SMALL}; true")
    at("cedar", "mount", "-t", "tmpfs", "-o", f"size={2 * MIB}m,mode=755", "tmpfs", SMALL)
    at("cedar", "install", "-d", "-o", USER, f"{SMALL}/sets")
    at("alpine", "sh", "-c", f"rm -rf {SETS}; install -d -o {USER} -m 755 {SETS}")
    make = f"mkdir -m 700 {SETS}/books && head -c {MIB}M /dev/urandom >{SETS}/books/one"
    at("alpine", "sh", "-c", make, user=USER)
    try:
        for running in lasting(made):
            data(running, "add", "text/books", "--owner", USER, "--at", f"west:{SETS}/books")
            assert "is sealed" in command("alpine", USER, "verify", "text/books")
            yield running
    finally:
        at("cedar", "sh", "-c", f"umount {SMALL} && rmdir {SMALL}")
        at("alpine", "rm", "-rf", SETS)


def command(site: str, user: str, *words: str) -> str:
    """Output of a user's ``federator data`` at a site, and what it says on stderr."""
    done = inside.execute(layout.site(site), (FEDERATOR, "data", *words), user=user)
    return done.stdout + done.stderr


def shown(running: Running) -> str:
    return data(running, "show", "text/books")


def is_denied(running: Running, id_: int) -> bool:
    return "permission denied" in why(running, id_)


def test_a_disk_that_fills_meanwhile_fails_a_copy_that_goes_on_when_there_is_room(
    troubled: Running,
) -> None:
    data(troubled, "copy", "text/books", "--to", "small:sets/books")
    within(60, lambda: " % copied" in shown(troubled))
    at("cedar", "sh", "-c", f"cat /dev/zero >{SMALL}/ballast 2>&1 || true")
    within(60, lambda: re.search("no room|[Nn]o space", shown(troubled)))
    assert re.fullmatch(r"\.fed-copy-\w+", at("cedar", "ls", "-A", f"{SMALL}/sets").strip())
    at("cedar", "rm", f"{SMALL}/ballast")
    within(90, lambda: shown(troubled).count("ready, sealed") == 2)
    assert at("cedar", "ls", "-A", f"{SMALL}/sets").split() == ["books"]
    assert digest_at("cedar", f"{SMALL}/sets/books") == digest_at("alpine", f"{SETS}/books")


def test_a_copy_goes_on_after_its_network_was_cut(troubled: Running) -> None:
    data(troubled, "rm", "text/books", "--at", "small")
    at("cedar", "rm", "-rf", f"{SMALL}/sets/books")
    at("cedar", "install", "-d", "-o", USER, f"{SMALL}/cut")
    data(troubled, "copy", "text/books", "--to", "small:cut/books")
    within(60, lambda: " % copied" in shown(troubled))
    with cut_off("alpine"):
        within(120, lambda: "failed" in shown(troubled))  # rsync waits a minute for the other side
        assert "books" not in at("cedar", "ls", f"{SMALL}/cut").split()
    within(120, lambda: shown(troubled).count("ready, sealed") == 2)
    assert at("cedar", "ls", "-A", f"{SMALL}/cut").split() == ["books"]
    assert digest_at("cedar", f"{SMALL}/cut/books") == digest_at("alpine", f"{SETS}/books")


def test_nobody_reads_or_moves_what_is_anothers(troubled: Running) -> None:
    for words in (("verify",), ("copy", "--to", "east"), ("rm",), ("show",)):
        said = command("alpine", STRANGER, words[0], "text/books", *words[1:])
        assert "no such data set" in said, words
    data(troubled, "add", "text/books", "--share", "all")
    for words in (("copy", "--to", "east"), ("rm",)):
        said = command("alpine", STRANGER, words[0], "text/books", *words[1:])
        assert "no such data set" not in said, words
        assert "text/books" in said, words
    assert "copy" not in shown(troubled)
    stolen = command("alpine", STRANGER, "add", "nlp/stolen", "--at", f"west:{SETS}/books")
    assert "nlp/stolen" in stolen
    for name in ("text/books", "nlp/stolen"):
        id_ = troubled.submit(READS, *NEEDS, f"--fed-dataset={name}", user=STRANGER)
        within(30, partial(is_denied, troubled, id_))
        troubled.run("fscancel", str(id_))


def test_a_copy_goes_nowhere_where_its_owner_may_not_write_nor_through_links(
    troubled: Running,
) -> None:
    at("cedar", "install", "-d", "-o", STRANGER, "-m", "700", f"{SMALL}/theirs")
    at("cedar", "ln", "-sfn", f"{SMALL}/theirs", f"{SMALL}/sets/link")
    for path in ("theirs/books", "sets/link/books"):
        if "small" in shown(troubled):
            data(troubled, "rm", "text/books", "--at", "small")
        data(troubled, "copy", "text/books", "--to", f"small:{path}")
        within(60, lambda: "failed" in shown(troubled))
        assert at("cedar", "ls", "-A", f"{SMALL}/theirs") == ""
    for path in ("../etc", "sets/../../etc", "/etc", "sets/one\ntwo", ""):
        said = command("cedar", USER, "add", "text/trick", "--at", f"small:{path}")
        assert "small" in said, path
    assert "no such data set" in command("cedar", USER, "show", "text/trick")
