"""The core's commands become the messages that release 0.1.0 sent, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest
from msgspec import structs

from federator.daemon.attempt_recall import AttemptRecall
from federator.daemon.effects import Effects
from federator.daemon.links import SiteLink
from federator.model.message import (
    AskAbout,
    Command,
    LaunchAt,
    PreemptAt,
    SendTo,
)
from federator.model.plan import BidRequest, JobPlan, Shrink
from federator.model.site import NodeShare, VictimTerms
from federator.model.site_message import Ask, CancelOrder, ShrinkOrder
from federator.model.submission import Option, Submission, pack_submission
from federator.model.tagged import Message
from federator.model.workload import ArrayTask, Job, SiteName
from federator.wire.agent_protocol import to_agent_decoder
from federator.wire.client_protocol import frame
from tests.fakes.build import attempt, gang, plan_on, workload
from tests.fakes.frames import TO_AGENT, as_then

SITE = SiteName("alpine")
SHARED: Final = {SITE: Path("/shared"), SiteName("birch"): Path("/other")}
TYPED: Final = Submission(
    components=((Option(name="signal", value="B:USR1@300"), Option(name="exclusive")),),
    script="#!/bin/sh\nsrun train\n",
    args=("--lr", "1"),
    environment={"A": "b"},
    work_dir="/home/ada",
)
JOB: Final = Job(
    name="train",
    nodes=2,
    gpus_per_node=8,
    cpus_per_node=4,
    gpu_types=("a100", "h100"),
    features=("ib",),
    avoid=("a3",),
    gres=(("fs", 2),),
    min_gpu_mem_gib=40.0,
)
TASK: Final = replace(
    workload(1, JOB, priority=2),
    submission=pack_submission(TYPED),
    array=ArrayTask(array_id=workload().id, index=3),
    time_limit_s=3600.0,
)
TASK_ASKED: Final = BidRequest.of(TASK, 4)
PLAN: Final = (
    JobPlan(
        name="train",
        partition="gpu",
        nodes={
            "a1": NodeShare(gpus=8, cpus=4, gres=(("fs", 2),)),
            "a2": NodeShare(gpus=8, cpus=4, mem_mib=7),
        },
        gpu_types={"a100": 16},
        rails=8,
    ),
)
COMMANDS: Final[dict[str, Command]] = {
    "ask": SendTo(
        site=SITE,
        message=Ask(
            pass_id=7,
            requests=(BidRequest.of(TASK, 4, 12.5), BidRequest.of(workload(2), 7)),
            reserve=BidRequest.of(workload(3, gang(4), user="bob", tenant="speech"), 1),
            reserving=True,
            victims={
                workload(9).id: VictimTerms(
                    priority=5, spared_until_s=3.0, save_s=30.0, optional_jobs=(1,)
                )
            },
        ),
    ),
    "ask_for_a_test": SendTo(
        site=SITE, message=Ask(pass_id=8, requests=(BidRequest.of(workload(2), 3),))
    ),
    "launch": LaunchAt(
        site=SITE,
        attempt=attempt(1, 2),
        workload=TASK,
        jobs=PLAN,
        has_run=True,
        victims=(workload(9).id,),
        shrinks=(Shrink(workload(8).id, 1),),
        checkpoint_interval_s=600.0,
        key="ada:k1",
        priority=2,
        within_quota=True,
        credit=0.5,
    ),
    "preempt": PreemptAt(
        site=SITE, attempt=attempt(1, 2), workload=TASK, site_job_id=4711, grace_s=60.0
    ),
    "shrink": SendTo(
        site=SITE, message=ShrinkOrder(attempt=attempt(1, 2), user="ada", components=(1, 3))
    ),
    "cancel": SendTo(
        site=SITE,
        message=CancelOrder(attempt=attempt(1, 2), user="ada", site_job_id=4711, pending_only=True),
    ),
    "recover": AskAbout(site=SITE, attempts=(attempt(1, 2), attempt())),
}


class Link:
    """Keeps what is sent to the site."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.recall = AttemptRecall(SITE, self.send, lambda _shown: None)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_frame(self, _message: Message, data: bytes) -> None:
        self.sent.append(to_agent_decoder.decode(data[4:]))


def sent_for(command: Command, shared: Mapping[SiteName, Path]) -> Message:
    link = Link()
    links = {SITE: cast(SiteLink, link)}
    Effects("demo", links, lambda *_: None, lambda _: None, shared).carry_out(command)
    (message,) = link.sent
    return message


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_sent_as_before(name: str) -> None:
    assert as_then(sent_for(COMMANDS[name], SHARED), TO_AGENT[name]) == TO_AGENT[name]


def test_a_launch_where_nothing_is_shared_is_sent_as_before() -> None:
    launch = LaunchAt(site=SITE, attempt=attempt(), workload=workload(), jobs=plan_on("a1"))
    recorded = TO_AGENT["launch_without_shared_folders"]
    assert as_then(sent_for(launch, {}), recorded) == recorded


def test_sites_that_are_asked_the_same_get_the_same_and_others_their_own_question() -> None:
    links = {SiteName(name): Link() for name in ("alpine", "birch", "cedar")}
    effects = Effects(
        "demo", cast(Mapping[SiteName, SiteLink], links), lambda *_: None, lambda _: None, SHARED
    )
    asked = Ask(pass_id=7, requests=(TASK_ASKED, BidRequest.of(workload(2), 7)))
    again = structs.replace(asked, requests=(*asked.requests,))
    renamed = structs.replace(TASK_ASKED, jobs=(replace(JOB, name="other"),))
    named = structs.replace(asked, requests=(renamed, asked.requests[1]))
    other = structs.replace(asked, victims={workload(9).id: VictimTerms(priority=5)})
    later = structs.replace(asked, pass_id=8)
    rounds = (
        (("alpine", asked), ("birch", again), ("cedar", other)),
        (("alpine", named), ("birch", asked), ("cedar", asked)),
        (("alpine", later), ("birch", later), ("cedar", later)),
    )
    for questions in rounds:
        for site, ask in questions:
            effects.carry_out(SendTo(site=SiteName(site), message=ask))
    for site, link in links.items():
        due = [ask for questions in rounds for name, ask in questions if name == site]
        assert [frame(sent) for sent in link.sent] == [frame(ask) for ask in due]
