"""Findings and reports go by mail to those whom they concern, and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from federator.cli.mailed import mail_findings, mail_text
from federator.errors import InvalidRequest, SiteUnavailable
from federator.usage.diagnosis import Diagnosis
from tests.fakes.mail_server import SmtpServer
from tests.unit.cli.test_doctor import IDLE

CONFIG = """\
federation: demo
store: "memory:"
regions: {r: {shared: /s}}
sites:
  alpine: {region: r, partitions: [gpu], command: ["true"]}
tenants: {vision: {users: [ada]}}
"""


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    made = SmtpServer()
    yield made
    made.end()


@pytest.fixture
def config(tmp_path: Path, server: SmtpServer) -> Path:
    path = tmp_path / "federation.yaml"
    path.write_text(f"{CONFIG}mail: {{smtp: '{server.address}', domain: example.org}}\n")
    return path


def of(user: str, **more: object) -> Diagnosis:
    return msgspec.structs.replace(IDLE, user=user, **more)


def test_each_user_gets_one_mail_with_their_own_findings(config: Path, server: SmtpServer) -> None:
    found = [of("bob", family="eval"), of("ada"), of("")]
    assert mail_findings(config, found, "of the last week") == 2
    to_ada, to_bob = server.got
    assert (to_ada["To"], to_bob["To"]) == ("ada@example.org", "bob@example.org")
    assert to_ada["Subject"] == "Federator demo: 1 finding about your jobs"
    body = to_ada.get_payload()
    assert "idle: ada (vision) 'train-#': GPUs that do nothing, 64.0 GPU hours" in body
    assert "busy 2.1% of the time" in body
    assert "eval" not in body


def test_a_name_that_is_no_address_gets_none(config: Path, server: SmtpServer) -> None:
    assert mail_findings(config, [of("ada\nBcc: eve"), of("x y")], "") == 0
    assert server.got == []


def test_a_report_is_mailed_to_one_address(config: Path, server: SmtpServer) -> None:
    mail_text(config, "heads@example.org", "usage of October", "TENANT GPU\n")
    (mail,) = server.got
    assert (mail["To"], mail["Subject"]) == (
        "heads@example.org",
        "Federator demo: usage of October",
    )
    with pytest.raises(InvalidRequest, match="no address"):
        mail_text(config, "a@b,c@d", "x", "y")


def test_without_a_mail_section_or_a_server_it_says_so(
    config: Path, server: SmtpServer, tmp_path: Path
) -> None:
    server.says = "554 no"
    with pytest.raises(SiteUnavailable, match=r"0 of 1 sent: ada@example\.org"):
        mail_findings(config, [IDLE], "")
    nobody = tmp_path / "none.yaml"
    nobody.write_text(f"{CONFIG}mail: {{command: [/no/such/mailer]}}\n")
    with pytest.raises(SiteUnavailable, match="0 of 1 sent"):
        mail_findings(nobody, [IDLE], "")
    nobody.write_text(CONFIG)
    with pytest.raises(InvalidRequest, match="section 'mail'"):
        mail_findings(nobody, [IDLE], "")
