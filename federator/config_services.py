"""Keys of federation.yaml for what stands beside the queue: log, history, audit, roles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from federator.audit.service import NONE as NO_AUDIT
from federator.config_mistakes import refuse
from federator.history.url import check_history_url

Hours = Annotated[float, Field(gt=0, le=100 * 365 * 24)]


class Strict(BaseModel):
    """A mapping of federation.yaml: a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LogConfig(Strict):
    """The event log; docs/reliability.md, "Snapshots and restarts"."""

    keep_ended_h: Annotated[float, Field(ge=1, le=100 * 365 * 24)] = 720.0  # what has ended


class HistoryConfig(Strict):
    """The history of what has ended; docs/history.md."""

    url: str = ""  # "": beside the log
    keep_days: Annotated[float, Field(ge=1, le=100 * 365)] = 1095.0

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        try:
            check_history_url(url)
        except ValueError as error:  # as of the store's
            refuse([((), str(error))])
        return url


class AuditConfig(Strict):
    """The record of who did what; docs/audit.md."""

    dir: str = ""  # "": beside the log
    max_mib: Annotated[int, Field(ge=1, le=1 << 20)] = 64  # of one file
    decisions_mib: Annotated[int, Field(ge=1, le=1 << 20)] = 64  # of what awards were decided on

    @field_validator("dir")
    @classmethod
    def _absolute(cls, folder: str) -> str:
        if folder not in ("", NO_AUDIT) and not Path(folder).is_absolute():
            raise ValueError(f"expected an absolute path, or {NO_AUDIT}")
        return folder


class RolesConfig(Strict):
    """Unix groups of the daemon's host, whose members may do more than users."""

    operator_groups: tuple[str, ...] = ()  # only on the daemon's host
    viewer_groups: tuple[str, ...] = ()  # see everything, and change nothing of others
