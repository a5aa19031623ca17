"""``federator doctor``: what jobs waste, by which figures, and what to do about it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from federator.cli.client import call
from federator.cli.doctor_text import finding_lines
from federator.cli.slurm_time import parsed_time
from federator.cli.text import counted, listed, printable, refused, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply
from federator.wire.usage_messages import DoctorCall, DoctorReply

_PATH: Final = click.Path(path_type=Path)
_DAY_S: Final = 86_400.0
DAYS: Final = 7  # that are judged unless others are asked for
QUOTA_DAYS: Final = 28
FOUND: Final = 1
"""The exit status if something was found, as of linters."""


@click.command()
@click.option("-S", "--since", "--start", metavar="TIME", help="Jobs that ended from then on.")
@click.option("-E", "--until", "--end", metavar="TIME", help="Jobs that ended before.")
@click.option("-A", "--tenant", "--account", metavar="NAMES", help="Only these tenants.")
@click.option("-u", "--user", metavar="NAMES", help="Only these users.")
@click.option("--quotas", is_flag=True, help="Review quotas and tenants' use, by days.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
@click.option("--config", type=_PATH, help="Read the history itself, by this federation.yaml.")
@click.option("--mail", is_flag=True, help="Mail each user what is found of theirs; with --config.")
def doctor(  # noqa: PLR0913 - an option each
    *,
    since: str | None,
    until: str | None,
    tenant: str | None,
    user: str | None,
    quotas: bool,
    as_json: bool,
    config: Path | None,
    mail: bool,
) -> int:
    """Find jobs that waste what they hold: whose, what, by which figures, and what to do.

    By default of the last 7 days; --quotas, which is for operators, of 28. Members see their own
    and their tenants' jobs. The status is 0 if nothing is found, 1 if something is, more if it
    failed. docs/doctor.md explains the kinds.

    Example: federator doctor --since now-30days --tenant vision
    """
    if quotas and user is not None:
        raise InvalidRequest("give either --quotas or --user: quotas are of tenants")
    if mail and (config is None or quotas):
        raise InvalidRequest("--mail needs --config, and mails no review of quotas")
    now_s, days = time.time(), QUOTA_DAYS if quotas else DAYS
    question = DoctorCall(
        start_s=parsed_time(since, now_s) if since is not None else now_s - days * _DAY_S,
        end_s=parsed_time(until, now_s) if until is not None else now_s,
        tenants=tuple(listed(tenant)),
        users=tuple(listed(user)),
        quotas=quotas,
    )
    if question.end_s < question.start_s:
        raise InvalidRequest("Start time requested is after end time")
    reply = _ask(question) if config is None else _from_database(config, question)
    if as_json:
        print(msgspec.json.encode(_as_json(reply, question)).decode())
    else:
        _print(reply, question)
    if mail and config is not None:
        _mail(config, reply, question)
    return FOUND if reply.findings else 0


def _mail(config: Path, reply: DoctorReply, question: DoctorCall) -> None:
    from federator.cli.mailed import mail_findings  # noqa: PLC0415  # pydantic

    first, last = (
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
        for at_s in (question.start_s, question.end_s)
    )
    sent = mail_findings(config, reply.findings, f"that ended from {first} to {last} (UTC)")
    print(f"federator doctor: {counted(sent, 'mail')} sent", file=sys.stderr)


def _ask(question: DoctorCall) -> DoctorReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, DoctorReply):
        raise unexpected(reply)
    return reply


def _from_database(config: Path, question: DoctorCall) -> DoctorReply:
    """As the daemon would answer an operator, by what the history holds; nothing is left off."""
    from federator.config import load_config  # noqa: PLC0415
    from federator.config_tenants import gpu_quotas  # noqa: PLC0415
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.doctor_answer import answer  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415

    loaded = load_config(config)
    url = history_url(loaded.history.url, loaded.store)
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url)")
    quotas = gpu_quotas(loaded.tenants)
    return answer(open_reader(url), question, None, loaded.federation, quotas)


def _print(reply: DoctorReply, question: DoctorCall) -> None:
    for made in reply.findings:
        print("\n".join(map(printable, finding_lines(made))))
    found = counted(len(reply.findings) + reply.left_off, "finding")
    if question.quotas:
        print(f"{found} in {counted(reply.days, 'whole day')}")
    else:
        unmeasured = reply.attempts - reply.measured
        judged = counted(reply.attempts, "attempt")
        print(f"{found} in {judged}; what {unmeasured} of them used is not known")
    if reply.left_off:
        print(f"federator doctor: {reply.left_off} findings are left off", file=sys.stderr)
    if not reply.is_whole:
        note = "there were more attempts: only the latest were judged; ask for less time"
        print(f"federator doctor: {note}", file=sys.stderr)


def _as_json(reply: DoctorReply, question: DoctorCall) -> dict[str, object]:
    return {
        "schema": 1,
        "federation": reply.federation,
        "start_s": question.start_s,
        "end_s": question.end_s,
        "at_s": reply.at_s,
        "days": reply.days,
        "attempts": reply.attempts,
        "measured_attempts": reply.measured,
        "is_whole": reply.is_whole,
        "left_off": reply.left_off,
        "findings": [
            {
                "kind": made.kind,
                "tenant": made.tenant,
                "user": made.user,
                "family": made.family,
                "jobs": made.jobs,
                "gpu_h": made.gpu_h,
                "evidence": made.evidence,
            }
            for made in reply.findings
        ],
    }
