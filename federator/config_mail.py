"""The key ``mail`` of federation.yaml: how users are mailed the events of their jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from federator.config_listen import listen_address
from federator.config_services import Strict

_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,63}(?:@(?=.{1,253}\Z)[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9][A-Za-z0-9-]*)*)?"
)
_DOMAIN: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252})?")


def is_address(text: str) -> bool:
    """Whether it is one address, or one local user, and nothing that a mailer reads otherwise."""
    return _ADDRESS.fullmatch(text) is not None


class MailConfig(Strict):
    """Mail of the federation's own; with neither ``smtp`` nor ``command`` there is none."""

    smtp: str = ""  # HOST:PORT of this host's own mail server
    command: tuple[str, ...] = ()  # called as Slurm's MailProg: COMMAND -s SUBJECT ADDRESS
    sender: str = "federator@localhost"
    domain: str = ""  # of users who name no address; "": the bare name
    per_user_h: Annotated[int, Field(ge=1, le=100_000)] = 100  # the most for one user in an hour

    @property
    def is_on(self) -> bool:
        return bool(self.smtp or self.command)

    @field_validator("smtp")
    @classmethod
    def _of_this_host(cls, smtp: str) -> str:
        if smtp and not (listen_address(smtp).is_local and listen_address(smtp).host):
            raise ValueError("expected a mail server of this host, such as localhost:25")
        return smtp

    @field_validator("command")
    @classmethod
    def _a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if command and not Path(command[0]).is_absolute():
            raise ValueError("expected an absolute path, and its arguments")
        return command

    @field_validator("sender")
    @classmethod
    def _an_address(cls, sender: str) -> str:
        if not is_address(sender):
            raise ValueError("expected an address")
        return sender

    @field_validator("domain")
    @classmethod
    def _a_domain(cls, domain: str) -> str:
        if not _DOMAIN.fullmatch(domain):
            raise ValueError("expected a domain")
        return domain

    @model_validator(mode="after")
    def _one_way(self) -> MailConfig:
        if self.smtp and self.command:
            raise ValueError("give one of 'smtp' and 'command'")
        return self
