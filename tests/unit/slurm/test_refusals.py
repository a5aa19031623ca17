"""Refusals of sbatch are for good or not, by the texts of three generations.

``refusals.json``: under ``strerror`` all that ``slurm_strerror`` says, and in which generations;
under ``sbatch`` what sbatch printed when it submitted nothing, one example of each form.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federator.model.reason import ReasonCode
from federator.slurm.refusals import (
    FOR_GOOD,
    OF_THE_PLAN,
    cannot_be_asked,
    in_one_line,
    kind_of_refusal,
)

RECORDED = json.loads((Path(__file__).parent / "refusals.json").read_text())
WORDS: dict[str, list[str]] = RECORDED["strerror"]
PRINTED = [said for said, _ in RECORDED["sbatch"]]
OF_REFUSED_OPTIONS = ("Requested reservation is invalid", "Job dependency problem")
FAILED = "sbatch: error: Batch job submission failed: "


def test_every_word_of_the_tables_is_one_of_slurms() -> None:
    assert set(WORDS) >= FOR_GOOD | OF_THE_PLAN
    assert not FOR_GOOD & OF_THE_PLAN


def test_no_word_of_the_tables_means_that_slurm_could_not_be_asked() -> None:
    assert [words for words in FOR_GOOD | OF_THE_PLAN if cannot_be_asked(words)] == []


@pytest.mark.parametrize("said", PRINTED)
def test_what_was_seen_to_be_refused_for_its_options_is_refused_for_good(said: str) -> None:
    if any(words in said for words in OF_REFUSED_OPTIONS):  # they reach no site
        return
    of_plan = any(words in said for words in OF_THE_PLAN)
    expected = ReasonCode.PLAN_REFUSED if of_plan else ReasonCode.SBATCH_REFUSED
    assert kind_of_refusal(said) is expected


@pytest.mark.parametrize(
    "words",
    [
        "Invalid qos specification",
        "Invalid account or account/partition combination specified",
        "Invalid feature specification",
        "Invalid generic resource (gres) specification",
    ],
)
def test_an_unknown_name_is_refused_for_good(words: str) -> None:
    assert WORDS[words] == ["22.05", "24.11", "26.05"]
    assert kind_of_refusal(FAILED + words) is ReasonCode.SBATCH_REFUSED


@pytest.mark.parametrize(
    "words",
    [
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Requested partition configuration not available now",
        "Required partition not available (inactive or drain)",
        "Required node not available (down, drained or reserved)",
        "Partition in DOWN state",
        "System submissions disabled",
        "Requested nodes are busy",
        "Unable to create job record, try again",
        "MaxJobCount limit reached",
        "Rate limit exceeded, please retry momentarily",
        "Slurm backup controller in standby mode",
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "I/O error writing script/environment to file",
        "Access/permission denied",
        "Invalid user id",
    ],
)
def test_a_refusal_that_may_pass_is_not_for_good(words: str) -> None:
    assert words in WORDS
    assert kind_of_refusal(FAILED + words) is ReasonCode.LAUNCH_REFUSED


@pytest.mark.parametrize(
    "words",
    ["Requested node configuration is not available", "Invalid node name specified"],
)
def test_a_refusal_of_the_nodes_is_the_plans(words: str) -> None:
    assert kind_of_refusal(FAILED + words) is ReasonCode.PLAN_REFUSED


@pytest.mark.parametrize(
    "said",
    [
        "",
        "too late: the site took too long to call sbatch",
        "You have too many jobs; come back",
        "sbatch: error: refused: partition gpu takes jobs of the federation only\n"
        + FAILED
        + "Access/permission denied",
        "the site does not let us act for ada: sudo: a password is required",
    ],
)
def test_words_that_are_not_known_are_not_for_good(said: str) -> None:
    assert kind_of_refusal(said) is ReasonCode.LAUNCH_REFUSED


def test_a_plug_ins_words_come_along_in_one_line() -> None:
    said = (
        "sbatch: error: QOS is made up\nsbatch: error: Batch job submission failed: Invalid qos\n"
    )
    assert in_one_line(said) == "QOS is made up; Batch job submission failed: Invalid qos"
    unknown = "/usr/bin/sbatch: unrecognized option '--x'\n"
    unknown += 'Try "sbatch --help" for more information\n'
    assert in_one_line(unknown) == "unrecognized option '--x'"
