"""Lists what can replay a trace, by name: the daemon's policies, and baselines to compare with.

Every policy of ``federator.policies`` is here under the name that it has in federation.yaml, and is
replayed by the federation's own code. To add a baseline: a class with ``replay`` (see
``TracePolicy``) in a module of ``baselines``, and a row here; its name must be no policy's. Its
code is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from federator.errors import InvalidRequest
from federator.policies import POLICIES
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
            policy = kind.adjusted(settings, **self.parameters)
        return policy


def _entry(about: str, module: str, kind: str, **parameters: Any) -> PolicyEntry:
    module = f"federator.sim.baselines.{module}"
    return PolicyEntry(about=about, module=module, kind=kind, parameters=parameters)


def _of_the_daemon(name: str) -> PolicyEntry:
    about = "the federation itself: every pool bids for every job"
    return PolicyEntry(
        about=about if name == DEFAULT_POLICY else f"{about}; ranked as by the daemon's {name}",
        module="federator.sim.federation_replay",
        kind="FederationReplay",
        parameters={"policy": name},
    )


DEFAULT_POLICY: Final = "mast"

BASELINES: Final[Mapping[str, PolicyEntry]] = MappingProxyType(
    {
        "pool-fifo": _entry("each pool in order of submission, on nodes", "fifo", "FifoReplay"),
        "pool-sjf": _entry("each pool its shortest job first, on nodes", "sjf", "SjfReplay"),
        "pool-fifo-count": _entry(
            "as pool-fifo; a pool is a counter", "fifo", "FifoReplay", placed=False
        ),
        "pool-sjf-count": _entry(
            "as pool-sjf; a pool is a counter", "sjf", "SjfReplay", placed=False
        ),
        "maxmin": _entry("pools share all GPUs, max-min fair", "maxmin", "MaxMinReplay"),
        "ssf": _entry("each pool its least GPU-seconds first", "ssf", "SsfReplay"),
        "gssf": _entry("one pool of all GPUs, least GPU-seconds first", "gssf", "GssfReplay"),
        "tiresias": _entry(
            "each pool by least attained service, preemptive", "tiresias", "TiresiasReplay"
        ),
        "themis": _entry(
            "all GPUs by finish-time fairness, leases of 20 min", "themis", "ThemisReplay"
        ),
        "hived": _entry(
            "each pool its own cells in order; idle cells lent, preemptive", "hived", "HivedReplay"
        ),
        "federated": _entry(
            "each job bound at arrival to the pool with the least demand",
            "federated",
            "FederatedReplay",
        ),
        "sia": _entry(
            "pools lend what forecasts leave over (needs federator[forecast])", "sia", "SiaReplay"
        ),
        "sia-vc": _entry("as sia, with all that is to come known", "sia_vc", "SiaVcReplay"),
    }
)

TRACE_POLICIES: Final[Mapping[str, PolicyEntry]] = MappingProxyType(
    {**{name: _of_the_daemon(name) for name in POLICIES}, **BASELINES}
)

NAMES_ONCE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fifo": "pool-fifo",
        "sjf": "pool-sjf",
        "fifo-count": "pool-fifo-count",
        "sjf-count": "pool-sjf-count",
    }
)
"""Names that baselines once had; taken until 0.2, and not listed."""


def trace_policy(name: str, settings: Mapping[str, float] | None = None) -> TracePolicy:
    """The policy or baseline of this name.

    Raises:
        InvalidRequest: there is none.
    """
    entry = TRACE_POLICIES.get(NAMES_ONCE.get(name, name))
    if entry is None:
        known = ", ".join(TRACE_POLICIES)
        raise InvalidRequest(f"--policy: {name[:60]!r} is unknown; expected one of {known}")
    return entry.make(name, settings)


def remarks(policy: TracePolicy, settings: Mapping[str, float]) -> list[str]:
    """One line for each setting that was given and has no effect on a policy."""
    tell = getattr(policy, "remarks", None)
    return list(tell(settings)) if tell is not None else []
