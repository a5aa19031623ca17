"""Mails what a command found, as the ``mail`` section of federation.yaml says."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from federator.cli.doctor_text import finding_lines
from federator.cli.text import counted, printable
from federator.errors import InvalidRequest, SiteUnavailable
from federator.usage.diagnosis import Diagnosis

if TYPE_CHECKING:
    from federator.config_mail import MailConfig
    from federator.daemon.mail.letters import Letter

_MOST_NAMES: Final = 100  # of users who got none


def mail_findings(config: Path, findings: Sequence[Diagnosis], since: str) -> int:
    """Mail each user the findings about their own jobs, and nobody's else.

    Args:
        config: federation.yaml.
        findings: of any users; those of none are not mailed.
        since: words for the time that was judged.

    Returns:
        How many mails were given to the server.

    Raises:
        InvalidRequest: the configuration has no ``mail`` section.
        SiteUnavailable: the mail server was not reached, or refused one; it says who got none.
    """
    federation, mail = _mail_of(config)
    return _send(mail, federation, list(_letters(findings, federation, since, mail)))


def mail_text(config: Path, address: str, subject: str, text: str) -> None:
    """Mail one text to one address; raises as ``mail_findings``."""
    from federator.config_mail import is_address  # noqa: PLC0415
    from federator.daemon.mail.letters import Letter  # noqa: PLC0415

    if not is_address(address):
        raise InvalidRequest(f"--mail: {printable(address[:100])!r} is no address")
    federation, mail = _mail_of(config)
    letter = Letter(address, address, f"Federator {federation}: {subject}", text, _id("report"))
    _send(mail, federation, [letter])


def _mail_of(config: Path) -> tuple[str, MailConfig]:
    from federator.config import load_config  # noqa: PLC0415

    loaded = load_config(config)
    if not loaded.mail.is_on:
        raise InvalidRequest(f"{config}: --mail needs a section 'mail' (docs/mail.md)")
    return loaded.federation, loaded.mail


def _letters(
    findings: Sequence[Diagnosis], federation: str, since: str, mail: MailConfig
) -> Iterator[Letter]:
    from federator.config_mail import is_address  # noqa: PLC0415
    from federator.daemon.mail.letters import Letter  # noqa: PLC0415

    own = sorted((each for each in findings if each.user), key=lambda each: each.user)
    for user, made in groupby(own, key=lambda each: each.user):
        address = f"{user}@{mail.domain}" if mail.domain and "@" not in user else user
        if not is_address(address):
            continue
        mine = sorted(made, key=lambda each: -each.gpu_h)
        lines = [printable(line) for each in mine for line in finding_lines(each)]
        found = counted(len(mine), "finding")
        subject = f"Federator {federation}: {found} about your jobs"
        body = f"{found} about your jobs {since}:\n\n" + "\n".join(lines)
        body += "\n\n'federator doctor' shows them again. Nothing was changed.\n"
        yield Letter(user, address, subject, body, _id(f"doctor.{user}"))


def _id(words: str) -> str:
    """Of a mail, for its header; a user's name may hold what a header may not."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in words)
    return f"{plain}.{time.time_ns()}"


def _send(mail: MailConfig, federation: str, letters: Sequence[Letter]) -> int:
    import smtplib  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    from federator.daemon.mail.sending import Unreached, deliver  # noqa: PLC0415

    failed: list[Letter] = []
    first = ""
    for at, letter in enumerate(letters):
        try:
            deliver(mail, federation, letter)
        except Unreached as error:
            said = f"stopped at {printable(letter.user)}: {printable(str(error)[:300])}"
            raise SiteUnavailable(_unsent([*failed, *letters[at:]], letters, said)) from error
        except (OSError, smtplib.SMTPException, subprocess.SubprocessError) as error:
            failed.append(letter)
            first = first or printable(f"{letter.to}: {error}"[:300])
    if failed:
        raise SiteUnavailable(_unsent(failed, letters, first))
    return len(letters)


def _unsent(unsent: Sequence[Letter], letters: Sequence[Letter], why: str) -> str:
    """Who got none, as ``--user`` takes them."""
    names = ",".join(printable(each.user) for each in unsent[:_MOST_NAMES])
    if len(unsent) > _MOST_NAMES:
        names += f" and {len(unsent) - _MOST_NAMES} more"
    sent = len(letters) - len(unsent)
    return f"mail: {sent} of {len(letters)} sent, none to {names}: {why}"
