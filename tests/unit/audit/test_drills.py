"""The last leave drill of each site is found in the audit, and no line that was changed counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.audit.acts import act_of
from federator.audit.chain import AuditAct
from federator.audit.drills import last_drills
from federator.audit.file import AuditFile, files_of
from federator.errors import AuditError
from federator.model.drain import LeaveDrill
from federator.model.event import SiteResumed
from federator.model.workload import SiteName

ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")


def left(site: SiteName, at_s: float, took_s: float, wrong: str = "") -> AuditAct:
    drill = LeaveDrill(took_s=took_s, workloads=2, wrong=wrong)
    act = act_of(SiteResumed(at_s=at_s, site=site, by="root", drill=drill), 1)
    assert act is not None
    return act


def award(at_s: float) -> AuditAct:
    return AuditAct(at_s=at_s, act="award", on="fed:1:1", why={"said": '"act":"leave-drill"'})


def written(folder: Path, *acts: AuditAct, max_bytes: int = 2**20) -> Path:
    file = AuditFile(folder, max_bytes)
    file.open(0.0)
    for act in acts:
        file.append([act], None)
    file.close()
    return folder


def found(folder: Path, since_s: float = 0.0) -> dict[str, tuple[float, float]]:
    drills = last_drills(folder, since_s)
    return {site: (each.at_s, each.drill.took_s) for site, each in drills.items()}


@pytest.mark.parametrize("max_bytes", [1, 2**20])
def test_the_last_of_each_site_counts_however_many_files_there_are(
    tmp_path: Path, max_bytes: int
) -> None:
    acts = (left(ALPINE, 1.0, 9.5), left(BIRCH, 2.0, 8.0), award(3.0), left(ALPINE, 4.0, 7.0))
    folder = written(tmp_path / "a", *acts, award(5.0), max_bytes=max_bytes)
    assert found(folder) == {"alpine": (4.0, 7.0), "birch": (2.0, 8.0)}
    assert found(folder, 3.0) == {"alpine": (4.0, 7.0)}
    assert found(folder, 4.5) == {}


def test_what_was_wrong_is_kept(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", left(ALPINE, 1.0, 0.0, "2 jobs"))
    assert last_drills(folder, 0.0)[ALPINE].drill == LeaveDrill(workloads=2, wrong="2 jobs")


def test_a_line_that_was_changed_tells_of_none(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", left(ALPINE, 1.0, 512.0), left(BIRCH, 2.0, 8.0))
    (path,) = files_of(folder)
    path.write_bytes(path.read_bytes().replace(b"512.0", b"012.0"))
    assert found(folder) == {"birch": (2.0, 8.0)}


def test_without_an_audit_none_is_known_and_one_that_cannot_be_read_says_so(
    tmp_path: Path,
) -> None:
    assert found(tmp_path / "a") == {}
    (written(tmp_path / "b") / "audit-000000000009.jsonl").mkdir()
    with pytest.raises(AuditError, match="Is a directory"):
        found(tmp_path / "b")
