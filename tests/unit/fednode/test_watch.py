"""One run of the watch after another: what it asks, says, does and remembers; Slurm is made up."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fednode import config, dcgm_use, gpu_use, records, slurm_jobs, summary, watch, watch_text
from fednode.run import Ran
from fednode.watch import Watch
from fednode.watching import IDLE, ZOMBIE, Finding
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

ENVIRON = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_GPUS": "0,1",
    "SLURM_JOB_COMMENT": "fed:5:1 mine",
    "SLURM_JOB_PARTITION": "fed",
    "SLURMD_NODENAME": "n1",
}
BUSY, HELD, EMPTY = "40000, 90", "40000, 0", "4, 0"
RUNNING = "7|7|N/A|RUNNING|ada|1|1|0|"


class Node:
    """A node with one job, made-up answers of the programs, and a clock of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
        self.folder = folder
        self.now_s = 5000.0
        self.answers: dict[str, Callable[[], Ran]] = {}
        self.called: list[tuple[str, str]] = []
        monkeypatch.setattr(
            "fednode.watch.time.sleep", lambda s: self.called.append(("sleep", f"{s:g}"))
        )
        monkeypatch.setattr(watch, "boot_clock_s", lambda: self.now_s)
        monkeypatch.setattr(gpu_use, "run", self.answer)
        monkeypatch.setattr(slurm_jobs, "run", self.answer)
        document = {
            "state_dir": str(folder / "state"),
            "log_dir": str(folder / "log"),
            "watch": {"looks": 1, "reclaim": "cancel", **settings},
        }  # type: dict[str, Any]
        for name in ("nvidia_smi", "scontrol", "scancel", "squeue"):
            document[name] = str(folder / name)
        self.program("scontrol", "")
        self.program("scancel", "")
        self.gpus(HELD)
        self.slurm(RUNNING + "fed:5:1 mine")
        (folder / "node.json").write_text(json.dumps(document))
        self.start()

    def start(self, **environ: str) -> None:
        """The job's prolog."""
        record = records.from_environment(ENVIRON | environ, self.now_s)
        records.write(record, str(self.folder / "state"))

    def program(self, name: str, output: str, status: int = 0) -> None:
        self.answers[name] = lambda: Ran(status, output, "")

    def answer(self, argv: Sequence[str], *_: object) -> Ran:
        name = Path(argv[0]).name
        self.called.append((name, " ".join([name, *argv[1:]])))
        return self.answers[name]()

    def gpus(self, *each: str) -> None:
        rows = [f"{k}, GPU-{k}, {use}, Disabled\n" for k, use in enumerate(each * 2)]
        self.program("nvidia_smi", "".join(rows[:2]))

    def slurm(self, answer: str, status: int = 0) -> None:
        self.program("squeue", answer + "\n", status)

    def calls(self, *names: str) -> list[str]:
        return [line for name, line in self.called if name in names]

    def run(self, times: int = 1, every_s: float = 60) -> None:
        shared, own, problems = config.load("watch", watch.SCHEMA, str(self.folder / "node.json"))
        assert problems == []
        for _ in range(times):
            self.now_s += every_s
            Watch("n1", shared, own).run()

    def log(self) -> list[dict[str, Any]]:
        file = self.folder / "log" / "watch.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def steps(self) -> list[str]:
        return [line["step"] for line in self.log()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_a_farewell_has_time_to_come_before_the_job_is_ended(node: Node) -> None:
    node.run(41)
    last = [name for name, _ in node.called if name not in {"squeue", "nvidia_smi"}][-4:]
    assert last == ["scontrol", "sleep", "scontrol", "scancel"]  # it is noted in the comment, too


ARRAY = "\n".join(f"{job}|7|{job - 4}|RUNNING|ada|1|1|N/A|fed:5:1" for job in (5, 6, 7))


@pytest.mark.parametrize("reclaim", ["cancel", "requeue"])
def test_the_last_task_of_an_array_is_reclaimed_without_its_siblings(
    reclaim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, reclaim=reclaim)
    node.slurm(ARRAY)
    node.run(41)
    assert node.steps() == ["warn", "warn again", reclaim]
    orders = [call for call in node.calls("scontrol", "scancel") if "notify" not in call]
    assert [order.split()[:3] for order in orders] == [
        ["scontrol", "update", "jobid=7_3"],
        ["scancel", "7_3"] if reclaim == "cancel" else ["scontrol", "requeue", "7_3"],
    ]


@pytest.mark.parametrize("array", ["7|1-3", "7|3%1", "7|", "|N/A", "6|N/A", "N/A|3", "7_3|3"])
def test_a_job_of_which_slurm_does_not_say_what_it_is_called_is_left_alone(
    array: str, node: Node
) -> None:
    node.slurm(f"7|{array}|RUNNING|ada|1|1|N/A|")
    node.run(41)
    assert node.calls("scontrol", "scancel") == []


def test_slurm_is_not_asked_while_nothing_is_wrong(node: Node) -> None:
    node.gpus(BUSY)
    node.run(30)
    node.gpus(HELD)
    node.run(10)
    assert node.calls("squeue", "scontrol", "scancel") == []


def test_a_zombie_is_warned_twice_and_cancelled_and_the_federation_learns_why(node: Node) -> None:
    node.run(41)
    assert node.steps() == ["warn", "warn again", "cancel"]
    assert node.calls("scancel") == ["scancel 7"]
    assert "scontrol update jobid=7 comment=fed:5:1 fed-watch:zombie-2400s mine" in node.calls(
        "scontrol"
    )
    assert [line["for_s"] for line in node.log()] == [600, 1500, 2400]


@pytest.mark.parametrize(
    ("answer", "settings", "steps"),
    [
        (RUNNING + "fed-watch=off", {}, []),
        (RUNNING + "fed-watch=off", {"opt_out": False}, ["warn", "warn again", "cancel"]),
        (RUNNING, {"reclaim": "none"}, ["warn", "warn again"]),
        (RUNNING, {"reclaim": "requeue"}, ["warn", "warn again", "requeue"]),
        ("7|7|N/A|RUNNING|ada|2|1|0|", {}, ["warn", "warn again"]),
        ("7|7|N/A|RUNNING|ada|2|1|0|", {"multi_node": "leave"}, []),
        ("7|7|N/A|RUNNING|ada|2|1|0|", {"multi_node": "reclaim"}, ["warn", "warn again", "cancel"]),
        ("7|7|N/A|RUNNING|ada|1|1|7|", {}, ["warn", "warn again"]),
        ("7|7|N/A|RUNNING|ada|1|0|0|", {}, []),
        ("7|7|N/A|RUNNING|ada|1|0|0|", {"interactive": "warn"}, ["warn", "warn again"]),
        ("7|7|N/A|RUNNING|bob|1|1|0|", {}, []),
        ("7|7|N/A|COMPLETING|ada|1|1|0|", {}, []),
        ("8|8|N/A|RUNNING|ada|1|1|0|", {}, []),
        ("", {}, []),
    ],
)
def test_whom_it_warns_and_reclaims(
    answer: str,
    settings: dict[str, object],
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(tmp_path, monkeypatch, **settings)
    node.slurm(answer)
    node.run(60)
    assert node.steps()[:3] == steps


def test_a_slurm_that_does_not_answer_is_asked_again_ten_minutes_later(node: Node) -> None:
    node.slurm("slurm_load_jobs error: Unable to contact slurm controller", status=1)
    node.run(29)
    assert len(node.calls("squeue")) == 2
    assert node.steps() == []
    node.slurm(RUNNING)
    node.run(5)
    assert node.steps() == ["warn"]


def test_a_job_is_never_reclaimed_if_no_warning_went_through(node: Node) -> None:
    node.program("scontrol", "notify: no such job", status=1)
    node.run(200)
    assert node.calls("scancel") == []
    assert {(line["step"], line["done"]) for line in node.log()} == {("warn", False)}


def test_a_log_that_cannot_be_written_does_not_make_it_warn_without_end(node: Node) -> None:
    (node.folder / "log").write_text("no folder")
    node.run(40)
    assert len([call for call in node.calls("scontrol") if "notify" in call]) == 2


def test_a_watch_that_is_killed_among_several_jobs_warns_none_of_them_twice(node: Node) -> None:
    node.start(SLURM_JOB_ID="8", SLURM_JOB_GPUS="1")
    both = "\n".join(RUNNING.replace("7", number) for number in "78")
    answers = iter([Ran(0, both, ""), None])

    def squeue() -> Ran:
        answer = next(answers)
        if answer is None:
            raise SystemExit  # its time is over
        return answer

    node.answers["squeue"] = squeue
    with pytest.raises(SystemExit):
        node.run(11)
    node.slurm(both)
    node.run(1)
    told = [call.split()[2] for call in node.calls("scontrol") if "notify" in call]
    assert told == ["7", "8"]


def test_a_driver_that_fails_means_that_nothing_is_known_and_nothing_done(node: Node) -> None:
    node.run(9)
    node.program("nvidia_smi", "Unable to determine the device handle", status=15)
    node.run(60)
    assert node.steps() == []
    node.gpus(HELD)
    node.run(10)
    assert node.steps() == []


def test_a_job_that_was_put_back_and_started_again_begins_anew(node: Node) -> None:
    node.run(35)
    node.start()
    node.run(10)
    assert node.steps() == ["warn", "warn again"]


def test_no_user_can_take_the_watchs_lock(node: Node) -> None:
    node.run()
    lock = node.folder / "state" / "n1" / ".watch.lock"
    assert lock.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 1}', '{"boot": "x", "jobs": 3}'])
def test_a_broken_memory_is_an_empty_one(text: str, node: Node) -> None:
    node.run(8)
    (node.folder / "state" / "n1" / "watch.json").write_text(text)
    node.run(10)
    assert node.steps() == []
    node.run(1)
    assert node.steps() == ["warn"]


def test_the_record_of_a_job_that_no_epilog_saw_goes_once_slurm_says_it_is_over(
    node: Node,
) -> None:
    node.gpus(BUSY)
    node.run(35, every_s=600)
    assert node.calls("squeue") == []
    node.slurm("7|RUNNING|")
    node.run(2, every_s=600)
    assert len(node.calls("squeue")) == 1
    assert records.read("n1", 7, str(node.folder / "state")) is not None
    node.slurm("slurm_load_jobs error: Unable to contact slurm controller", status=1)
    node.run(36, every_s=600)
    assert records.read("n1", 7, str(node.folder / "state")) is not None
    node.slurm("7|COMPLETED|")
    node.run(36, every_s=600)
    assert records.read("n1", 7, str(node.folder / "state")) is None


def test_the_record_of_a_job_without_gpus_goes_likewise(node: Node) -> None:
    node.start(SLURM_JOB_GPUS="")
    node.slurm("7|COMPLETED|")
    node.run(37, every_s=600)
    assert len(node.calls("squeue")) == 1
    assert node.calls("nvidia_smi") == []
    assert records.read("n1", 7, str(node.folder / "state")) is None


def test_a_slurm_that_does_not_answer_is_asked_about_one_old_record_at_a_time(node: Node) -> None:
    node.gpus(BUSY)
    for job in ("8", "9"):
        node.start(SLURM_JOB_ID=job, SLURM_JOB_GPUS="")
    node.slurm("slurm_load_jobs error: Unable to contact slurm controller", status=1)
    node.run(37, every_s=600)
    assert len(node.calls("squeue")) == 1
    node.run(1, every_s=600)
    assert len(node.calls("squeue")) == 2


def test_partitions_that_are_not_named_are_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, partitions=["gpu"])
    node.run(30)
    assert node.calls("nvidia_smi", "squeue") == []


