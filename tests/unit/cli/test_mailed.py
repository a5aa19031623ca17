"""Findings and reports go by mail to those whom they concern, and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from federator.cli.mailed import mail_findings, mail_text
from federator.daemon.mail import sending
from federator.daemon.mail.letters import Letter
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


def test_it_says_who_got_none(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four users the server refuses two; where it is away afterwards, all the rest get none."""
    asked: list[str] = []

    def deliver(_mail: object, _federation: str, letter: Letter) -> None:
        asked.append(letter.user)
        if letter.user in faults:
            raise faults[letter.user]

    monkeypatch.setattr(sending, "deliver", deliver)
    found = [of(user) for user in ("ada", "bob", "eve", "zed")]
    faults: dict[str, Exception] = {"ada": OSError("no such user"), "eve": OSError("full")}
    with pytest.raises(SiteUnavailable) as told:
        mail_findings(config, found, "")
    assert str(told.value) == "mail: 2 of 4 sent, none to ada,eve: ada@example.org: no such user"
    assert asked == ["ada", "bob", "eve", "zed"]
    faults["eve"] = sending.Unreached("away")
    with pytest.raises(SiteUnavailable) as told:
        mail_findings(config, found, "")
    assert str(told.value) == "mail: 1 of 4 sent, none to ada,eve,zed: stopped at eve: away"
    many = [of(f"user{k:03}") for k in range(120)]
    faults |= {each.user: OSError("full") for each in many}
    with pytest.raises(
        SiteUnavailable, match=r"0 of 120 sent, none to .*user099 and 20 more: user000"
    ):
        mail_findings(config, many, "")


def test_without_a_mail_section_or_a_server_it_says_so(
    config: Path, server: SmtpServer, tmp_path: Path
) -> None:
    server.says = "554 no"
    with pytest.raises(SiteUnavailable, match=r"0 of 1 sent, none to ada: ada@example\.org"):
        mail_findings(config, [IDLE], "")
    nobody = tmp_path / "none.yaml"
    nobody.write_text(f"{CONFIG}mail: {{command: [/no/such/mailer]}}\n")
    with pytest.raises(SiteUnavailable, match="0 of 1 sent"):
        mail_findings(nobody, [IDLE], "")
    nobody.write_text(CONFIG)
    with pytest.raises(InvalidRequest, match="section 'mail'"):
        mail_findings(nobody, [IDLE], "")
