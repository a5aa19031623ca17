"""``federator quotas``: quotas that are hardly used, and whether each fits its tenant."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec

from federator.cli.client import call
from federator.cli.lending_text import loan_text
from federator.cli.quota_review import review
from federator.cli.slurm_time import parsed_time
from federator.cli.text import printable, refused, unexpected
from federator.wire.client_protocol import (
    ErrorReply,
    StatusCall,
    StatusReply,
)
from federator.wire.quota_messages import LoanReply, QuotaCall

_FOR_EVER: Final = 0.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def quotas() -> None:
    """Quotas that are hardly used, and whether each fits its tenant.

    Example: federator quotas list
    """


quotas.add_command(review)


@quotas.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def list_(as_json: bool) -> None:
    """List the quotas that are found unused (advised, noticed, lent), and those that are kept.

    Example: federator quotas list
    """
    reply = call(StatusCall())
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, StatusReply):
        raise unexpected(reply)
    loans = reply.lending.loans
    if as_json:
        print(msgspec.json.encode({"schema": 1, "loans": loans}).decode())
        return
    for loan in loans:
        print(printable(loan_text(loan)))
    if not loans:
        print("no quota is lent for want of use, or about to be")


@quotas.command()
@click.argument("tenant")
@click.option("--until", metavar="TIME", help="So long; left out: for ever. now+28days ...")
def keep(tenant: str, until: str | None) -> None:
    """Hold a quota back for TENANT, used or not; a loan of it ends at once.

    Only for operators: root, or the daemon's own user, on the daemon's host.

    Example: federator quotas keep vision --until now+28days
    """
    until_s = _FOR_EVER if until is None else parsed_time(until, time.time(), to_come=True)
    _ask(QuotaCall(tenant=tenant, keep=True, until_s=until_s))
    print(printable(f"the quota of {tenant} is held back, used or not"))


@quotas.command()
@click.argument("tenant")
def release(tenant: str) -> None:
    """Undo a keep, or end a notice or a loan: TENANT's quota is judged anew by its use.

    Only for operators: root, or the daemon's own user, on the daemon's host.

    Example: federator quotas release vision
    """
    _ask(QuotaCall(tenant=tenant, keep=False))
    print(printable(f"the quota of {tenant} is judged by its use"))


def _ask(message: QuotaCall) -> LoanReply:
    reply = call(message)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, LoanReply):
        raise unexpected(reply)
    return reply
