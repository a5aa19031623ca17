"""The experiments by name; an experiment's code is imported when it is asked for.

To add one: a frozen dataclass of parameters with ``runs`` and ``result`` (see ``Experiment``) in a
module of its own, and a row here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from federator.errors import InvalidRequest
from federator.sim.experiments.base import TRACE_FIELD, Experiment
from federator.sim.setting_names import unknown
from federator.sim.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentEntry:
    """Where an experiment is found, and how it is made.

    ``quick``: parameters for a look at it, in seconds.
    """

    about: str
    module: str
    kind: str
    quick: Mapping[str, Any] = field(default_factory=dict)

    @property
    def class_(self) -> Any:
        return getattr(importlib.import_module(self.module), self.kind)

    def make(
        self, settings: Mapping[str, str], *, quick: bool = False, trace: Trace | None = None
    ) -> Experiment:
        """The experiment with these parameters.

        Args:
            settings: parameters by name, as text.
            quick: start from the quick parameters.
            trace: the jobs to use.

        Raises:
            InvalidRequest: it knows no such parameter, cannot use the value, or uses no trace.
        """
        known = {f.name: f for f in fields(self.class_) if f.name != TRACE_FIELD}
        chosen: dict[str, Any] = dict(self.quick) if quick else {}
        for name, text in settings.items():
            if name not in known:
                raise InvalidRequest(unknown(name, "this experiment", known))
            chosen[name] = _value(known[name], text)
        if trace is not None:
            if all(f.name != TRACE_FIELD for f in fields(self.class_)):
                raise InvalidRequest("--trace: this experiment makes its own jobs; leave it out")
            chosen[TRACE_FIELD] = trace
        made: Experiment = self.class_(**chosen)
        return made


def _value(parameter: Field[Any], text: str) -> Any:
    """What a text means for a parameter, by the type of its default."""
    default = parameter.default
    if isinstance(default, tuple):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise InvalidRequest(f"--set: {parameter.name}: expected at least one value")
        values = tuple(_one(parameter, part, type(default[0])) for part in parts)
        if len(set(values)) < len(values):
            raise InvalidRequest(f"--set: {parameter.name}: expected each value once")
        return values
    return _one(parameter, text.strip(), type(default))


def _one(parameter: Field[Any], text: str, kind: type) -> Any:
    if kind is str:
        return text
    least, most = parameter.metadata["least"], parameter.metadata["most"]
    try:
        value = kind(text)
        if least <= value <= most:
            return value
    except ValueError:
        pass
    what = "a whole number" if kind is int else "a number"
    raise InvalidRequest(
        f"--set: {parameter.name}: expected {what} from {least:g} to {most:g}, found {text[:60]!r}"
    )


def _entry(about: str, module: str, kind: str, **quick: Any) -> ExperimentEntry:
    module = f"federator.sim.experiments.{module}"
    return ExperimentEntry(about=about, module=module, kind=kind, quick=quick)


EXPERIMENTS: Final[Mapping[str, ExperimentEntry]] = MappingProxyType(
    {
        "mast-slo": _entry(
            "promised starts and GPUs in use, under four routers",
            "mast_slo",
            "MastSloExperiment",
            draws=1,
            loads=(0.8, 1.2),
            sites=3,
            nodes=16,
            tenants=7,
            days=0.5,
            warm_up_days=0.25,
        ),
        "sharing": _entry(
            "speed-up and slow-down of policies that share, beside FCFS",
            "sharing",
            "SharingExperiment",
            draws=1,
            quantiles=10,
        ),
        "oracle": _entry(
            "how far policies are from the best timetable, on small cases",
            "oracle",
            "OracleExperiment",
            cases=2,
            jobs=20,
        ),
        "fragmentation": _entry(
            "does it help to count what a placement strands?",
            "fragmentation",
            "FragmentationExperiment",
            draws=1,
            jobs=400,
            steps=20,
        ),
        "joint": _entry(
            "what would it gain to place the jobs of a round together?",
            "joint",
            "JointExperiment",
            draws=1,
            jobs=100,
        ),
        "defragmentation": _entry(
            "do gangs start sooner when small jobs move?",
            "defragmentation",
            "DefragmentationExperiment",
            loads=(1.0,),
            days=0.5,
            warm_up_days=0.25,
            nodes=16,
        ),
        "preemption-budget": _entry(
            "what evictions buy, and what they cost",
            "preemption_budget",
            "PreemptionBudgetExperiment",
            draws=1,
            loads=(1.2,),
            sites=3,
            nodes=16,
            tenants=7,
            days=0.5,
            warm_up_days=0.25,
        ),
        "durations": _entry(
            "how well run times are predicted from runs before",
            "durations",
            "DurationsExperiment",
            most_jobs=2000,
        ),
        "forecasts": _entry(
            "how often forecasts of arrivals are right, on weeks they did not see",
            "forecasts",
            "ForecastsExperiment",
            learn_days=1.5,
        ),
        "starts": _entry(
            "how well the starts of jobs that wait are estimated",
            "starts",
            "StartsExperiment",
            most_jobs=2000,
            loads=(2.0,),
        ),
        "owners": _entry(
            "do owners who lend have their GPUs back in time?",
            "owners",
            "OwnersExperiment",
            most_jobs=2000,
        ),
        "cells": _entry(
            "cells that tenants own (HiveD) beside the federation: harm and GPUs in use",
            "cells",
            "CellsExperiment",
            most_jobs=2000,
        ),
        "elastic": _entry(
            "do elastic jobs gain, and does a rigid neighbour lose?",
            "elastic",
            "ElasticExperiment",
            fracs=(0.3,),
            draws=1,
            sites=2,
            nodes=16,
            days=0.5,
            most_jobs=2000,
        ),
        "tetris": _entry(
            "where tables live: by hand, by the paper's two versions, and by ours",
            "tetris",
            "TetrisExperiment",
            tables=200,
            regions=5,
            jobs=100,
            days=3,
            draws=1,
        ),
        "scale": _entry(
            "CPU time of decisions as sites, GPUs, queue and submissions grow",
            "scale",
            "ScaleExperiment",
            sites=(1, 4, 16),
            gpus=(256, 1024, 4096),
            pending=(50, 200, 800),
            per_s=(1.0, 50.0),
            base_sites=4,
            base_gpus=1024,
            base_pending=200,
            passes=3,
            tenants=14,
        ),
    }
)


def experiment_entry(name: str) -> ExperimentEntry:
    """The experiment of this name.

    Raises:
        InvalidRequest: there is none.
    """
    entry = EXPERIMENTS.get(name)
    if entry is None:
        known = ", ".join(EXPERIMENTS)
        raise InvalidRequest(f"no experiment {name[:60]!r}; expected one of {known}")
    return entry
