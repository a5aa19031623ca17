"""Records of jobs: what the hooks know of a node without asking Slurm."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

import pytest
from fednode import arrival, epilog, records
from hypothesis import given
from hypothesis import strategies as st

PROLOG = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_GPUS": "0,3",
    "SLURM_JOB_COMMENT": "fed:5:1 mine",
    "SLURM_JOB_PARTITION": "fed",
    "SLURM_NODELIST": "n[1-2]",
    "SLURMD_NODENAME": "n1",
}


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = records.from_environment(PROLOG, 100.5)
    records.write(record, str(tmp_path))
    assert records.read("n1", 7, str(tmp_path)) == record
    assert (record.gpus, record.comment, record.started_at_s) == ((0, 3), "fed:5:1 mine", 100.5)
    records.remove("n1", 7, str(tmp_path))
    records.remove("n1", 7, str(tmp_path))
    assert records.of_node("n1", str(tmp_path)) == []


def test_a_job_that_is_put_back_and_comes_again_has_its_latest_record(tmp_path: Path) -> None:
    for started_s in (100.0, 200.0):
        records.write(records.from_environment(PROLOG, started_s), str(tmp_path))
    (record,) = records.of_node("n1", str(tmp_path))
    assert record.started_at_s == 200.0


def test_several_nodes_of_one_machine_keep_their_jobs_apart(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        environ = PROLOG | {"SLURMD_NODENAME": node}
        records.write(records.from_environment(environ, 1.0), str(tmp_path))
    assert [r.node for r in records.of_node("n1", str(tmp_path))] == ["n1"]
    assert [r.node for r in records.of_machine(str(tmp_path))] == ["n1", "n2"]


def test_a_record_of_an_earlier_boot_is_void(tmp_path: Path) -> None:
    record = records.from_environment(PROLOG, 1.0)._replace(boot="another")
    records.write(record, str(tmp_path))
    assert records.of_machine(str(tmp_path)) == []


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(st.sampled_from([*records.JobRecord._fields, "x"]), inner)
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_a_broken_record_is_no_record_and_stops_nobody(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder) / "n1" / "jobs"
        jobs.mkdir(parents=True)
        (jobs / "7.json").write_bytes(data)
        assert records.of_machine(folder) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "../../etc/passwd"},
        {"SLURM_JOB_UID": "x"},
        {"SLURMD_NODENAME": "../n1"},
        {"SLURMD_NODENAME": "a/b"},
    ],
)
def test_what_is_not_a_jobs_environment_is_refused(broken: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        records.from_environment(PROLOG | broken, 1.0)


@pytest.mark.parametrize(
    ("text", "gpus"), [("0", (0,)), ("0,1,7", (0, 1, 7)), ("", ()), ("GPU-1", ()), ("0,,1", ())]
)
def test_gpus_are_read_from_slurms_list_of_indices(text: str, gpus: tuple[int, ...]) -> None:
    assert records.gpu_indices(text) == gpus


def test_the_prologs_half_writes_record_and_mapping_files(tmp_path: Path) -> None:
    config = tmp_path / "node.json"
    settings = {
        "state_dir": str(tmp_path / "state"),
        "epilog": {"dcgm_mapping_dir": str(tmp_path / "map-%n")},
    }
    config.write_text(json.dumps(settings))
    assert arrival.note(PROLOG, str(config)) == []
    assert records.read("n1", 7, str(tmp_path / "state")) is not None
    assert (tmp_path / "map-n1" / "3").read_text() == "7\n"


def test_a_state_directory_of_each_node_is_the_same_for_prolog_and_epilog(tmp_path: Path) -> None:
    config_file = tmp_path / "node.json"
    log_dir = str(tmp_path / "log")
    settings = {"state_dir": str(tmp_path / "%n"), "log_dir": log_dir, "epilog": {"enabled": False}}
    config_file.write_text(json.dumps(settings))
    assert arrival.note(PROLOG, str(config_file)) == []
    record = tmp_path / "n1" / "n1" / "jobs" / "7.json"
    assert record.exists()
    assert epilog.main(PROLOG, str(config_file)) == 0
    assert not record.exists()


def test_the_prologs_half_says_what_went_wrong_and_never_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = tmp_path / "node.json"
    settings = {
        "state_dir": str(tmp_path / "file"),
        "epilog": {"dcgm_mapping_dir": str(tmp_path / "file" / "map")},
    }
    config.write_text(json.dumps(settings))
    assert len(arrival.note(PROLOG, str(config))) == 2
    assert len(arrival.note({}, str(config))) == 1


def test_a_disk_that_hangs_does_not_hold_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(records, "write", lambda *_: answers.wait())
    monkeypatch.setattr(arrival, "_LIMIT_S", 0.01)
    assert arrival.note(PROLOG, str(tmp_path / "absent.json")) == [
        "the job is not written down within 0.01 s"
    ]
    answers.set()