def test_a_burst_between_two_quiet_looks_counts_as_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch, looks=3, look_gap_s=0)
    uses = itertools.cycle([90, 0, 0])

    def answer() -> Ran:
        use = next(uses)
        return Ran(0, "".join(f"{k}, G{k}, 40000, {use}, Disabled\n" for k in (0, 1)), "")

    node.answers["nvidia_smi"] = answer
    node.run(30)
    assert node.steps() == []
    (known,) = records.read_json(summary.watch_file(str(tmp_path / "state"), "n1"))["jobs"].values()
    swings = known["tally"]["swings"]
    assert (swings["n"], swings["low"], swings["high"], swings["falls"]) == (90, 60, 30, 30)


# ---- words ----


def test_a_note_takes_the_place_of_an_earlier_one_and_leaves_the_users_words() -> None:
    noted = slurm_jobs.with_note("fed:5:1 ticket=ab mine", "idle-7200s")
    assert noted == "fed:5:1 fed-watch:idle-7200s ticket=ab mine"
    again = slurm_jobs.with_note(noted, "zombie-600s")
    assert again == "fed:5:1 fed-watch:zombie-600s ticket=ab mine"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(2, "2 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (7500, "2 h 5 min")],
)
def test_lengths_of_time_are_easy_to_read(seconds: float, words: str) -> None:
    assert watch_text.duration(seconds) == words


