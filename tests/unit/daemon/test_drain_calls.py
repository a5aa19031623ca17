"""Operators drain, cordon and resume sites; the answers say what was refused and why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from federator.daemon.drain_calls import drain_asked
from federator.daemon.transition_log import TransitionLog
from federator.errors import InvalidRequest
from federator.model.drain import LeaveDrill
from federator.model.event import (
    LogRecord,
    SiteDrained,
    SiteResumed,
    SiteReturned,
    SiteWrittenOff,
    decode_event,
    encode_event,
)
from federator.model.workload import SiteName
from federator.wire.client_protocol import (
    Call,
    DrainCall,
    DrainReply,
    ErrorKind,
    ErrorReply,
    ResumeCall,
    SitesCall,
    SitesReply,
    WriteOffCall,
    frame,
)
from federator.wire.framing import read_frame, skip_to_banner
from federator.wire.replies import Reply, reply_decoder
from tests.unit.daemon.test_api import Desk

SITES = ("alpine", "baker")


def ask(desk: Desk, call: Call, folder: Path) -> Reply:
    """As an operator on the daemon's host."""

    async def asked() -> Reply:
        server = await desk.api.serve(folder / "daemon.sock")
        reader, writer = await asyncio.open_unix_connection(folder / "daemon.sock")
        await skip_to_banner(reader)
        writer.write(frame(call))
        body = await read_frame(reader)
        assert body is not None
        writer.close()
        await writer.wait_closed()
        server.close()
        return reply_decoder.decode(body)

    return asyncio.run(asked())


def test_an_operator_drains_a_site_which_is_shown_with_the_reason(tmp_path: Path) -> None:
    desk = Desk()
    for _ in range(2):
        desk.submit(gres="gpu:8")
    call = DrainCall(site="alpine", reason="new switch", migrate=True)
    reply = ask(desk, call, tmp_path)
    assert isinstance(reply, DrainReply)
    sites = desk.ask(SitesCall())
    assert isinstance(sites, SitesReply)
    alpine, baker = sites.sites
    (row,) = alpine.drains
    assert (row.reason, row.migrate, row.cordon, row.nodes) == ("new switch", True, False, ())
    assert row.left == reply.running
    assert not baker.drains
    assert isinstance(ask(desk, ResumeCall(site="alpine"), tmp_path), DrainReply)
    sites = desk.ask(SitesCall())
    assert isinstance(sites, SitesReply)
    assert not sites.sites[0].drains


@pytest.mark.parametrize(
    "call", [DrainCall(site="alpine"), ResumeCall(site="alpine"), WriteOffCall(site="alpine")]
)
def test_nobody_at_a_site_may_drain_it(call: Call) -> None:
    desk = Desk()
    for user in ("ada", "root"):
        reply = desk.ask(call, user)
        assert isinstance(reply, ErrorReply)
        assert reply.kind is ErrorKind.DENIED
        assert reply.message == f"{user} is no operator, or not on the daemon's host"
    assert not desk.federation.federation.ledger.drains


