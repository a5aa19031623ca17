"""``federator bid``: two files in, a plan or a reason out; mistakes named by their place."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.cli.bid import bid
from federator.cli.bid_files import read_request, read_snapshot
from federator.errors import FederatorError, InvalidRequest
from federator.model.window import SiteWindow

SNAPSHOT = """
{"site": "alpine", "now_s": 1000,
 "nodes": [{"name": "n1", "partitions": ["gpu"], "switch": "rack1", "state": "idle", "cpus": 64,
            "cpus_alloc": 0, "mem_mib": 512000, "mem_mib_alloc": 0, "gpu_type": "a100", "gpus": 8,
            "gpus_alloc": 0, "features": ["nvlink"]}],
 "running": [{"id": 11, "tenant": "nlp", "priority": 7, "preemptible": true, "started_at_s": 10,
              "nodes": {"n1": {"gpus": 4, "cpus": 32, "mem_mib": 1000}}}]}
"""
REQUEST = """
{"id": 9, "tenant": "vision", "priority": 2, "time_limit_s": 3600,
 "jobs": [{"name": "train", "nodes": 2, "gpus_per_node": 8, "gpu_types": ["a100", "h100"],
           "min_gpu_mem_gib": 40, "features": [], "cpus_per_node": 8, "mem_mib_per_node": 1000,
           "partition": null}]}
