"""The key ``traces`` of federation.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from federator.traces.destination import Destination, checked_endpoint


class TracesConfig(BaseModel):
    """Where OpenTelemetry's spans go; docs/traces.md."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    file: str = ""  # "": none
    endpoint: str = ""  # of OTLP over HTTP; "": none
    ratio: Annotated[float, Field(ge=0, le=1)] = 1.0  # of workloads that are traced

    @field_validator("file")
    @classmethod
    def _absolute(cls, file: str) -> str:
        if file and not Path(file).is_absolute():
            raise ValueError("expected an absolute path")
        return file

    @field_validator("endpoint")
    @classmethod
    def _on_loopback(cls, endpoint: str) -> str:
        if endpoint:
            checked_endpoint(endpoint)
        return endpoint

    @model_validator(mode="after")
    def _one(self) -> TracesConfig:
        if self.file and self.endpoint:
            raise ValueError("give one of 'file' and 'endpoint'")
        return self

    @property
    def destination(self) -> Destination:
        """The same, as an agent has it."""
        return Destination(file=self.file, endpoint=self.endpoint, ratio=self.ratio)
