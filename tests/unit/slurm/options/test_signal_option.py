"""``--signal`` is read as sbatch reads it, and in the same way by whoever needs a part of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federator.model.submission import Option, Submission
from federator.slurm.options.notice import Notice, notice_of
from federator.slurm.options.signal_option import SignalOption, read_signal
from federator.wire.agent_protocol import SignalTo

ANSWERS = json.loads((Path(__file__).parent / "passed_values.json").read_text())
TAKEN = [value for name, value, takers, _ in ANSWERS if name == "signal" and takers]
REFUSED = [value for name, value, takers, _ in ANSWERS if name == "signal" and not takers]

STEPS, BATCH = SignalTo.STEPS, SignalTo.BATCH


@pytest.mark.parametrize(
    ("text", "signal", "to", "lead_s"),
    [
        ("USR1", "USR1", STEPS, 60.0),
        ("B:USR1", "USR1", BATCH, 60.0),
        ("rb:sigusr1@10", "USR1", BATCH, 10.0),
        ("R:USR1", "USR1", STEPS, 60.0),
        (":USR1", "USR1", STEPS, 60.0),
        ("B:USR1@", "USR1", BATCH, 0.0),
        ("BUSR1", "USR1", BATCH, 60.0),
        ("RUSR1", "USR1", STEPS, 60.0),
        ("RBUSR1", "USR1", BATCH, 60.0),
        ("B:USR1@ 60", "USR1", BATCH, 60.0),
        ("B:USR1@+90", "USR1", BATCH, 90.0),
        ("B: USR1 @0", "USR1", BATCH, 0.0),
        (" USR1", "USR1", STEPS, 60.0),
        ("USR1 ", "USR1", STEPS, 60.0),
        ("+10", "USR1", STEPS, 60.0),
        ("B:0000010@5", "USR1", BATCH, 5.0),
        ("KILL@30", "KILL", STEPS, 30.0),
        ("64", "RTMAX", STEPS, 60.0),
        ("65546", "USR1", STEPS, 60.0),
        ("999", "", STEPS, 60.0),
        ("-10", "", STEPS, 60.0),
    ],
)
def test_recipients_signal_and_lead_are_read_from_every_spelling(
    text: str, signal: str, to: SignalTo, lead_s: float
) -> None:
    """As ``sbatch -vv`` of 22.05, 24.11 and 26.05 shows what it has read."""
    assert read_signal(text) == SignalOption(signal=signal, to=to, lead_s=lead_s)


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_sbatch_takes_is_no_signal(text: str) -> None:
    assert read_signal(text) is None


@pytest.mark.parametrize("text", [text for text in TAKEN if "USR1" in text.upper()])
def test_whatever_sbatch_takes_for_a_signal_is_the_one_that_a_preempted_job_gets(text: str) -> None:
    to = BATCH if "B" in text.upper().partition("USR1")[0] else STEPS
    assert notice_of(asking(text)) == Notice(signal="USR1", to=to)


@pytest.mark.parametrize("text", ["KILL", "STOP@60", "999", "64"])
def test_what_cannot_be_sent_leaves_the_usual_notice(text: str) -> None:
    assert notice_of(asking(text)) == Notice()


def test_a_job_of_submitit_is_told_by_its_own_signal() -> None:
    wckey = Option(name="wckey", value="submitit")
    assert notice_of(Submission(components=((wckey,),), script="")) == Notice(
        signal="USR2", to=STEPS
    )
    both = (wckey, Option(name="signal", value="B:USR1@ 60"))
    assert notice_of(Submission(components=(both,), script="")) == Notice(signal="USR1", to=BATCH)


def asking(signal: str) -> Submission:
    return Submission(components=((Option(name="signal", value=signal),),), script="")
