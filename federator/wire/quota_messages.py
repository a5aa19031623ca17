"""The call of ``federator quotas keep`` and ``release``, and its answer."""

from __future__ import annotations

from federator.model.tagged import Message


class QuotaCall(Message, frozen=True, kw_only=True, tag="quota"):
    """Has a tenant's unused quota held back, or judged as others again; for operators."""

    tenant: str
    keep: bool = True
    until_s: float = 0.0  # Unix time; 0: for ever


class LoanReply(Message, frozen=True, kw_only=True, tag="quota_taken"):
    """Answers a ``QuotaCall``: the step is in the log."""

    tenant: str
    step: str  # a LoanStep's value
