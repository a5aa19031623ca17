"""The last acts of the audit: who did what, and what was refused."""

from __future__ import annotations

import msgspec

from federator.wire.audit_messages import AuditReply, AuditRow


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/api/audit``."""

    schema: int = 1
    now_s: float
    kept: bool  # False: the daemon keeps no audit
    acts: tuple[str, ...]  # kinds that are among the last ones
    rows: tuple[AuditRow, ...]  # newest first


def audit_view(reply: AuditReply, act: str, who: str) -> AuditView:
    """Those of the last acts that are wanted.

    Args:
        reply: the daemon's.
        act: only this kind; "": any.
        who: only what this user did, or was refused; "": anybody.
    """
    rows = (row for row in reply.rows if act in ("", row.act) and who in ("", row.by))
    return AuditView(
        now_s=reply.now_s,
        kept=reply.kept,
        acts=tuple(sorted({row.act for row in reply.rows})),
        rows=tuple(rows),
    )
