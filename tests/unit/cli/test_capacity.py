"""``federator capacity plan``: from snapshots and wants to a table, JSON and scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federator.cli import capacity, capacity_plan
from federator.errors import ConfigError, FederatorError, InvalidRequest
from federator.model.site import Node, NodeState, Snapshot
from federator.model.workload import SiteName
from federator.wire.agent_protocol import packed
from federator.wire.client_protocol import Call, SnapshotCall, SnapshotReply
from federator.wire.replies import Reply

WANTS = """\
partitions:
  train: {gpus: 16, survives: [rack]}
  eval: {nodes: 1}
spare: [burst]
"""


def snapshot(site: str, **partitions: str) -> dict[str, object]:
    """Racks of nodes of 8 GPUs; a letter is the first of a partition's name, or - for none."""
    names = {"t": ("train",), "e": ("eval",), "b": ("burst",), "x": ("other",), "-": ()}
    return {
        "site": site,
        "now_s": 1000,
        "nodes": [
            {
                "name": f"{rack}n{number}",
                "partitions": names[letter],
                "cpus": 8,
                "gpus": 8,
                "gpu_type": "h100",
                "switch": rack,
            }
            for rack, letters in partitions.items()
            for number, letter in enumerate(letters)
        ],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wants.yaml").write_text(WANTS)
    alpine = snapshot("alpine", r1="tte", r2="b-x")
    (tmp_path / "alpine.json").write_text(json.dumps(alpine))
    return tmp_path


def asked(folder: Path, *words: str) -> Result:
    argv = ["plan", "--wants", str(folder / "wants.yaml"), *words]
    result = CliRunner().invoke(capacity.capacity, argv, standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, FederatorError):
        raise result.exception
    return result


def offline(folder: Path, *words: str) -> Result:
    return asked(folder, "--snapshot", str(folder / "alpine.json"), *words)


def wrong(folder: Path, text: str) -> str:
    (folder / "wants.yaml").write_text(text)
    return str(offline(folder).exception)


def test_a_table_says_what_each_partition_has_before_and_after(folder: Path) -> None:
    lines = offline(folder).output.splitlines()
    assert " ".join(lines[0].split()) == "PARTITION NODES SIZE HAS AFTER ANY LOSS WORST"
    assert " ".join(lines[1].split()) == "train 2 > 4 16 16 > 32 0 > 16 rack alpine:r2"
    assert lines[4].startswith("2 moves, 0 of them out of a partition; cost 0.20, at the bound")
    assert lines[5] == ("alpine:r2n0: spare > train: train has 0 of 16 GPUs without rack alpine:r1")


def test_json_holds_all_of_it(folder: Path) -> None:
    found = json.loads(offline(folder, "--json").output)
    assert [partition["name"] for partition in found["partitions"]] == ["train", "eval"]
    assert found["partitions"][0]["after"]["left"] == 16
    assert {move["node"] for move in found["moves"]} == {"r2n0", "r2n1"}
    assert found["above_frac"] == 0


def test_scripts_take_nodes_out_of_the_spare_partition(folder: Path) -> None:
    result = offline(folder, "--out", str(folder / "plan"))
    assert "nothing has been changed" in result.output
    text = (folder / "plan" / "alpine.sh").read_text()
    assert "put burst r2n0 ''" in text
    assert "put train 'r1n[0-1]' 'r1n[0-1],r2n0'" in text


def test_nodes_of_partitions_that_nobody_plans_are_not_taken(folder: Path) -> None:
    (folder / "wants.yaml").write_text("partitions: {train: {gpus: 48}}")
    assert str(offline(folder).exception) == (
        "no plan: train lacks 24 GPUs: it is to have 48 GPUs; all that it may have is 24, "
        "and even alone it lacks 24"
    )


def test_nothing_to_move_is_said(folder: Path) -> None:
    (folder / "wants.yaml").write_text("partitions: {train: {gpus: 8}}")
    result = offline(folder, "--out", str(folder / "plan"))
    assert result.output.splitlines()[-1] == "nothing to move: every partition is large enough"
    assert list((folder / "plan").iterdir()) == []


def test_domains_name_racks_or_nodes(folder: Path) -> None:
    (folder / "wants.yaml").write_text(
        "partitions: {train: {gpus: 16, survives: [power]}}\nspare: [burst]\n"
        'domains: {power: {east: ["alpine:r1"], west: ["alpine:r2n[0-1]"]}}\n'
    )
    found = json.loads(offline(folder, "--json").output)
    assert found["partitions"][0]["after"]["worst"] == "power west"


def test_a_domain_of_nodes_at_two_sites_is_lost_as_one(folder: Path) -> None:
    (folder / "basalt.json").write_text(json.dumps(snapshot("basalt", r1="tt")))
    lustre = 'storage: {lustre1: ["alpine:r[1-2]", "basalt:r1"]}'
    (folder / "wants.yaml").write_text(
        f"partitions: {{train: {{gpus: 16, survives: [storage]}}}}\ndomains: {{{lustre}}}\n"
    )
    basalt = ("--snapshot", str(folder / "basalt.json"))
    assert "train lacks 16 GPUs" in str(offline(folder, *basalt).exception)
    text = (folder / "wants.yaml").read_text()
    for kind in ("power", "rack"):
        (folder / "wants.yaml").write_text(text.replace("storage", kind))
        assert "train lacks 16 GPUs" in str(offline(folder, *basalt).exception)


def test_switches_of_the_same_name_at_two_sites_are_two_racks(folder: Path) -> None:
    (folder / "basalt.json").write_text(json.dumps(snapshot("basalt", r1="tt")))
    (folder / "wants.yaml").write_text("partitions: {train: {gpus: 16, survives: [rack]}}")
    basalt = ("--snapshot", str(folder / "basalt.json"))
    found = json.loads(offline(folder, *basalt, "--json").output)
    assert found["moves"] == []


def test_a_rack_named_as_a_switch_with_other_nodes_is_refused(folder: Path) -> None:
    text = 'partitions: {train: {gpus: 8}}\ndomains: {rack: {r1: ["alpine:r1n0"]}}'
    assert wrong(folder, text) == (
        "domains.rack.r1: alpine has a leaf switch of that name with other nodes, such as r1n1; "
        "list them, or take another name"
    )


def test_with_a_config_the_daemon_is_asked_and_the_sites_own_names_are_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(message: Call) -> Reply:
        assert isinstance(message, SnapshotCall)
        nodes = tuple(
            Node(name=f"n{i}", partitions=("train",) * (i > 0), gpus=8, state=NodeState.IDLE)
            for i in range(2)
        )
        taken = Snapshot(site=SiteName(message.site), now_s=1.0, nodes=nodes)
        return SnapshotReply(snapshot=packed(taken))

    monkeypatch.setattr(capacity_plan, "call", call)
    (folder / "federation.yaml").write_text(
        "federation: test\nstore: 'memory:'\nregions: {eu: {shared: /shared}}\n"
        "sites:\n  alpine:\n    region: eu\n    command: [agent]\n"
        "    partitions: [train]\n    names: {partitions: {train: gpu_train}}\n"
        "tenants: {vision: {quota: {gpus: 8}}}\n"
    )
    (folder / "wants.yaml").write_text("partitions: {train: {gpus: 16}}")
    result = asked(
        folder, "--config", str(folder / "federation.yaml"), "--out", str(folder / "plan")
    )
    assert result.exception is None
    text = (folder / "plan" / "alpine.sh").read_text()
    assert "put gpu_train n1 'n[0-1]'" in text


def test_a_partition_gets_nodes_only_of_sites_that_have_it(folder: Path) -> None:
    (folder / "basalt.json").write_text(json.dumps(snapshot("basalt", r1="bbe")))
    basalt = ("--snapshot", str(folder / "basalt.json"))
    (folder / "wants.yaml").write_text("partitions: {train: {gpus: 40}}\nspare: [burst]\n")
    assert "all that it may have is 32" in str(offline(folder, *basalt).exception)
    (folder / "wants.yaml").write_text(
        "partitions: {train: {gpus: 40, sites: [alpine, basalt]}}\nspare: [burst]\n"
    )
    assert "basalt:r1n0: spare > train" in offline(folder, *basalt).output
    assert wrong(folder, "partitions: {tain: {gpus: 8}}") == (
        "partitions.tain: no site shows a node in it; if it exists without nodes, list its 'sites'"
    )


def test_mistakes_name_file_line_and_key(folder: Path) -> None:
    path = folder / "wants.yaml"
    assert wrong(folder, "partitions:\n  train: {gpu: 8}\n").startswith(
        f"{path}:2: partitions.train.gpu: unknown key; did you mean gpus?"
    )
    assert wrong(folder, "partitions:\n  train: {gpus: 8, nodes: 1}\n") == (
        f"{path}:2: partitions.train: give 'gpus' or 'nodes', one of them"
    )
    assert f"{path}:3: partitions.train.survives.0: expected" in wrong(
        folder, "partitions:\n  train:\n    {gpus: 8, survives: [rak]}\n"
    )
    assert wrong(folder, "partitions: {train: {gpus: 8}}\nspare: [train]") == (
        f"{path}:1: file: spare: train is under 'partitions', too; it is one of the two"
    )
    assert wrong(folder, "[]") == f"{path}:1: expected a mapping with the key 'partitions'"
    assert isinstance(offline(folder).exception, ConfigError)


def test_names_that_say_nothing_of_their_site_are_refused(folder: Path) -> None:
    text = "partitions: {train: {gpus: 8}}\ndomains: {power: {east: [r1]}}"
    assert wrong(folder, text) == "domains.power.east: expected SITE:NAMES, found 'r1'"
    text = 'partitions: {train: {gpus: 8}}\ndomains: {power: {e: ["a:r1"], w: ["a:r1"]}}'
    assert wrong(folder, text) == "domains.power: a:r1 is in e and w"


def test_names_that_no_site_has_are_refused_with_line_and_key(folder: Path) -> None:
    path = folder / "wants.yaml"
    text = (
        "partitions:\n  train:\n    gpus: 8\n    sites: [alpin]\n    gpu_types: {h10: 1}\n"
        "    near: [lustre]\nspare: [emptied]\ndomains:\n  rack: {pod: ['alpine:r9']}\n"
        "  power:\n    east: ['alpine:pod,r1', 'alpine:r[2-3]', 'basalt:r1']\n"
        "  storage: {lustre1: ['alpine:r1n0']}\n"
    )
    assert wrong(folder, text).splitlines() == [
        f"{path}:4: partitions.train.sites.0: no site alpin; did you mean alpine?",
        f"{path}:6: partitions.train.near.0: no storage domain lustre; did you mean lustre1?",
        f"{path}:5: partitions.train.gpu_types.h10: no node has it; did you mean h100?",
        f"{path}:9: domains.rack.pod.0: alpine has no node or rack r9",
        f"{path}:11: domains.power.east.1: alpine has no node or rack r3",
        f"{path}:11: domains.power.east.2: no site basalt; one of alpine",
    ]


def test_of_a_site_that_is_left_out_nothing_is_known(folder: Path) -> None:
    (folder / "basalt.json").write_text(json.dumps(snapshot("basalt", r1="t")))
    (folder / "wants.yaml").write_text(
        "partitions: {train: {gpus: 8, sites: [alpine, basalt], gpu_types: {h100: 1, a100: 1}}}\n"
        "domains: {power: {east: ['basalt:r7']}}\n"
    )
    result = offline(folder, "--snapshot", str(folder / "basalt.json"), "--site", "alpine")
    assert result.exception is None


def test_a_node_in_two_planned_partitions_is_refused(folder: Path) -> None:
    alpine = snapshot("alpine", r1="t")
    alpine["nodes"][0]["partitions"] = ["train", "eval"]  # type: ignore[index]
    (folder / "alpine.json").write_text(json.dumps(alpine))
    assert "alpine:r1n0 is in the partitions train and eval" in str(offline(folder).exception)


def test_wrong_options_are_one_line(folder: Path) -> None:
    assert "give --config" in str(asked(folder).exception)
    twice = ("--snapshot", str(folder / "alpine.json"))
    assert "two files are of the same site" in str(offline(folder, *twice).exception)
    assert str(offline(folder, "--site", "basalt").exception) == (
        "--site: no site 'basalt'; there are alpine"
    )
    assert isinstance(offline(folder, "--site", "basalt").exception, InvalidRequest)