def test_a_warning_says_what_was_seen_what_will_be_done_and_how_to_be_left_alone() -> None:
    record = records.from_environment(ENVIRON, 1.0)
    line = watch_text.warning(record, Finding(ZOMBIE, 0.0, 600.0), "cancel", 1800, True)
    assert line == (
        "fed-watch: job 7 held GPU memory and computed nothing for 10 min on n1 (GPU 0,1). "
        "If this goes on for 30 min more, the job is cancelled. "
        'To be left alone: scontrol update jobid=7 comment="fed:5:1 fed-watch=off"'
    )
    line = watch_text.warning(record, Finding(IDLE, 0.0, 7200.0), "none", 1800, True)
    assert line.endswith("Please end the job if it needs them no more.")


@given(st.text(max_size=200))
def test_no_comment_passes_for_slurms_own_words(comment: str) -> None:
    now = slurm_jobs.parse_job(
        f"7|7|N/A|PENDING|ada|1|1|0|{comment}\n7|7|N/A|RUNNING|eve|9|0|0|\n", 7
    )
    assert now is not None
    assert (now.running, now.user, now.nodes, now.batch) == (False, "ada", 1, True)


def test_that_dcgm_is_not_there_is_said_once_and_that_it_is_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[dict[str, dcgm_use.Seen] | None] = [None]

    def gpus(exporter: dcgm_use.Exporter) -> dict[str, dcgm_use.Seen] | None:
        exporter.trouble = "" if answers[-1] else "port 9400: nothing listens"
        return answers[-1]

    monkeypatch.setattr(dcgm_use.Exporter, "gpus", gpus)
    node.run(3)
    node.gpus("40000, 1", "4, 0")
    answers.append({"GPU-0": dcgm_use.Seen(0.5)})
    node.run(2)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "dcgm-exporter: port 9400: nothing listens; nvidia-smi tells how busy GPUs are",
        "dcgm-exporter: answers",
    ]
    state = json.loads((node.folder / "state" / "n1" / "watch.json").read_text())
    tally = state["jobs"]["7"]["tally"]
    assert (tally["engine_n"], tally["busy_sum"]) == (2, 1.0)
