"""What CI makes of failures: which are looked at again, and which are final; who runs what."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from federator.faults.kinds import FaultKind
from federator.faults.report import FaultReport
from tests import fault_seeds
from tests.conftest import Crashes
from tests.fault_seeds import HistoryHalf
from tests.slow_tests import names, slow_in
from tests.turns import next_file, turn_of

REPOSITORY = Path(__file__).parents[2]
SLURM = "tests/slurm/test_gate.py::test_a"
CONTRACT = "tests/contract/test_slurm_client.py::test_a"


def ci(folder: Path, failed: list[str] | None, statuses: tuple[int, ...]) -> tuple[int, list[str]]:
    """Run .ci/run where ./test fails so; its exit status, and what ./test was asked each time."""
    (folder / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci" / "run", folder / ".ci")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(shutil.which("python3") or "")
    cache = folder / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    if failed is not None:
        (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    (folder / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    test = folder / "test"
    test.write_text(
        '#!/bin/sh\necho "$*" >> asked\n'
        'status=$(sed -n "$(grep -c . asked)p" statuses)\nexit "$status"\n'
    )
    test.chmod(0o755)
    done = subprocess.run([folder / ".ci" / "run"], check=False, capture_output=True, timeout=60)
    return done.returncode, (folder / "asked").read_text().splitlines()


@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize("failed", [SLURM, f"{CONTRACT}[live-boreal]"])
def test_a_real_slurm_test_that_failed_is_run_again_alone_and_that_decides(
    tmp_path: Path, failed: str, second: int
) -> None:
    status, asked = ci(tmp_path, [failed], (1, second))
    assert status == second
    assert len(asked) == 2
    assert asked[1].startswith(f"slurm {failed} -n0")


@pytest.mark.parametrize(
    "failed",
    [
        None,  # lint or types
        ["tests/unit/test_docs.py::test_a"],
        [SLURM, "tests/property/test_fault_histories.py::test_a"],
        [f"{CONTRACT}[recorded-boreal]"],
        [f"{SLURM}[{number}]" for number in range(9)],
    ],
)
def test_any_other_failure_is_final(tmp_path: Path, failed: list[str] | None) -> None:
    status, asked = ci(tmp_path, failed, (1,))
    assert (status, len(asked)) == (1, 1)


def test_a_run_that_did_not_come_to_its_end_is_final(tmp_path: Path) -> None:
    assert ci(tmp_path, [SLURM], (3,))[0] == 3


def test_a_run_that_is_well_is_the_only_one(tmp_path: Path) -> None:
    status, asked = ci(tmp_path, None, (0,))
    assert (status, len(asked)) == (0, 1)


@pytest.mark.parametrize(
    ("worker", "waiting", "taken"),
    [
        ("gw1", ["tests/slurm/a.py", "tests/property/b.py", "tests/unit/c.py"], 1),
        ("gw1", ["tests/packages/a.py", "tests/slurm/b.py"], 0),
        ("gw0", ["tests/unit/a.py", "tests/property/b.py", "tests/packages/c.py"], 2),
        ("gw2", ["tests/unit/a.py", "tests/contract/b.py", "tests/slurm/c.py"], 1),
        ("gw3", ["tests/property/a.py", "tests/unit/b.py"], 0),
    ],
)
def test_one_worker_computes_while_others_wait_and_none_is_idle(
    worker: str, waiting: list[str], taken: int
) -> None:
    assert next_file(worker, waiting) == waiting[taken]


def test_the_longest_files_are_begun_first_and_a_tier_is_taken_after_the_other() -> None:
    tests = REPOSITORY / "tests"
    files = ["unit/test_a.py", "property/test_planted_bugs.py", "slurm/test_gate.py"]
    files += ["property/test_more_fault_histories.py", "property/test_fault_histories.py"]
    assert sorted(files, key=lambda file: turn_of(tests / file)) == [
        *(files[4], files[3], files[1]),
        *(files[0], files[2]),
    ]


def test_a_kind_of_fault_that_strikes_in_one_half_of_the_seeds_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_both, in_first, in_second, *never = FaultKind
    strikes = [{in_both: 1, in_first: 2}, {in_both: 1, in_second: 1}]
    halves = [HistoryHalf(0), HistoryHalf(1)]
    assert halves[0].kinds_that_never_strike(tmp_path) is None  # not played
    for half, struck in zip(halves, strikes, strict=True):
        monkeypatch.setattr(FaultReport, "add", lambda self, _, s=struck: self.struck.update(s))
        monkeypatch.setattr(fault_seeds, "run_histories", lambda seeds: seeds)
        for part in half.parts:
            half.play(part)
    assert halves[0].kinds_that_never_strike(tmp_path) is None  # alone
    missing = [kind.name for kind in never]
    assert halves[1].kinds_that_never_strike(tmp_path) == missing
    assert halves[0].kinds_that_never_strike(tmp_path) == missing


@pytest.mark.parametrize(("crashed", "status"), [(False, 1), (True, 2)])
def test_a_run_that_a_dead_worker_cut_short_is_no_run_to_the_end(
    crashed: bool, status: int
) -> None:
    crashes, session = Crashes(), SimpleNamespace(exitstatus=1)
    if crashed:
        crashes.pytest_handlecrashitem()
    crashes.pytest_sessionfinish(session)
    assert session.exitstatus == status


# ---- what the inner loop leaves out ----


def test_a_test_is_slow_whose_case_took_long_with_what_it_sets_up() -> None:
    log = [
        "   1.20s call     tests/unit/cli/test_top.py::test_a[x]",
        " 17 0.20s setup    tests/unit/cli/test_top.py::test_b[x y]",
        " 17 0.15s call     tests/unit/cli/test_top.py::test_b[x y]",
        "0.25s call     tests/unit/cli/test_top.py::test_c[1]",
        "0.25s call     tests/unit/cli/test_top.py::test_c[2]",
        "9.00s call     tests/slurm/test_bids.py::test_d",
    ]
    assert slow_in(log) == ["unit/cli/test_top.py::test_a", "unit/cli/test_top.py::test_b"]


def test_every_test_that_is_listed_as_slow_is_there() -> None:
    for name in sorted(names()):
        file, _, test = name.partition("::")
        assert f"def {test}(" in (REPOSITORY / "tests" / file).read_text(), name
