"""The catalogue of all metrics: name, kind, labels, buckets and meaning; docs/metrics.md shows it.

Labels are sites, partitions, tenants, and words of fixed lists: never a user, a job or a node. So
the number of series depends on the configuration alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

QUICK_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ANSWER_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LONG_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86_400.0, 7 * 86_400.0)
LEAVING_S: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class MetricType(Enum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(NamedTuple):
    """One metric; of a histogram ``buckets`` are upper bounds, without the infinite one."""

    name: str
    kind: MetricType
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    of_standby: bool = False  # a standby shows it, too


class Distribution:
    """The observations of one histogram's series."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0


def _counter(name: str, about: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"federator_{name}", MetricType.COUNTER, about, labels)


def _gauge(name: str, about: str, *labels: str, of_standby: bool = False) -> MetricSpec:
    return MetricSpec(f"federator_{name}", MetricType.GAUGE, about, labels, of_standby=of_standby)


def _histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> MetricSpec:
    return MetricSpec(f"federator_{name}", MetricType.HISTOGRAM, about, labels, buckets)


CATALOGUE: Final = (
    # ---- the process ----
    _gauge("build_info", "Always 1; the daemon's release", "version", of_standby=True),
    _gauge(
        "federation_info",
        "Always 1; as configured. store: sqlite, redis or memory",
        "federation",
        "policy",
        "store",
    ),
    _gauge("leader", "1: this daemon leads; 0: it stands by", of_standby=True),
    _gauge(
        "standby_up_to_date",
        "1: this standby has read all of the log; only of a standby",
        of_standby=True,
    ),
    _gauge("epoch", "The term of the daemon that leads"),
    _gauge("term_start_timestamp_seconds", "Unix time at which this term began"),
    _gauge("collect_seconds", "Time that the loop gave the scrape before"),
    # ---- the loop and the log ----
    _histogram(
        "turn_seconds",
        "A turn of the loop: decisions, commit of the log, orders. Nothing else happens meanwhile",
        QUICK_S,
    ),
    _counter("observations_total", "Observations decided on", "kind"),
    _histogram("log_commit_seconds", "One durable append to the log", QUICK_S),
    _counter("log_records_total", "Records appended to the log", "kind"),
    _gauge("log_tail_records", "Records in the log since its snapshot"),
    _gauge(
        "history_lag_seconds",
        "Age of the history's newest record, seen from the log's newest; 0: up to date, or none",
    ),
    _gauge(
        "doctor_findings",
        "Findings of federator doctor, of jobs and quotas, looked for once an hour",
        "kind",
    ),
    _gauge(
        "site_effective_training_ratio",
        "GPU time of steps that were kept, of all whose class is known, in the last 28 whole days",
        "site",
    ),
    # ---- submissions ----
    _counter("submissions_total", "Submissions acknowledged; an array is one"),
    _counter("submissions_refused_total", "Submissions that no site can ever run"),
    _counter("submitted_workloads_total", "Workloads of these submissions"),
    _counter(
        "denied_calls_total",
        "Calls that were denied; site: who vouched for the user; empty: the daemon's host",
        "site",
    ),
    # ---- passes ----
    _histogram("pass_seconds", "A scheduling pass, first to last question", QUICK_S),
    _counter("pass_rounds_total", "Rounds of questions to sites, of ended passes"),
    _gauge("pass_start_timestamp_seconds", "Start of the last pass; 0: none yet"),
    _counter("bid_requests_total", "Workloads that a site was asked to bid for", "site"),
    _counter("bids_total", "Bids that a site made", "site"),
    _histogram("bid_seconds", "Answer time of a site in a pass", ANSWER_S, "site"),
    _counter("bid_timeouts_total", "Questions that a site answered late or never", "site"),
    _counter("refusals_total", "Refusals by sites in passes, by first reason", "reason"),
    # ---- workloads ----
    _gauge("workloads", "Workloads that have not ended, by state", "state"),
    _gauge(
        "pending_workloads",
        "Pending workloads by main reason; not_examined: the next scrapes will tell",
        "reason",
    ),
    _gauge("oldest_wait_seconds", "Age in the queue of the oldest pending workload"),
    _counter("start_estimates_judged_total", "Estimated starts whose outcome is known"),
    _gauge(
        "start_estimates_hit_ratio",
        "Of the latest 500 of them that were shown, those that held; no sample where none was",
    ),
    _gauge(
        "start_estimates_class_hit_ratio",
        "The same of jobs that ask for so many GPUs (1, or 5-8), within or over quota",
        "gpus",
        "quota",
    ),
    _gauge(
        "start_estimates_class_latest",
        "The estimates that this ratio is of, the latest 100 at most",
        "gpus",
        "quota",
    ),
    _counter("awards_total", "Awards; quota: within or over that of its tenant", "site", "quota"),
    _histogram(
        "wait_seconds",
        "From submission, or since it may start, to the first award",
        LONG_S,
        "quota",
    ),
    _counter("launches_accepted_total", "Attempts that a site has submitted", "site"),
    _counter("launches_declined_total", "Attempts that a site declined", "site"),
    _counter("starts_total", "Attempts that began to run", "site"),
    _histogram("launch_seconds", "From award to start of an attempt", LONG_S),
    _counter("steps_total", "Steps of workloads, docs/lifecycle.md", "step"),
    _counter(
        "node_failures_total",
        "Attempts that failed nodes ended, also those that Slurm has put back itself",
    ),
    _counter("ended_workloads_total", "Workloads that ended, by last site", "site", "state"),
    # ---- evictions and claims ----
    _counter("evictions_total", "Victims told to leave, within or beyond the budget", "budget"),
    _counter("evicted_gpus_total", "GPUs of these victims", "budget"),
    _histogram("eviction_seconds", "From notice until the victim is gone", LEAVING_S),
    _counter(
        "lost_gpu_seconds_total",
        "GPU-seconds of a tenant's work destroyed by evictions since the log began",
        "tenant",
    ),
    _gauge("eviction_budget_gpus", "GPUs that may be evicted in any window"),
    _gauge("eviction_budget_left_gpus", "Those of them that may be evicted now"),
    _gauge("claims", "Claims that are open"),
    _gauge("claims_overdue", "Open claims whose first predicted start is past"),
    _gauge("claimed_gpus", "GPUs that open claims name", "site"),
    _counter("claims_made_total", "Claims made; one that moves is the same claim"),
    _counter(
        "claims_ended_total",
        "Claims that ended: kept or late (awarded by, or after, the first predicted start), "
        "broken (given up), withdrawn (its workload left the queue)",
        "outcome",
    ),
    # ---- sites ----
    _gauge("site_up", "1: connected, and its first report is in", "site"),
    _gauge("site_info", "Always 1; slurm: its version", "site", "region", "slurm"),
    _gauge("site_login_node", "Always 1; host: where its agent runs", "site", "host"),
    _gauge(
        "site_sweep_age_seconds",
        "Time since its agent last read its Slurm; since the channel's set-up if it never did",
        "site",
    ),
    _counter("site_connections_total", "Channels that came up", "site"),
    _counter("site_downs_total", "Times that a site went down", "site"),
    _gauge(
        "site_job_ids_went_back_timestamp_seconds",
        "When a site last gave a job id not above one before, as its slurmctld lost its state; "
        "0: that is not known, or no history is kept",
        "site",
    ),
    _gauge("site_drained", "1: drained or cordoned as a whole, or written off", "site"),
    _gauge(
        "gpus",
        "GPUs of a site by use: owner and guest (held by workloads within and over quota), "
        "local (other jobs), free, drained, down",
        "site",
        "use",
    ),
    _gauge(
        "nodes", "Nodes of a site by state; a node in two partitions counts twice", "site", "state"
    ),
    _gauge(
        "partition_gpus",
        "GPUs of a partition: allocated, free, drained or down",
        "site",
        "partition",
        "use",
    ),
    _gauge(
        "partition_gpus_stranded",
        "Free GPUs of a partition that are expected to be of no use to what is usually asked for",
        "site",
        "partition",
    ),
    # ---- tenants ----
    _gauge("tenant_quota_gpus", "GPUs that its quota guarantees; 0: none of its own", "tenant"),
    _gauge("tenant_used_gpus", "GPUs that it holds itself", "tenant"),
    _gauge("tenant_borrowed_gpus", "Those that it holds over quota", "tenant"),
    _gauge("tenant_lent_gpus", "GPUs of its idle quota that others use", "tenant"),
    _gauge("tenant_usage_ratio", "Its part of the use that credit counts", "tenant"),
    _gauge("tenant_pending_workloads", "Its own pending workloads", "tenant"),
    _gauge("tenant_demand_gpus", "GPUs that these ask for", "tenant"),
    _counter(
        "tenant_started_gpus_total",
        "GPUs of started attempts, at its home or elsewhere; only of tenants that have a home",
        "tenant",
        "at",
    ),
    # ---- data sets ----
    _gauge(
        "data_replicas",
        "Replicas in a storage domain, by state: ready, copying, lost or retired",
        "domain",
        "state",
    ),
    _gauge(
        "copies", "Copies that are being made, by phase: none, copying, checking, failed", "phase"
    ),
    _gauge("data_plan_in_force", "1 while a plan of where data should be has not expired, else 0"),
    _gauge("data_plan_timestamp_seconds", "When the latest such plan was made; 0: there was none"),
    _gauge("data_moved_bytes", "Sizes of the copies that plans have begun in the last 24 hours"),
    _gauge("data_move_quota_bytes", "The most that they may begin in any 24 hours"),
    _counter(
        "copied_bytes_total",
        "Sizes of the data sets that were copied from one storage domain to another",
        "from",
        "to",
    ),
    _counter("copy_failures_total", "Tries at a copy that failed"),
    _counter(
        "copies_ended_total",
        "Copies that ended: done; given_up (it failed, and no job wants it any more); withdrawn "
        "(somebody took it out, or found that it was not needed)",
        "outcome",
    ),
    _counter(
        "data_starts_total",
        "Attempts that began to run: all of their data sets had been there when the workload was "
        "submitted (there), one was copied there since (staged), or they had none (none)",
        "data",
    ),
    _counter("data_started_gpus_total", "GPUs of these attempts", "data"),
    _counter(
        "data_candidate_regions_total",
        "Attempts with data sets that began to run, by how many regions had all of these then",
        "regions",
    ),
    _counter(
        "data_ended_workloads_total",
        "Workloads with data sets that ended after they had run, by how many regions they ran in",
        "regions",
    ),
    # ---- lending ----
    _gauge("lending_enabled", "1: policy.lending is on or advisory"),
    _gauge("lending_plan_in_force", "1: a lending plan is in force"),
    _gauge("lending_plan_timestamp_seconds", "Unix time of the last plan; 0: none"),
)

