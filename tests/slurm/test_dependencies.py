"""Dependencies of the federation beside those of each Slurm: the same DAG ends alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from federator.testbed import inside, layout
from tests.slurm.federation import Running, until, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
USER = "vision1"


class Node(NamedTuple):
    """One job of the DAG; in its options ``{name}`` is the id of another."""

    name: str
    command: str
    options: str = ""


LASTS = until().strip()  # all are submitted before any of these ends
DAG = (
    Node("ok", LASTS),
    Node("bad", f"{LASTS}; exit 3"),
    Node("array", f"{LASTS}; exit $SLURM_ARRAY_TASK_ID", "--array=0-1"),
    Node("afterok", "true", "-d afterok:{ok}"),
    Node("never", "true", "-d afterok:{bad}"),
    Node("killed", "true", "-d afterok:{bad} --kill-on-invalid-dep=yes"),
    Node("notok", "true", "-d afternotok:{bad}"),
    Node("notok-never", "true", "-d afternotok:{ok}"),
    Node("any", "true", "-d afterany:{ok}:{bad}"),
    Node("bare", "true", "-d {bad}"),
    Node("both", "true", "-d afterok:{ok},afternotok:{bad}"),
    Node("either", "true", "-d afterok:{bad}?afterok:{ok}"),
    Node("started", "true", "-d after:{ok}"),
    Node("chain", "true", "-d afterok:{afterok}"),
    Node("broken-chain", "true", "-d afterok:{never}"),
    Node("array-ok", "true", "-d afterok:{array}"),
    Node("array-notok", "true", "-d afternotok:{array}"),
    Node("task-ok", "true", "-d afterok:{array}_0"),
    Node("task-never", "true", "-d afterok:{array}_1"),
    Node("corr", "true", "-d aftercorr:{array} --array=0-1"),
    Node("single-1", "sleep 2", "-J single -d singleton"),
    Node("single-2", "true", "-J single -d singleton"),
)
SETTLED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "DependencyNeverSatisfied"})
WAITS_FOR_EVER = "broken-chain"  # on a job that itself never ends


def shell(site: str, command: str) -> str:
    done = inside.execute(layout.site(site), ("bash", "-c", command), user=USER)
    assert done.exit_status == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


def submitted(site: str, sbatch: str) -> dict[str, str]:
    """The id of each job of the DAG."""
    ids: dict[str, str] = {}
    for node in DAG:
        options = node.options.format(**ids)
        command = f"{sbatch} --parsable -t 60 -o /dev/null {options} --wrap='{node.command}'"
        ids[node.name] = shell(site, command)
    return ids


def standing(site: str, scontrol: str, id_: str) -> list[str]:
    """The state of a job, or of each task: of one that waits its reason."""
    found: dict[int, str] = {}
    for line in shell(site, f"{scontrol} -o show job {id_}").splitlines():
        if not line.strip():
            continue
        state = re.search(r"JobState=(\S+) Reason=(\S+)", line)
        task = re.search(r"ArrayTaskId=(\d+)", line)
        assert state is not None, line
        word = state[2] if state[1] == "PENDING" else state[1]
        found[int(task[1]) if task else 0] = word
    return [found[task] for task in sorted(found)]


def outcome(site: str, scontrol: str, ids: dict[str, str]) -> dict[str, list[str]]:
    """How all of them stand once nothing more will happen."""

    def look() -> dict[str, list[str]] | None:
        found = {name: standing(site, scontrol, id_) for name, id_ in ids.items()}
        unsettled = {n for n, words in found.items() if not SETTLED.issuperset(words)}
        return found if unsettled <= {WAITS_FOR_EVER} else None

    settled = within(180, look, 2.0)
    assert settled is not None
    return settled


@pytest.mark.parametrize("site", SITES)
def test_a_dag_ends_as_it_does_under_slurms_own_dependencies(
    federation: Running, go: Callable[..., None], site: str
) -> None:
    theirs = submitted(site, "sbatch -p local -n1")
    ours = submitted(site, "fsbatch -n1")
    go()
    try:
        expected = outcome(site, "scontrol", theirs)
        assert outcome(site, "fscontrol", ours) == expected
    finally:
        shell(site, f"scancel {' '.join(theirs.values())}; true")
        shell(site, f"fscancel {' '.join(ours.values())}; true")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("kind", ["afterok", "afternotok"])
def test_an_unknown_job_is_refused_as_sbatch_refuses_it(
    federation: Running, site: str, kind: str
) -> None:
    """Slurm 22.05 takes it, and starts the job."""
    is_old = shell(site, "sbatch --version").split()[1].startswith("22.")
    for command, id_ in (("sbatch -p local", "4000000"), ("fsbatch", str(2**62))):
        words = f"{command} -n1 -d {kind}:{id_} --wrap=true"
        done = inside.execute(layout.site(site), ("bash", "-c", words), user=USER)
        if not (is_old and command.startswith("sbatch")):
            assert done.exit_status == 1
            assert "Batch job submission failed: Job dependency problem" in done.stderr


def test_a_dependent_may_run_at_another_site_than_the_job_it_waits_for(
    federation: Running, go: Callable[..., None]
) -> None:
    """Only cedar has the GPUs of the first, and none of those of the second."""
    ids = [int(shell(SITES[0], f"fsbatch --parsable --gres=gpu:h100:1 --wrap='{LASTS}'"))]
    waits = f"fsbatch --parsable --gres=gpu:a100:1 -d afterok:{ids[0]} --wrap=true"
    ids.append(int(shell(SITES[0], waits)))
    federation.await_state(ids[0], "RUNNING")
    assert federation.row(ids[1])["state"] == "INELIGIBLE"
    go()
    first, second = federation.await_end(*ids)
    assert (first["state"], first["site"]) == ("COMPLETED", "cedar")
    assert (second["state"], second["site"] in ("alpine", "boreal")) == ("COMPLETED", True)


def await_words(look: Callable[[], str], wanted: str) -> None:
    within(60, lambda: look() == wanted, 1.0)


@pytest.mark.parametrize("site", SITES)
def test_hold_and_release_are_scontrols(federation: Running, site: str) -> None:
    theirs = shell(site, "sbatch --parsable -p local -n1 -H --wrap=true")
    ours = shell(site, "fsbatch --parsable -n1 -H --wrap=true")
    for squeue, scontrol, id_ in (
        ("squeue", "scontrol", theirs),
        ("fsqueue", "fscontrol", ours),
    ):
        assert shell(site, f"{squeue} -h -o '%t %r' -j {id_}") == "PD JobHeldUser"
        assert shell(site, f"{scontrol} update JobId={id_} TimeLimit=7 Name=other") == ""
        assert shell(site, f"{squeue} -h -o '%l %j' -j {id_}") == "7:00 other"
        assert shell(site, f"{scontrol} release {id_}") == ""
        await_words(lambda: standing(site, scontrol, id_)[0], "COMPLETED")  # noqa: B023
