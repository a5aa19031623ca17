"""Which policies replay a trace? By name; a policy's code is imported when it is asked for.

To add one: a class with ``replay`` (see ``TracePolicy``) in a module of its own, and a row here.
An engine of another kind, such as one that drives the federation itself, is added the same way.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from federator.errors import InvalidRequest
from federator.sim.setting_names import refusal
from federator.sim.trace import TracePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """Where a policy is found, and how it is made."""

    about: str
    module: str
    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def make(self, name: str, settings: Mapping[str, float] | None = None) -> TracePolicy:
        """The policy of this entry.

        Args:
            name: of the entry, for messages.
            settings: by name, where the policy has some.

        Raises:
            InvalidRequest: it has no such setting, or needs what is not installed.
        """
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            raise InvalidRequest(
                f"--policy needs {error.name}, which is not installed here; "
                "install federator[daemon,forecast]"
            ) from error
        kind = getattr(module, self.kind)
        policy: TracePolicy
        if not settings:
            policy = kind(**self.parameters)
        elif not hasattr(kind, "adjusted"):
            raise refusal(settings, name)
        else:
            policy = kind.adjusted(settings)
        return policy


def _entry(about: str, module: str, kind: str, **parameters: Any) -> PolicyEntry:
    module = f"federator.sim.baselines.{module}"
    return PolicyEntry(about=about, module=module, kind=kind, parameters=parameters)


DEFAULT_POLICY: Final = "mast"

TRACE_POLICIES: Final[Mapping[str, PolicyEntry]] = MappingProxyType({
    "mast": _entry("the federation itself: every pool bids for every job", "mast",
                   "MastReplay"),
    "fifo": _entry("each pool in order of submission, on nodes", "fifo", "FifoReplay"),
    "sjf": _entry("each pool its shortest job first, on nodes", "sjf", "SjfReplay"),
    "fifo-count": _entry("as fifo; a pool is a counter", "fifo", "FifoReplay", placed=False),
    "sjf-count": _entry("as sjf; a pool is a counter", "sjf", "SjfReplay", placed=False),
    "maxmin": _entry("pools share all GPUs, max-min fair", "maxmin", "MaxMinReplay"),
    "ssf": _entry("each pool its least GPU-seconds first", "ssf", "SsfReplay"),
    "gssf": _entry("one pool of all GPUs, least GPU-seconds first", "gssf", "GssfReplay"),
    "tiresias": _entry("each pool by least attained service, preemptive", "tiresias",
                       "TiresiasReplay"),
    "themis": _entry("all GPUs by finish-time fairness, leases of 20 min", "themis",
                     "ThemisReplay"),
    "federated": _entry("each job bound at arrival to the pool with the least demand", "federated",
                        "FederatedReplay"),
    "sia": _entry("pools lend what forecasts leave over (needs federator[forecast])", "sia",
                  "SiaReplay"),
    "sia-vc": _entry("as sia, with all that is to come known", "sia_vc", "SiaVcReplay"),
})  # fmt: skip


def trace_policy(name: str, settings: Mapping[str, float] | None = None) -> TracePolicy:
    """The policy of this name.

    Raises:
        InvalidRequest: there is none.
    """
    entry = TRACE_POLICIES.get(name)
    if entry is None:
        known = ", ".join(TRACE_POLICIES)
        raise InvalidRequest(f"--policy: {name[:60]!r} is unknown; expected one of {known}")
    return entry.make(name, settings)


def remarks(policy: TracePolicy, settings: Mapping[str, float]) -> list[str]:
    """One line for each setting that was given and has no effect on a policy."""
    tell = getattr(policy, "remarks", None)
    return list(tell(settings)) if tell is not None else []