def test_a_refusal_says_why_and_what_to_do(tmp_path: Path) -> None:
    desk = Desk()

    def refused(call: Call) -> str:
        reply = ask(desk, call, tmp_path)
        assert isinstance(reply, ErrorReply), reply
        return reply.message

    assert refused(DrainCall(site="nowhere")) == "unknown site 'nowhere'; one of alpine, baker"
    assert refused(ResumeCall(site="baker")) == "baker is neither drained nor cordoned"
    nodes = ("a1", "z1", "z2", "z3", "z4", "z5", "z6", "z7")
    assert refused(DrainCall(site="alpine", nodes=nodes)) == (
        "site alpine has no node z1,z2,z3,z4,z5 and 2 more"
    )
    soon = DrainCall(site="alpine", deadline_s=desk.federation.clock.now_s + 60)
    assert refused(soon).startswith(
        "the deadline leaves no time to save and to leave; the earliest is 1970-01-12 "
    )
    assert isinstance(ask(desk, DrainCall(site="alpine", reason="disks"), tmp_path), DrainReply)
    twice = refused(DrainCall(site="alpine"))
    assert twice.startswith("alpine is drained already, since 1970-01-12 ")
    assert twice.endswith(": disks; end that first with federator resume alpine")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (DrainCall(site="alpine", cordon=True, migrate=True), "a cordon moves nobody"),
        (DrainCall(site="alpine", reason="x" * 501), "--reason has 501 characters"),
        (DrainCall(site="alpine", deadline_s=float("nan")), "expected a time within a year"),
        (DrainCall(site="alpine", deadline_s=-1.0), "expected a time within a year"),
        (DrainCall(site="alpine", deadline_s=1e12), "expected a time within a year"),
        (DrainCall(site="alpine", revoked=True), "--revoked: expected a --deadline"),
        (DrainCall(site="alpine", nodes=("a",) * 70_000), "70000 nodes in one request"),
        (ResumeCall(site="alpine", nodes=("a1",), drill=LeaveDrill()), "of a whole site"),
        (ResumeCall(site="alpine", drill=LeaveDrill(took_s=float("nan"))), "seconds from 0 on"),
        (ResumeCall(site="alpine", drill=LeaveDrill(took_s=-1.0)), "seconds from 0 on"),
        (ResumeCall(site="alpine", drill=LeaveDrill(workloads=-1)), "seconds from 0 on"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(call: DrainCall | ResumeCall, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        drain_asked(call, "root", 1, SITES, 1_000_000.0)


def test_a_leave_drill_is_in_the_log_with_the_end_of_its_drain(tmp_path: Path) -> None:
    desk = Desk()
    assert isinstance(ask(desk, DrainCall(site="alpine", reason="drill"), tmp_path), DrainReply)
    drill = LeaveDrill(took_s=42.0, workloads=3, wrong="x" * 600)
    assert isinstance(ask(desk, ResumeCall(site="alpine", drill=drill), tmp_path), DrainReply)
    (ended,) = [record for record in desk.federation.log if isinstance(record, SiteResumed)]
    again = decode_event(encode_event(ended))
    assert isinstance(again, SiteResumed)
    assert again.drill == LeaveDrill(took_s=42.0, workloads=3, wrong="x" * 500)
    none = ask(desk, ResumeCall(site="alpine", drill=drill), tmp_path)
    assert isinstance(none, ErrorReply)  # nothing was left, so no drill is over


def test_each_drain_and_its_end_is_a_line_of_the_log() -> None:
    site = SiteName("alpine")
    desk = Desk()
    records: list[LogRecord] = [
        SiteDrained(at_s=1.0, site=site, by="root", reason="fire", migrate=True, deadline_s=9.0),
        SiteDrained(at_s=1.0, site=site, by="root", nodes=("a1",), cordon=True),
        SiteResumed(at_s=2.0, site=site, by="root", drill=LeaveDrill(took_s=9.0)),
        SiteWrittenOff(at_s=3.0, site=site, by="root", reason="fire"),
        SiteReturned(at_s=4.0, site=site),
        SiteDrained(at_s=5.0, site=site, nodes=("a1",), cordon=True, gangs=True, until_s=9.0),
        SiteResumed(at_s=6.0, site=site, nodes=("a1",), gangs=True, reason="its time is over"),
    ]
    with capture_logs() as lines:
        TransitionLog(desk.federation.federation.ledger).write(records)
    assert [line["event"] for line in lines] == [
        "site_drained",
        "site_cordoned",
        "site_resumed",
        "site_written_off",
        "site_returned",
        "slow_nodes",
        "slow_nodes_resumed",
    ]
    assert lines[2]["drill"] == {"took_s": 9.0}
    assert lines[-2]["until_s"] == 9.0
    assert lines[-1]["reason"] == "its time is over"
    assert (lines[0]["reason"], lines[0]["deadline_s"]) == ("fire", 9.0)


def test_a_site_in_contact_is_not_written_off(tmp_path: Path) -> None:
    desk = Desk()
    reply = ask(desk, WriteOffCall(site="alpine"), tmp_path)
    assert isinstance(reply, ErrorReply)
    assert reply.message.startswith("site alpine is in contact, since 1970-01-12 ")
    assert reply.message.endswith("it is not gone; to empty it: federator drain alpine")
    desk.federation.site_down("alpine")
    reply = ask(desk, WriteOffCall(site="alpine"), tmp_path)
    assert isinstance(reply, ErrorReply)
    assert "may be back at once; it can be written off from 1970-01-12 " in reply.message
    desk.federation.run_for(61.0)
    assert isinstance(ask(desk, WriteOffCall(site="alpine", reason="fire"), tmp_path), DrainReply)
    reply = ask(desk, ResumeCall(site="alpine"), tmp_path)
    assert isinstance(reply, ErrorReply)
    assert reply.message.startswith("site alpine is written off, since 1970-01-12 ")
    sites = desk.ask(SitesCall())
    assert isinstance(sites, SitesReply)
    (row,) = sites.sites[0].drains
    assert (row.written_off, row.reason) == (True, "fire")