"""
Document = dict[str, Any]


def snapshot() -> Document:
    document: Document = json.loads(SNAPSHOT)
    return document


def request() -> Document:
    document: Document = json.loads(REQUEST)
    return document


class Desk:
    """Runs the command on two documents."""

    def __init__(self, folder: Path) -> None:
        self.snapshot, self.request = folder / "s.json", folder / "r.json"

    def run(self, site: object, wanted: object, *words: str) -> Result:
        self.snapshot.write_text(json.dumps(site))
        self.request.write_text(json.dumps(wanted))
        argv = ["--snapshot", str(self.snapshot), "--request", str(self.request), *words]
        return CliRunner().invoke(bid, argv, catch_exceptions=False)

    def answer(self, site: object, wanted: object) -> Document:
        done = self.run(site, wanted, "--json")
        assert done.exit_code == 0
        found: Document = json.loads(done.stdout)
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def full(*sizes: int, **fields: object) -> Document:
    """One node for each size, wholly taken by one running job with that many GPUs."""
    shares = [{"gpus": n, "cpus": 1} for n in sizes]
    return {
        "site": "alpine",
        "now_s": 1000,
        "nodes": [
            {
                "name": f"n{n}",
                "partitions": ["gpu"],
                "cpus": 64,
                "cpus_alloc": 1,
                "gpu_type": "a100",
                "gpus": n,
                "gpus_alloc": n,
            }
            for n in sizes
        ],
        "running": [
            {"id": n, "priority": 7, "started_at_s": k, "nodes": {f"n{n}": shares[k]}, **fields}
            for k, n in enumerate(sizes)
        ],
    }


def gpus(number: int, **fields: object) -> Document:
    return {"id": 1, "priority": 2, "jobs": [{"gpus": number}], **fields}


# ---- answers ----


def test_a_plan_is_told_with_its_score_and_shares(desk: Desk) -> None:
    site, wanted = snapshot(), request()
    site["running"], wanted["jobs"][0]["nodes"] = [], 1
    assert desk.answer(site, wanted) == {
        "bid": {
            "score": [0, 0, 0, 0.0, 0, 0.0, 8.0, 0.0, 0.0],
            "jobs": [
                {
                    "name": "train",
                    "partition": "gpu",
                    "nodes": {"n1": {"gpus": 8, "cpus": 8, "mem_mib": 1000}},
                }
            ],
            "victims": [],
            "shrinks": [],
        }
    }
    assert desk.run(site, wanted).stdout.splitlines() == [
        "train: 8 GPUs and 8 CPUs on n1 in partition gpu",
        "score: gpu_worth 8",
        "nobody is evicted",
    ]


def test_a_request_that_can_never_fit_is_rejected_with_numbers(desk: Desk) -> None:
    found = desk.answer(snapshot(), request())["refusal"]
    assert found["kind"] == "reject"
    (reason,) = found["reasons"]
    assert (reason["code"], reason["needed"], reason["free"]) == ("FedNodes", 2, 1)
    assert desk.run(snapshot(), request()).stdout.startswith("never: train: needs 2 nodes")


def test_the_papers_example_evicts_only_the_12_gpu_job(desk: Desk) -> None:
    found = desk.answer(full(4, 5, 12), gpus(10))["bid"]
    assert found["victims"] == [12]
    assert found["score"][:3] == [1, 1, 1]
    assert "evicts: 12" in desk.run(full(4, 5, 12), gpus(10)).stdout


LONG_AGO, JUST_NOW = {"started_at_s": 100}, {"started_at_s": 9_990}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (LONG_AGO, JUST_NOW),  # nothing is known of saves: the longer running goes
        (LONG_AGO | {"saved_at_s": 9_900}, JUST_NOW),
        (LONG_AGO | {"saved_at_s": 9_900}, LONG_AGO | {"saved_at_s": 5_000}),
        (LONG_AGO | {"saved_at_s": 9_900}, LONG_AGO),
        (JUST_NOW | {"saved_at_s": 9_995}, LONG_AGO | {"saved_at_s": 5_000}),
        (JUST_NOW, LONG_AGO | {"saved_at_s": 5_000}),  # far more than it can have done
        (LONG_AGO | {"restart_s": 10}, LONG_AGO | {"restart_s": 600}),
        (LONG_AGO | {"save_s": 20}, LONG_AGO),
    ],
)
def test_of_two_sites_that_whose_victim_loses_less_work_wins(
    desk: Desk, better: Document, worse: Document
) -> None:
    def score(victim: Document) -> list[float]:
        bid: Document = desk.answer(full(8, **victim) | {"now_s": 10_000}, gpus(8))["bid"]
        assert bid["victims"] == [8]
        found: list[float] = bid["score"]
        return found

    assert score(better) < score(worse)


def test_victims_that_lose_the_same_leave_the_choice_to_the_rest_of_the_score(desk: Desk) -> None:
    first, second = full(8, **LONG_AGO), full(8, **LONG_AGO | {"saved_at_s": 50})
    scores = [desk.answer(site, gpus(8))["bid"]["score"] for site in (first, second)]
    assert scores[0] == scores[1]  # a save before the start says nothing


@pytest.mark.parametrize(
    ("site", "wanted"),
    [
        (full(8, priority=2), gpus(8)),
        (full(8, preemptible=False), gpus(8)),
        (full(8, cooldown_until_s=1001), gpus(8)),
        (full(8), gpus(8, preempt_gpus=0)),
        (full(8), gpus(8, preempt_gpus=7)),
        (full(8), gpus(8, priority=7)),
    ],
)
def test_who_may_not_be_evicted_stays_and_the_request_waits(
    desk: Desk, site: Document, wanted: Document
) -> None:
    assert desk.answer(site, wanted)["refusal"]["kind"] == "wait"


# ---- mistakes ----


def changed(document: Callable[[], Document], *path: str | int, to: object) -> Document:
    found = document()
    at: Any = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return found


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (changed(snapshot, "nodes", 0, "gpus", to=-1), "nodes[0].gpus: expected"),
        (changed(snapshot, "nodes", 0, "state", to="idel"), "nodes[0].state: "),
        (changed(snapshot, "nodes", 0, "name", to=7), "nodes[0].name: expected a string"),
        (changed(snapshot, "nodes", to=[]), "nodes: expected"),
        (changed(snapshot, "nodes", to=snapshot()["nodes"] * 2), "nodes[1].name: 'n1' is there"),
        (changed(snapshot, "running", to=snapshot()["running"] * 2), "running[1].id: 11 is there"),
        (changed(snapshot, "running", 0, "nodes", to={"n9": {}}), "running[0].nodes: unknown node"),
        (changed(snapshot, "running", 0, "priority", to=8), "running[0].priority: expected"),
        (changed(snapshot, "extra", to=1), "unknown field 'extra'"),
        ([], "expected an object"),
    ],
)
def test_a_mistake_in_the_snapshot_is_named_by_its_place(
    desk: Desk, site: object, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"s\.json") as caught:
        desk.run(site, request())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (changed(request, "jobs", to=[]), "jobs: expected"),
        (changed(request, "jobs", 0, to={"cpus_per_node": 1}), "jobs[0]: expected 'nodes', or"),
        (changed(request, "jobs", to=request()["jobs"] * 2), "jobs[1].name: 'train' is there"),
        (changed(request, "jobs", 0, "gpu_types", to=[]), "jobs[0].min_gpu_mem_gib: the snapshot"),
        (changed(request, "priority", to=0), "priority: expected"),
        (changed(request, "jobs", 0, "gpus", to=5), "jobs[0]: job 'train': 5 GPUs in total"),
        (changed(request, "jobs", 0, "name", to="x" * 10**6 + "\n"), ""),
    ],
)
def test_a_mistake_in_the_request_is_named_by_its_place(
    desk: Desk, wanted: object, message: str
) -> None:
    if not message:  # a long name is no mistake, and no control character reaches the terminal
        assert "\n\n" not in desk.run(snapshot(), wanted).stdout
        return
    with pytest.raises(InvalidRequest, match=r"r\.json") as caught:
        desk.run(snapshot(), wanted)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_no_json_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_snapshot(tmp_path / "none.json")
    (tmp_path / "r.json").write_text('{"id": NaN}')
    with pytest.raises(InvalidRequest, match=r"r\.json:1:8: not JSON: expected a number"):
        read_request(tmp_path / "r.json")


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
documents = st.recursive(
    leaves, lambda d: st.lists(d, max_size=3) | st.dictionaries(st.text(max_size=6), d, max_size=3)
)
KEYS = ("nodes", "running", "jobs", "id", "priority", "now_s", "site", "name")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KEYS), documents)
def test_whatever_stands_in_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("bid") / "file.json"
    for document, read in ((snapshot(), read_snapshot), (request(), read_request)):
        path.write_text(json.dumps(document | {key: value}))
        with suppress(FederatorError):
            read(path)


def test_windows_of_a_live_snapshot_are_read_as_they_are_shown(tmp_path: Path) -> None:
    window = SiteWindow(
        name="r1",
        starts_at_s=0.0,
        ends_at_s=9_000.0,
        nodes=("a1",),
        users=("ada",),
        accounts=("vision",),
    )
    file = tmp_path / "snapshot.json"
    shown = {**snapshot(), "windows": [msgspec.to_builtins(window)]}
    names = [node["name"] for node in shown["nodes"]]
    shown["windows"][0]["nodes"] = names[:1]
    file.write_text(json.dumps(shown))
    (read,) = read_snapshot(file).windows
    assert read == msgspec.structs.replace(window, nodes=(names[0],))


def test_licences_and_switches_are_asked_for(desk: Desk) -> None:
    site = {**snapshot(), "licenses": [{"name": "matlab", "total": 4, "free": 1}]}
    wanted = {**gpus(1), "jobs": [{"nodes": 1, "licenses": [["matlab", 1]], "switches": 1}]}
    assert "bid" in desk.answer(site, wanted)
    wanted["jobs"][0]["licenses"] = [["matlab", 2]]
    (reason,) = desk.answer(site, wanted)["refusal"]["reasons"]
    assert (reason["code"], reason["needed"], reason["free"]) == ("Licenses", 2, 1)
