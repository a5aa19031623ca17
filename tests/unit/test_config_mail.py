"""The key ``mail`` of federation.yaml: off by default, and only by this host's own server."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from federator.config_mail import MailConfig, is_address


def test_by_default_nothing_is_mailed() -> None:
    assert not MailConfig().is_on


@pytest.mark.parametrize("smtp", ["localhost:25", "127.0.0.1:2525", "[::1]:25"])
def test_a_mail_server_of_this_host_is_taken(smtp: str) -> None:
    assert MailConfig(smtp=smtp).is_on


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("smtp", "mail.example.org:25"),
        ("smtp", "unix:/run/smtp"),
        ("smtp", "localhost"),
        ("command", ("mail",)),
        ("sender", "a b@c"),
        ("sender", "a@b\nBcc: c"),
        ("domain", "-x"),
        ("per_user_h", 0),
    ],
)
def test_what_would_not_do_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        MailConfig.model_validate({key: value})


def test_there_is_one_way_to_mail() -> None:
    with pytest.raises(ValidationError, match="give one of"):
        MailConfig(smtp="localhost:25", command=("/usr/bin/mail",))


def test_an_address_holds_nothing_that_a_mailer_reads_otherwise() -> None:
    assert all(map(is_address, ["ada", "ada.b+c@example.org", "_x@y"]))
    assert not any(
        map(is_address, ["", "-f", "a b", "a,b", "a@b@c", "a@-b", "a\n", "a;b", "<a@b>"])
    )
