"""The errors of the package: one class per remedy, which its name and docstring say."""

from __future__ import annotations


class FederatorError(Exception):
    """Root of every error this project raises on purpose; its text is fit for a person."""


class InvalidRequest(FederatorError):
    """The user can mend it: a bad option, script or id. Nothing was queued or changed."""


class NotAllowed(FederatorError):
    """It is not the caller's to ask; an operator may."""


class ConfigError(FederatorError):
    """The admin can mend it: the message names file, line, key and what was expected."""


class SiteUnavailable(FederatorError):
    """The site or its channel does not answer; the same call may succeed later."""


class SiteRefused(FederatorError):
    """Slurm at the site said no; the workload goes back to the queue."""


class StaleState(FederatorError):
    """The caller acted on an old view (epoch, attempt): read again before acting."""


class LogDiverged(StaleState):
    """Records that were read are not in the log any more, and it was not compacted: read anew."""


class StoreError(FederatorError):
    """The event log cannot be read or written; the daemon must not go on."""


class LogIsOld(FederatorError):
    """The event log is an older copy of what its sites have seen: rebuild it (``recover``)."""


class HistoryError(FederatorError):
    """The history cannot be read or written; the daemon goes on without it, and tries again."""


class LeadershipLost(StoreError):
    """Another daemon leads: this one must stop acting; it may start again as a standby."""


class NotCompacted(StoreError):
    """The log could not be compacted and is as it was: records may be appended all the same."""


class DamagedLog(StoreError):
    """The log is not what was written: put a copy back, or rebuild it from the sites."""


class AuditError(FederatorError):
    """The audit cannot be written; the daemon goes on, and tries again."""


class DamagedAudit(FederatorError):
    """The audit is not what was written: find out who changed it."""