BY_NAME: Final[Mapping[str, MetricSpec]] = MappingProxyType({m.name: m for m in CATALOGUE})

Labels = Sequence[str]


class Collected(NamedTuple):
    """The values of one metric at an instant, by the values of its labels.

    Of a histogram a value is the number of observations in each bucket, and their sum.
    """

    name: str
    series: list[tuple[Labels, float]]
    distributions: Sequence[tuple[Labels, list[int], float]] = ()


def family(name: str, series: Iterable[tuple[Labels, float]]) -> Collected:
    """A counter or gauge of the catalogue with its values."""
    return Collected(name, list(series))


def gauge(name: str, value: float) -> Collected:
    """A gauge without labels."""
    return Collected(name, [((), value)])


def histogram(name: str, series: Mapping[tuple[str, ...], Distribution]) -> Collected:
    """A histogram of the catalogue with its values."""
    seen = [(labels, list(one.counts), one.total) for labels, one in series.items()]
    return Collected(name, [], seen)


def as_metrics(found: Iterable[Collected]) -> list[Metric]:
    """The values as the client library writes them; it takes longer than collecting them."""
    return [_as_metric(BY_NAME[each.name], each) for each in found]


def _as_metric(spec: MetricSpec, found: Collected) -> Metric:
    made: CounterMetricFamily | GaugeMetricFamily
    if spec.kind is MetricType.HISTOGRAM:
        return _as_histogram(spec, found)
    if spec.kind is MetricType.COUNTER:
        made = CounterMetricFamily(spec.name, spec.about, labels=spec.labels)
    else:
        made = GaugeMetricFamily(spec.name, spec.about, labels=spec.labels)
    for labels, value in found.series:
        made.add_metric(labels, value)
    return made


def _as_histogram(spec: MetricSpec, found: Collected) -> Metric:
    made = HistogramMetricFamily(spec.name, spec.about, labels=spec.labels)
    bounds = (*map(repr, spec.buckets), "+Inf")
    for labels, counts, total in found.distributions:
        below = accumulate(map(float, counts))
        made.add_metric(labels, list(zip(bounds, below, strict=True)), total)
    return made
