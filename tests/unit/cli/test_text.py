"""Reasons and what would start instead, as people read them."""

from __future__ import annotations

import time

import pytest

from federator.cli.text import alternative_text, counted, reason_text, refusal_text, span
from federator.model.reason import Alternative, Reason, ReasonCode, Refusal, RefusalKind


def test_a_shortage_is_told_with_all_that_is_known_of_it() -> None:
    reason = Reason(
        code=ReasonCode.RESOURCES,
        job="train",
        needed=16,
        free=12,
        unit="GPUs",
        detail="a100|h100 with NVLink",
        free_nodes=3,
        largest_rack=8,
        more=4,
        more_in_s=2_100.0,
    )
    assert reason_text(reason) == (
        "train: needs 16 GPUs of a100|h100 with NVLink; free 12, in 3 nodes; largest rack 8; "
        "4 more in 35 min"
    )


def test_nodes_are_counted_apart_from_the_gpus_that_come_free() -> None:
    reason = Reason(
        code=ReasonCode.RESOURCES,
        needed=1,
        free=0,
        unit="nodes",
        detail="8 GPUs of a100",
        more=16,
        more_in_s=30.0,
    )
    assert reason_text(reason) == "needs 1 node with 8 GPUs of a100; free 0; 16 more GPUs in 30 s"


def test_when_it_could_start_is_told_with_the_refusal() -> None:
    reason = Reason(code=ReasonCode.RESERVED, detail="4294967300", more_in_s=7_200.0)
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,), starts_in_s=3 * 86_400.0)
    assert refusal_text(refusal) == (
        "not now: would delay job 4294967300, which can start here in 2.0 h; "
        "a shorter --time may start now; could start in 3.0 days at the latest"
    )


def test_a_reservation_of_a_site_is_told_with_its_times() -> None:
    reason = Reason(
        code=ReasonCode.SITE_RESERVATION,
        detail="maint",
        needed=2,
        unit="nodes",
        from_s=7_200.0,
        until_s=10_800.0,
    )
    begins, ends = (time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(t)) for t in (7_200, 10_800))
    assert reason_text(reason) == (
        f"Slurm reservation maint keeps 2 nodes from {begins} until {ends}, before it would be over"
    )


def test_a_start_that_is_predicted_is_not_told_as_a_promise() -> None:
    reason = Reason(code=ReasonCode.RESOURCES, needed=2, free=1, unit="nodes")
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,), starts_in_s=7_200.0, predicted=True)
    assert refusal_text(refusal) == (
        "not now: needs 2 nodes; free 1; "
        "predicted to start in 2.0 h, by how long such jobs have run"
    )


def test_a_promise_and_a_prediction_are_told_apart() -> None:
    reason = Reason(code=ReasonCode.RESOURCES, needed=2, free=1, unit="nodes")
    refusal = Refusal(
        kind=RefusalKind.WAIT, reasons=(reason,), starts_in_s=3 * 86_400.0, sooner_in_s=7_200.0
    )
    assert refusal_text(refusal) == (
        "not now: needs 2 nodes; free 1; could start in 3.0 days at the latest, predicted in 2.0 h"
    )


def test_a_start_that_nobody_can_foretell_is_called_unknown() -> None:
    reason = Reason(code=ReasonCode.RESOURCES, needed=2, free=1, unit="nodes")
    refusal = Refusal(kind=RefusalKind.WAIT, reasons=(reason,), no_end_in_sight=True)
    assert refusal_text(refusal) == (
        "not now: needs 2 nodes; free 1; "
        "start time unknown: not everything in its way ends by a time limit"
    )


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (Alternative(nodes=2, gpus=8), "--nodes=2 --gpus-per-node=8"),
        (Alternative(gpus=12), "--gpus=12"),
        (Alternative(nodes=4), "--nodes=4"),
        (Alternative(nodes=2, gpus=8, gpu_types=("v100",)), "--nodes=2 --gpus-per-node=8 on v100"),
        (Alternative(gpu_types=("\x1b[2J",)), "the same on ?[2J"),
    ],
)
def test_what_would_start_instead_is_told_as_options(other: Alternative, text: str) -> None:
    assert alternative_text(other) == f"would start now: {text}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2.0 h"),
        (200_000, "2.3 days"),
    ],
)
def test_a_time_to_come_is_told_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            Reason(code=ReasonCode.TOO_FEW_NODES, needed=1, unit="nodes", detail="8 GPUs"),
            "needs 1 node with 8 GPUs, the site has none",
        ),
        (
            Reason(code=ReasonCode.TOO_FEW_NODES, needed=16, free=8, unit="GPUs", detail="a100"),
            "needs 16 GPUs of a100, the site has 8",
        ),
        (
            Reason(
                code=ReasonCode.TOO_FEW_NODES, needed=5, free=4, unit="nodes", apart=("t+0", "t+2")
            ),
            "t+0 and t+2 need 5 nodes, none of them shared; the site has 4",
        ),
        (
            Reason(
                code=ReasonCode.RESOURCES,
                needed=5,
                free=4,
                unit="nodes",
                apart=("t+0", "t+2", "t+3"),
            ),
            "t+0, t+2 and t+3 need 5 nodes, none of them shared; free 4",
        ),
        (
            Reason(
                code=ReasonCode.TOO_FEW_NODES,
                needed=8,
                free=4,
                unit="nodes",
                apart=tuple(f"t+{k}" for k in range(8)),
            ),
            "t+0, t+1, t+2 and 5 more need 8 nodes, none of them shared; the site has 4",
        ),
        (
            Reason(
                code=ReasonCode.TOO_FEW_NODES, job="t+1", needed=2, unit="nodes", apart=("t+1",)
            ),
            "t+1: needs 2 nodes that no other of its components has; the site has none",
        ),
        (
            Reason(code=ReasonCode.NODE_TOO_SMALL, job="t", needed=2, free=1, unit="nic"),
            "t: needs nic:2 on one node, the largest has nic:1",
        ),
        (
            Reason(code=ReasonCode.NODE_TOO_SMALL, needed=1, unit="fpga"),
            "needs fpga:1 on one node, the largest has none",
        ),
        (
            Reason(code=ReasonCode.LIMIT, needed=1, unit="h100 GPUs", detail="nlp"),
            "needs 1 h100 GPU, the limit of tenant nlp leaves 0",
        ),
    ],
)
def test_what_is_missing_is_told_in_the_singular_and_the_plural(reason: Reason, text: str) -> None:
    assert reason_text(reason) == text


def test_one_is_no_plural() -> None:
    assert [counted(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
