"""The question for the last acts of the audit, and its answer."""

from __future__ import annotations

import msgspec

from federator.model.tagged import Message


class AuditCall(Message, frozen=True, kw_only=True, tag="audit_of"):
    """Asks for the last acts of the audit; for operators, and for the page, which shows them to its
    operators."""


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One act; fields as of ``AuditAct``, but that ``why`` and ``effect`` are words."""

    n: int  # its line
    at_s: float
    act: str
    by: str = ""
    via: str = ""
    on: str = ""
    why: str = ""
    effect: str = ""
    refused: str = ""


class AuditReply(Message, frozen=True, kw_only=True, tag="audit_is"):
    rows: tuple[AuditRow, ...]  # newest first
    now_s: float
    kept: bool = True  # False: this daemon keeps no audit
