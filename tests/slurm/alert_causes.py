"""What alerts are of that takes hours in real life: a long log, a long queue, other settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from federator.model.event import Amended, Changed, EpochBegan, LogRecord, Submitted, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.submission import Option, Submission
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.store.sqlite import SqliteStore
from federator.wire.client_protocol import StatusCall, StatusReply, SubmitCall, SubmitReply
from tests.fakes.build import draft, gang
from tests.slurm.federation import Running

USER: Final = "vision1"
AGO_S: Final = 3600.0


def write_long_log(path: Path, records: int) -> None:
    """Write a log of so many records that was never compacted: one job was changed in a loop."""
    at_s, id_ = time.time() - AGO_S, FIRST_WORKLOAD_ID
    wanted = draft(gang(1), user=USER, tenant="vision")
    changes = [Amended(at_s=at_s, workloads=(id_,), by=USER, name=f"n{k}") for k in range(records)]
    store = SqliteStore(path)
    store.lead(0)
    first = EpochBegan(at_s=at_s, epoch=int(at_s))
    queued = Submitted(at_s=at_s, draft=wanted, first_id=id_, key="changed-in-a-loop")
    over = Changed(at_s=at_s, workload=id_, happening=WorkloadEvent.CANCEL_ASKED, by=USER)
    written: list[LogRecord] = [first, queued, *changes, over]
    store.append([encode_event(each) for each in written])
    store.close()


def submit_lanes(running: Running, number: int) -> list[int]:
    """So many workloads that all differ in what they ask for, as scripts submit them; the ids."""
    ids = []
    for nice in range(1, number + 1):
        options = (Option(name="gres", value="gpu:1"), Option(name="nice", value=str(nice)))
        submission = Submission(components=(options,), script="#!/bin/sh\ntrue\n", work_dir="/tmp")
        key = f"lane-{nice:05}-{os.urandom(4).hex()}"
        reply = running.ask(SubmitCall(submission=submission, key=key, as_user=USER))
        assert isinstance(reply, SubmitReply), reply
        ids.append(int(reply.id))
    return ids


def open_claims(running: Running) -> int:
    """The number of workloads that have a claim."""
    reply = running.ask(StatusCall())
    assert isinstance(reply, StatusReply), reply
    return len(reply.claims)


def reconfigure(running: Running, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the settings of a daemon that runs; another reload meanwhile reads whole ones."""
    settings = yaml.safe_load(running.config.read_text())
    change(settings)
    new = running.config.with_suffix(".new")
    new.write_text(yaml.safe_dump(settings))
    new.rename(running.config)
    done = running.run("federator", "reload")
    assert done.returncode == 0, done.stderr
