"""Memory with each CPU or GPU, at sites whose Slurm counts memory: planned as Slurm places it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from federator.testbed import layout
from tests.slurm.federation import Running, at, within
from tests.slurm.weather import restart_slurmctld

pytestmark = pytest.mark.slurm
SITES: Final = tuple(site.name for site in layout.SITES)
QUICK: Final = "#!/bin/sh\ntrue\n"
QUIET: Final = ("-o", "/dev/null", "-t", "5")
HALF: Final = layout.GPU_NODES.mem_mib // 2  # of a node with GPUs, which has 64 CPUs
_NOT_IDLE: Final = "sinfo -h -N -o '%N %t' | grep -v ' idle$' || true"


def count_with(site: str, counted: str) -> None:
    line = f"s/^SelectTypeParameters=.*/SelectTypeParameters={counted}/"
    at(site, "sed", "-i", line, "/etc/slurm/slurm.conf")
    restart_slurmctld(site)
    within(60, lambda: not at(site, "sh", "-c", _NOT_IDLE))


@pytest.fixture(scope="module", autouse=True)
def memory_is_counted(testbed: object) -> Iterator[None]:
    with ThreadPoolExecutor(len(SITES)) as pool:
        try:
            list(pool.map(count_with, SITES, ["CR_Core_Memory"] * len(SITES)))
            yield
        finally:
            list(pool.map(count_with, SITES, ["CR_Core"] * len(SITES)))


def nodes_of_slurms_own(site: str, *options: str) -> int:
    """How many nodes the site's own sbatch gives such a job."""
    id_ = at(site, "sbatch", "--parsable", "-p", "local", *QUIET, *options, "--wrap=true").strip()
    ended = f"scontrol show job {id_} | grep -A99 JobState=COMPLETED || true"
    shown = within(60, lambda: at(site, "sh", "-c", ended))
    return int(shown.split("NumNodes=")[1].split()[0].split("-")[0])


@pytest.mark.parametrize("site", SITES)
def test_memory_with_each_cpu_or_gpu_is_planned_as_slurm_places_it(
    federation: Running, site: str
) -> None:
    """By CPUs or GPUs alone one node would do; pinned to one, Slurm would hold these for ever."""
    others = [name for name in SITES if name != site]
    elsewhere = [f"{name}:{name}-{part}" for name in others for part in ("g[1-8]", "c[1-2]")]
    kinds = {"g": f"{site}-c[1-2]", "c": f"{site}-g[1-8]"}  # and what they leave out
    for kind, words, expected in (
        ("g", f"-n6 --mem-per-cpu={HALF}M", 3),
        ("g", f"-n2 -c2 --mem-per-cpu={HALF}M", 2),
        ("c", f"-n2 --mem-per-cpu={HALF}M", 2),
        ("g", f"-G8 --mem-per-gpu={HALF}M", 4),
    ):
        options = words.split()
        planned = federation.submit(
            QUICK, *QUIET, *options, f"--exclude={','.join((*elsewhere, kinds[kind]))}"
        )
        (row,) = federation.await_end(planned)
        assert (row["state"], row["site"]) == ("COMPLETED", site), row
        assert len(row["node_names"]) == expected
        assert nodes_of_slurms_own(site, *options, f"--exclude={kinds[kind]}") == expected
