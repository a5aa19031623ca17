"""What squeue's columns show of a job's size is what squeue shows of the same options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.daemon.views import queue_rows
from federator.model.submission import Submission, pack_submission
from federator.slurm.options.interpret import interpret
from federator.slurm.options.options import parse_command_line, resolve
from federator.wire.client_protocol import QueueCall, QueueReply, frame
from tests.fakes.build import draft, rack
from tests.fakes.loopback import Loopback


@pytest.mark.parametrize(
    ("words", "min_cpus", "memory", "tasks"),
    [  # squeue -o '%c %m', scontrol show job, of 22.05, 24.11 and 26.05
        ("-n2", 1, (0, ""), 2),
        ("-N2", 1, (0, ""), 2),
        ("-c4", 4, (0, ""), 1),
        ("-n4 -c2", 2, (0, ""), 4),
        ("-N2 -n6", 1, (0, ""), 6),
        ("-N2 --ntasks-per-node=4 -c2", 8, (0, ""), 8),
        ("-n4 --ntasks-per-node=2", 2, (0, ""), 4),
        ("--mincpus=6", 6, (0, ""), 1),
        ("-n3 -O", 1, (0, ""), 3),
        ("--gres=gpu:1 --cpus-per-gpu=4", 1, (0, ""), 1),
        ("-G4 --ntasks-per-gpu=2", 1, (0, ""), 8),
        ("-G a100:4 --gpus-per-task=a100:2", 1, (0, ""), 2),
        ("-n2 --mem=700M", 1, (700, ""), 2),
        ("-n2 --mem-per-cpu=300M", 1, (300, "cpu"), 2),
        ("-c3 --mem-per-cpu=300M", 3, (300, "cpu"), 1),
        ("-N2 -n6 --mem-per-cpu=300M", 1, (300, "cpu"), 6),
        ("--mincpus=6 --mem-per-cpu=300M", 6, (300, "cpu"), 1),
        ("--gres=gpu:2 --mem-per-gpu=1G", 1, (1024, "gpu"), 1),
        ("-G4 --mem-per-gpu=1G", 1, (1024, "gpu"), 1),
        ("-N2 -G3 --mem-per-gpu=1G", 1, (1024, "gpu"), 2),
    ],
)
def test_cpus_memory_and_tasks_are_as_asked_for(
    words: str, min_cpus: int, memory: tuple[int, str], tasks: int
) -> None:
    submission = Submission(
        components=resolve(parse_command_line(words.split()).groups, (), ()),
        script="#!/bin/sh\n",
    )
    asked = replace(draft(*interpret(submission).jobs), submission=pack_submission(submission))
    f = Loopback({"alpine": rack("a", 4)})
    f.submit(asked)
    ((row,), _) = queue_rows(f.federation, QueueCall(details=True), 100)
    found = row.details
    assert found is not None
    assert (found.min_cpus, (found.min_mem_mib, found.min_mem_of)) == (min_cpus, memory)
    assert found.tasks == tasks


@pytest.mark.parametrize(
    "words",
    [
        "-O -N 4194304 --gpus-per-node=2147483647 --ntasks-per-gpu=2147483647",
        "-O -N 4194304 --ntasks-per-node=2147483647 -c 2147483647",
    ],
)
def test_a_request_beyond_all_reason_can_be_told(words: str) -> None:
    """Else its user breaks the answer for everybody who asks with details."""
    submission = Submission(
        components=resolve(parse_command_line(words.split()).groups, (), ()),
        script="#!/bin/sh\n",
    )
    f = Loopback({"alpine": rack("a", 4)})
    entry = f.federation.ledger.entries[f.submit(draft())]
    jobs, packed = interpret(submission).jobs, pack_submission(submission)
    entry.workload = replace(entry.workload, jobs=jobs, submission=packed)  # no site has reported
    rows, _ = queue_rows(f.federation, QueueCall(details=True), 100)
    assert frame(QueueReply(rows=rows, now_s=0.0))
