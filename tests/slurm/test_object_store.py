"""A data set comes from an object store to the site of the job, on real clusters.

The store is served by rclone at alpine over WebDAV, which rclone reads as it reads any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, output_of, within
from tests.slurm.test_mover import READS, data

pytestmark = pytest.mark.slurm

USER = "vision1"
STORE = "/shared/west/objects-of-tests"
THERE = "/flash-of-tests"  # at boreal: forky, and so cedar, has no rclone
PORT = 8098
SERVE = f"rclone serve webdav {STORE} --addr 0.0.0.0:{PORT} --read-only"
DIGEST = (  # as docs/data.md says it
    f"cd {STORE}/sets/books && find . -type f -printf '%P\\0' | LC_ALL=C sort -z | "
    "while IFS= read -r -d '' f; do printf '%s %s %s\\0' \"$(sha256sum <\"$f\" | cut -d' ' -f1)\" "
    '"$(stat -c%s -- "$f")" "$f"; done | sha256sum'
)
MIB = 24


@pytest.fixture(scope="module")
def stored(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A federation with an object store that its user's rclone knows at boreal."""
    made = Running(tmp_path_factory.mktemp("stored"), pass_interval_s=10.0)
    settings = yaml.safe_load(made.config.read_text())
    settings["storage"]["archive"] = {"rclone": "store:sets"}
    flash = {"keep_free_gib": 0, "copy_mib_per_s": 2, "copy_streams": 2}
    settings["storage"]["flash"] = {"mounts": {"boreal": THERE}, **flash}
    made.config.write_text(yaml.safe_dump(settings))
    make = f"mkdir -p {STORE}/sets/books/deep && cd {STORE}/sets/books && "
    fill = f"head -c {MIB}M /dev/urandom >one && for n in $(seq 50); do echo $n >deep/$n; done"
    for site, folder in (("alpine", STORE), ("boreal", THERE)):
        at(site, "sh", "-c", f"rm -rf {folder}; install -d -o {USER} -m 755 {folder}")
    at("alpine", "sh", "-c", make + fill, user=USER)
    at("alpine", "sh", "-c", f"setsid {SERVE} >/dev/null 2>&1 &", user=USER)
    remote = ("rclone", "config", "create", "store", "webdav", "vendor", "other")
    at("boreal", *remote, "url", f"http://alpine:{PORT}", user=USER)
    try:
        yield from lasting(made)
    finally:
        at("alpine", "pkill", "-f", SERVE)
        at("boreal", "sh", "-c", "rm -f ~/.config/rclone/rclone.conf", user=USER)
        at("alpine", "rm", "-rf", STORE)
        at("boreal", "rm", "-rf", THERE)


def test_a_data_set_comes_from_an_object_store_though_rclone_is_killed(stored: Running) -> None:
    digest = at("alpine", "bash", "-c", DIGEST, user=USER).split()[0]
    given = ("--owner", USER, "--size", f"{MIB}M", "--digest", f"sha256tree:{digest}")
    data(stored, "add", "objects/books", "--at", "archive:books", *given)
    data(stored, "copy", "objects/books", "--to", "flash:books")
    within(60, lambda: " % copied" in data(stored, "show", "objects/books"))
    at("boreal", "pkill", "-KILL", "-x", "rclone")
    assert "books" not in at("boreal", "ls", THERE).split()
    within(90, lambda: "ready, sealed" in data(stored, "show", "objects/books"))
    assert at("boreal", "ls", "-A", THERE).split() == ["books"]
    sums = [
        at(site, "sh", "-c", f"cd {folder}/books && cat one deep/* | sha256sum")
        for site, folder in (("alpine", f"{STORE}/sets"), ("boreal", THERE))
    ]
    assert sums[0] == sums[1]
    script = READS.replace("FED_DATASET_TEXT_BOOKS", "FED_DATASET_OBJECTS_BOOKS")
    id_ = stored.submit(script.replace("cat *", "cat one deep/*"), "--fed-dataset=objects/books")
    (row,) = stored.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", "boreal")
    assert output_of(row).splitlines() == ["boreal", sums[0].strip()]
