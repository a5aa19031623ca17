"""What is made of a site's helper that is refused, fails, or answers nonsense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from federator.agent.base import SbatchRefused
from federator.errors import SiteRefused, SiteUnavailable, StaleState
from federator.faults.clock import VirtualClock
from federator.model.data_output import OutputPlace
from federator.model.dataset import CopyPhase
from federator.model.reason import ReasonCode
from federator.model.workload import WorkloadId
from federator.slurm.client import ENVIRONMENT
from federator.slurm.helper_client import HELPER_PATH, START_WITHIN_S, HelperClient
from federator.slurm.options.file_names import no_files
from federator.slurm.render import SbatchCall
from federator.slurm.runner import Completed
from federator.wire.agent_protocol import CopyOrder, OutputOrder
from federator.wire.client_protocol import frame
from tests.fakes.runner import Answer, FakeRunner, printed


def helper_of(answer: Answer) -> tuple[HelperClient, FakeRunner]:
    runner = FakeRunner(answer)
    return HelperClient(runner, ENVIRONMENT, VirtualClock()), runner


def test_the_helper_is_called_through_sudo_as_the_user() -> None:
    helper, runner = helper_of(lambda _argv: printed(b'{"job_id": 7}'))
    assert asyncio.run(helper.cancel("ada", 7))
    assert runner.asked == [("/usr/bin/sudo", "-n", "-u", "ada", HELPER_PATH)]


def test_whether_the_agent_still_acts_is_asked_when_the_last_time_for_sbatch_is_fixed() -> None:
    """So one that is stopped after it was asked wakes up too late for the helper."""
    clock, asked = VirtualClock(), list[float]()
    runner = FakeRunner(lambda _: printed(b'{"job_id": 7}'))
    helper = HelperClient(runner, ENVIRONMENT, clock)
    call = SbatchCall(argv=(), args=(), script="#!", environment={}, work_dir="/", umask=0)

    def stopped() -> None:
        asked.append(clock())
        clock.advance(3600.0)

    helper.may_submit = stopped
    asyncio.run(helper.submit("ada", call))
    assert json.loads(runner.told[-1])["start_by_s"] == asked[0] + START_WITHIN_S

    def refuses() -> None:
        raise StaleState("another agent acts")

    helper.may_submit = refuses
    with pytest.raises(StaleState):
        asyncio.run(helper.submit("ada", call))
    assert len(runner.asked) == 1


@pytest.mark.parametrize("user", ["", "-u", "#0", "a b", "root\n", "a/b"])
def test_a_user_that_sudo_could_misread_is_refused(user: str) -> None:
    helper, runner = helper_of(lambda _argv: printed(b"{}"))
    with pytest.raises(SiteRefused, match="no name of a user"):
        asyncio.run(helper.cancel(user, 7))
    assert runner.asked == []


@pytest.mark.parametrize(
    "done",
    [
        printed(b""),
        printed(b"Traceback", 0),
        printed(b"[]"),
        printed(b"", 1, b"Traceback (most recent call last)"),
        printed(b'{"error": "sbatch did not end within 30 s", "exit_status": 124}'),
        printed(b'{"error": "sbatch printed no job id", "exit_status": 70}'),
        printed(b'{"error": "Socket timed out on send/recv operation", "exit_status": 1}'),
    ],
)
def test_after_an_unclear_answer_nothing_is_known(done: Completed) -> None:
    helper, _ = helper_of(lambda _argv: done)
    with pytest.raises(SiteUnavailable):
        asyncio.run(helper.cancel("vision1", 7))


def test_what_sudo_says_no_to_is_refused() -> None:
    helper, _ = helper_of(lambda _argv: printed(b"", 1, b"hint\nsudo: a password is required\n"))
    with pytest.raises(SiteRefused, match="act for vision1"):
        asyncio.run(helper.cancel("vision1", 7))


def test_an_answer_without_a_job_id_is_unclear() -> None:
    @dataclass(frozen=True)
    class Call:
        argv: Sequence[str] = ("--comment=fed:7:1",)
        args: Sequence[str] = ()
        script: str = "#!/bin/sh\n"
        work_dir: str = "/"
        umask: int = 0o022
        checkpoint_dir: str = ""

        @property
        def files(self) -> Mapping[str, object]:
            return no_files()

        @property
        def environment(self) -> Mapping[str, str]:
            return {}

    helper, _ = helper_of(lambda _argv: printed(b"{}"))
    with pytest.raises(SiteUnavailable, match="named no job"):
        asyncio.run(helper.submit("vision1", Call()))


@pytest.mark.parametrize(
    ("words", "exit_status", "code"),
    [
        ("--input=/s/Invalid qos specification: it does not exist", 66, ReasonCode.FILES),
        ("--input=/s/Unable to contact slurm controller: denied", 66, ReasonCode.FILES),
        ("sbatch: error: Invalid --nice value", 1, ReasonCode.SBATCH_REFUSED),
        ("argv item 'x' is no long option", 64, ReasonCode.LAUNCH_REFUSED),
    ],
)
def test_a_launch_that_the_helper_refuses_for_its_files_is_no_matter_of_sbatch(
    words: str, exit_status: int, code: ReasonCode
) -> None:
    helper, _ = helper_of(
        lambda _: printed(json.dumps({"error": words, "exit_status": exit_status}))
    )
    call = SbatchCall(argv=(), args=(), script="#!", environment={}, work_dir="/", umask=0)
    with pytest.raises(SbatchRefused) as caught:
        asyncio.run(helper.submit("ada", call))
    assert (caught.value.code, str(caught.value).removeprefix("sbatch: error: ")) == (
        code,
        words.removeprefix("sbatch: error: "),
    )


@pytest.mark.parametrize("wrong", [["only one"], "text", None])
def test_an_inspection_that_does_not_answer_for_each_job_is_not_believed(wrong: object) -> None:
    helper, _ = helper_of(lambda _: printed(json.dumps({"wrong": wrong})))
    with pytest.raises(SiteUnavailable, match="helper answered"):
        asyncio.run(helper.inspect("ada", [({}, "/"), ({}, "/")]))


COPY = CopyOrder(
    name="a",
    version="1",
    domain="east",
    user="ada",
    host="gate",
    source="/w/a",
    root="/e",
    path="a",
    digest="sha256tree:00",
)
PLACE = OutputPlace(
    id=WorkloadId(1), name="maps", version="1", domain="west", root="/data", path="ada/maps/1"
)


def test_a_user_s_words_go_home_whatever_is_in_them() -> None:
    """Half a character in JSON, as of a file's name that is no UTF-8; and more than a frame."""
    said = {
        "phase": "failed",
        "bytes": 1,
        "files": 1,
        "digest": "\udcff" * 400,
        "detail": "a\udcff",
    }
    helper, _ = helper_of(lambda _argv: printed(json.dumps(said).encode()))
    order = OutputOrder(place=PLACE, attempt=1, user="ada")
    status = asyncio.run(helper.output(order))
    assert (status.detail, len(status.digest)) == ("a?", 300)
    assert frame(status)
    assert asyncio.run(helper.copy(COPY)) == (CopyPhase.FAILED, 1, "a?")


def test_a_removal_is_an_order_of_its_own_that_says_no_more_than_it_must() -> None:
    helper, runner = helper_of(
        lambda _argv: printed(b'{"phase": "dropped", "bytes": 0, "detail": ""}')
    )
    order = replace(COPY, remove=True)
    assert asyncio.run(helper.copy(order)) == (CopyPhase.DROPPED, 0, "")
    place = {"root": "/e", "path": "a", "digest": "sha256tree:00"}
    assert json.loads(runner.told[-1]) == {"op": "remove", "order": place}


def test_a_helper_of_an_earlier_release_makes_copies_of_one_stream() -> None:
    answers = iter(
        [
            b'{"error": "the order has other fields", "exit_status": 64}',
            b'{"phase": "copying", "bytes": 0, "detail": ""}',
        ]
    )
    helper, runner = helper_of(lambda _argv: printed(next(answers)))
    assert asyncio.run(helper.copy(replace(COPY, streams=3)))[0] is CopyPhase.COPYING
    told = [json.loads(each)["order"].get("streams") for each in runner.told]
    assert told == [3, None]
