"""One submission is one trace, from its call to its end, whichever attempts it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federator.agent.launch_traces import LaunchTraces
from federator.config import load_config
from federator.daemon.daemon import Daemon
from federator.daemon.edges import CallDesk, DaemonEdges, Listening
from federator.daemon.workload_traces import _ENDS, WorkloadTraces
from federator.errors import InvalidRequest
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.lifecycle import AT_SITE, TRANSITIONS
from federator.model.message import Command, Observation, Record, SubmitAsked
from federator.model.submission import Option, Submission
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.store.memory import MemoryLog, MemoryStore
from federator.traces.exporter import SpanSink
from federator.traces.span import span_id, trace_id
from federator.wire.agent_protocol import ClientCall, LaunchOrder
from federator.wire.client_protocol import SubmitCall, SubmitReply
from federator.wire.replies import Reply
from tests.fakes import agent as agent_fake
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.fakes.nowhere import Nowhere
from tests.fakes.spans import KeptSpans, about, ids, times_s

TENANTS = (
    Tenant(name=TenantName("owner"), priority=2, quota=Allowance(gpus=8)),
    Tenant(name=TenantName("guest")),
)
COMMIT_S = 0.25


@pytest.fixture
def fleet() -> Loopback:
    rules = Rules(preempt_gpus=64, grace_s=60.0)
    racks = {"alpine": rack("a", 1), "fjord": rack("f", 1, gpus=4)}
    return Loopback(racks, rules, None, Mast(), TENANTS)


def traced(fleet: Loopback, happens: Callable[[], object], kept: KeptSpans) -> KeptSpans:
    """What is told meanwhile; each commit takes a quarter of a second."""
    now = [0.0]
    traces = WorkloadTraces(fleet.federation.ledger, kept.sink.tell, lambda: now[0])
    handle = fleet.federation.handle

    def turn(observation: Observation, now_s: float) -> list[Command]:
        now[0] = now_s
        traces.arrived(observation)
        commands = handle(observation, now_s)
        traces.decided(observation, commands, fleet.federation.rounds.last_pass, now_s)
        now[0] = now_s + COMMIT_S
        traces.recorded([c.event for c in commands if isinstance(c, Record)])
        return commands

    fleet.federation.handle = turn  # type: ignore[method-assign]
    happens()
    fleet.federation.handle = handle  # type: ignore[method-assign]
    return kept


def one_life(fleet: Loopback, kept: KeptSpans) -> KeptSpans:
    fleet.duration_s = 100.0

    def happens() -> None:
        fleet.submit(replace(draft(gang(1, 8)), tenant=TenantName("owner")))
        fleet.run_for(300.0)

    return traced(fleet, happens, kept)


def test_a_life_is_one_trace_of_spans_that_lie_within_each_other(fleet: Loopback) -> None:
    kept = one_life(fleet, KeptSpans())
    around = {span.name: kept.parent_of(span) for span in kept.all()}
    assert around == {
        "workload": "",
        "submit": "workload",
        "wait": "workload",
        "pass": "wait",
        "bid": "pass",
        "attempt": "workload",
        "award": "attempt",
        "launch": "attempt",
        "start": "attempt",
        "run": "attempt",
    }
    assert len({ids(span)[0] for span in kept.all()}) == 1
    by_id = {ids(span): span for span in kept.all()}
    for span in kept.all():
        assert span.parent is None or span.name == "submit" or _lies_within(by_id, span), span.name


def _lies_within(by_id: object, span: object) -> bool:
    parent = by_id[span.parent.trace_id, span.parent.span_id]  # type: ignore[index,attr-defined]
    (begins, ends), (from_s, to_s) = times_s(span), times_s(parent)  # type: ignore[arg-type]
    slack_s = COMMIT_S  # an award is durable after it was made
    return from_s <= begins and ends <= to_s + slack_s


def test_the_times_are_those_of_the_log_and_of_slurm(fleet: Loopback) -> None:
    kept = one_life(fleet, KeptSpans())
    (entry,) = fleet.federation.ledger.entries.values()
    assert entry.award is not None
    assert times_s(kept.only("run")) == pytest.approx((entry.started_at_s, entry.ended_at_s))
    assert times_s(kept.only("award")) == pytest.approx(
        (entry.award.at_s, entry.award.at_s + COMMIT_S)
    )
    submitted_s = entry.workload.submitted_at_s
    assert times_s(kept.only("submit")) == pytest.approx((submitted_s, submitted_s + COMMIT_S))
    assert times_s(kept.only("wait")) == pytest.approx((submitted_s, entry.award.at_s))


def test_each_site_is_seen_to_bid_or_to_refuse(fleet: Loopback) -> None:
    kept = one_life(fleet, KeptSpans())
    said = {about(span)["federator.site"]: about(span) for span in kept.named("bid")}
    assert set(said) == {"alpine", "fjord"}
    assert said["alpine"]["federator.won"] is True
    assert "federator.refusal" not in said["alpine"]
    assert said["fjord"]["federator.won"] is False
    assert said["fjord"]["federator.refusal"]


def test_an_evicted_workload_has_a_wait_and_an_attempt_more_and_no_second_trace(
    fleet: Loopback,
) -> None:
    fleet.duration_s = 1000.0

    def happens() -> None:
        fleet.submit(replace(draft(gang(1, 8), requeue=True), tenant=TenantName("guest")))
        fleet.run_for(100.0)
        fleet.submit(replace(draft(gang(1, 8)), tenant=TenantName("owner")))
        fleet.run_for(4000.0)

    kept = traced(fleet, happens, KeptSpans())
    guest = trace_id("ours", WorkloadId(FIRST_WORKLOAD_ID))
    mine = [span for span in kept.all() if ids(span)[0] == guest]
    attempts = [about(s)["federator.attempt"] for s in mine if s.name == "attempt"]
    assert attempts == [1, 2]
    first, second = (times_s(s) for s in mine if s.name == "wait")
    ended = next(times_s(s) for s in mine if s.name == "attempt")
    assert second[0] == ended[1] > first[1]
    assert [s.name for s in mine if s.name == "workload"] == ["workload"]
    assert len({ids(span) for span in mine}) == len(mine)


def test_a_launch_that_a_site_declines_is_an_error(fleet: Loopback) -> None:
    fleet.sites[SiteName("alpine")].agent.refuses = True  # type: ignore[union-attr]

    def happens() -> None:
        fleet.submit(replace(draft(gang(1, 8)), tenant=TenantName("owner")))
        fleet.run_for(5.0)

    kept = traced(fleet, happens, KeptSpans())
    assert {span.status.description for span in kept.named("launch")} == {
        "declined by the site FedLaunch"
    }


def test_the_ids_follow_from_federation_and_workload(fleet: Loopback) -> None:
    kept = one_life(fleet, KeptSpans("demo"))
    trace = trace_id("demo", WorkloadId(FIRST_WORKLOAD_ID))
    assert ids(kept.only("workload")) == (trace, span_id(trace, ""))
    assert ids(kept.only("run")) == (trace, span_id(trace, "run/1"))
    assert trace != trace_id("demo2", WorkloadId(FIRST_WORKLOAD_ID))


def test_the_agents_spans_come_into_the_launch_without_a_word_on_the_wire(
    fleet: Loopback, tmp_path: Path
) -> None:
    kept = one_life(fleet, KeptSpans())
    site = agent_fake.Daemon(tmp_path)
    site.traces = LaunchTraces(SiteName("alpine"), kept.sink.tell)

    async def script() -> None:
        site.tell(agent_fake.order())
        await asyncio.sleep(1.0)

    site.serve(script)
    for name in ("intent", "sbatch"):
        assert kept.parent_of(kept.only(name)) == "launch"
    assert about(kept.only("sbatch"))["slurm.job_id"] > 0
    assert len({ids(span)[0] for span in kept.all()}) == 1


def test_an_sbatch_that_fails_is_an_error_with_slurms_words(tmp_path: Path) -> None:
    kept, site = KeptSpans(), agent_fake.Daemon(tmp_path)
    site.traces = LaunchTraces(SiteName("alpine"), kept.sink.tell)

    async def refuse(_order: LaunchOrder, _token: str, _start_line: str) -> object:
        raise InvalidRequest("sbatch: error: no such QOS")

    site.site.launch = refuse  # type: ignore[method-assign, assignment]

    async def script() -> None:
        site.tell(agent_fake.order())
        await asyncio.sleep(1.0)

    site.serve(script)
    assert kept.only("sbatch").status.description == "sbatch: error: no such QOS"


# ---- in a daemon ----

CONFIG = """
federation: demo
store: "memory:"
socket: daemon.sock
regions: {west: {shared: /shared}}
sites: {alpine: {region: west, command: ["/bin/false"], partitions: [gpu]}}
tenants: {nlp: {quota: {gpus: 8}, users: [ada]}}
"""


class Socket:
    def close(self) -> None:
        pass


def submitted_to_a_daemon(folder: Path, sink: SpanSink | None) -> list[Reply]:
    """Its replies to one submission, whose commit takes a quarter of a second."""
    path = folder / "federation.yaml"
    path.write_text(CONFIG)
    clock, desks, replies = VirtualClock(), list[CallDesk](), list[Reply]()

    async def act(call: Callable[..., object], *arguments: object) -> object:
        if call.__name__ == "append":
            await asyncio.sleep(COMMIT_S)
        return call(*arguments)

    async def listen(desk: CallDesk, _path: Path) -> Listening:
        desks.append(desk)
        return Socket()

    async def main() -> None:
        edges = DaemonEdges(
            wall=clock,
            monotonic=clock,
            transport_of=lambda _site: Nowhere(),
            act=act,
            listen=listen,
            traces=sink,
        )
        daemon = Daemon(load_config(path), MemoryStore(MemoryLog(30.0, clock)), edges=edges)
        running = asyncio.create_task(daemon.run())
        await asyncio.sleep(1.0)
        options = (Option(name="job-name", value="t"), Option(name="gres", value="gpu:1"))
        submission = Submission(components=(options,), script="#!/bin/sh\n", work_dir="/")
        call = SubmitCall(submission=submission, key="a-submit-key")
        asked = ClientCall(call_id=1, user="ada", call=call)
        desks[-1].take(asked, SiteName("alpine"), replies.append)
        await asyncio.sleep(2.0)
        daemon.stop()
        await running

    run_virtual(clock, main())
    return replies


def test_a_daemon_tells_that_a_call_has_become_durable(tmp_path: Path) -> None:
    kept = KeptSpans("demo")
    (reply,) = submitted_to_a_daemon(tmp_path, kept.sink)
    assert isinstance(reply, SubmitReply)
    began_s, ended_s = times_s(kept.only("submit"))
    assert ended_s - began_s == pytest.approx(COMMIT_S, abs=0.01)
    assert ids(kept.only("submit"))[0] == trace_id("demo", WorkloadId(reply.id))


def test_a_daemon_without_traces_has_nothing_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise AssertionError("made without being asked for")

    monkeypatch.setattr(WorkloadTraces, "__init__", none)
    (reply,) = submitted_to_a_daemon(tmp_path, None)
    assert isinstance(reply, SubmitReply)


def test_a_fault_of_the_traces_ends_no_turn(fleet: Loopback) -> None:
    def broken(_span: object) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    traces = WorkloadTraces(fleet.federation.ledger, broken, lambda: 0.0)
    commands = fleet.federation.handle(SubmitAsked(client=1, key="k", draft=draft(gang(1))), 1.0)
    with capture_logs() as logs:
        traces.recorded([c.event for c in commands if isinstance(c, Record)])
    assert [line["event"] for line in logs] == ["traces_fault"]


def test_every_way_back_into_the_queue_ends_an_attempt() -> None:
    back = {
        happening
        for (state, happening), edge in TRANSITIONS.items()
        if state in AT_SITE and edge.to not in AT_SITE
    }
    assert back <= _ENDS
