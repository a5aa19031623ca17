"""A dump, a federation.yaml and sizes make a scenario; its lives are put beside what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.config import FederationConfig, load_config
from federator.errors import InvalidRequest
from federator.model.workload import Job, SiteName, TenantName
from federator.sim.importers.whatif_workload import PastWorkload
from federator.sim.report.before_after import compare
from federator.sim.scenario import AttemptInterval, JobTrace, Scenario
from federator.sim.trace import LeftOutReason, ReplayOptions, TracePool
from federator.sim.whatif import Dump, WhatIf, ask, live_through, rules_of
from tests.unit.sim.importers.test_sacct import CLUSTERS, DATA

CONFIG = """\
federation: demo
store: "memory:"
policy: {launch_lease_s: 30, preemption: {budget_frac: 0.25, cooldown_s: 60}}
regions: {west: {shared: /shared}}
gpus: {a100: {mem_gib: 80, nvlink: true, weight: 2}, h100: {mem_gib: 96}}
sites:
  alpha: {region: west, partitions: [fed, night], command: ["true"]}
  beta: {region: west, partitions: [fed], command: ["true"]}
  gamma: {region: west, partitions: [fed], command: ["true"]}
tenants:
  Vision: {priority: 2, quota: {gpus: 8}}
  speech: {priority: 3, limit: {gpus: 4}}
"""
HEAD = "JobID|Cluster|Account|User|Partition|State|Submit|Eligible|Start|ElapsedRaw|TimelimitRaw|"
HEAD += "ReqTRES|AllocTRES|NNodes|NCPUS\n"


def pool(name: str, nodes: int, gpus_per_node: int, gpu_type: str = "") -> TracePool:
    return TracePool(name=name, nodes=nodes, gpus_per_node=gpus_per_node, gpu_type=gpu_type)


POOLS = (pool("alpha", 2, 8), pool("beta", 4, 4))


@pytest.fixture
def config(tmp_path: Path) -> FederationConfig:
    (tmp_path / "federation.yaml").write_text(CONFIG)
    return load_config(tmp_path / "federation.yaml")


def row(job_id: str = "7", **more: str | int) -> str:
    """A line of a dump: a job of 2 GPUs on one node of alpha, from 110 to 170."""
    fields = {
        "job_id": job_id,
        "cluster": "alpha",
        "account": "vision",
        "user": "ann",
        "partition": "gpu",
        "state": "COMPLETED",
        "submit": 100,
        "eligible": 100,
        "start": 110,
        "elapsed": 60,
        "limit": 5,
        "asked": "gres/gpu=2",
        "given": "gres/gpu=2",
        "nodes": 1,
        "cpus": 4,
    } | more
    return "|".join(map(str, fields.values())) + "\n"


class Asker:
    """Asks what-if about dumps written for a test."""

    def __init__(self, folder: Path, config: FederationConfig) -> None:
        self.folder, self.config = folder, config

    def dump(self, *rows: str, site: str | None = None, head: str = HEAD) -> Dump:
        path = self.folder / f"{len(list(self.folder.iterdir()))}.txt"
        path.write_text(head + "".join(rows))
        return Dump(path=path, site=None if site is None else SiteName(site))

    def __call__(self, *rows: str, pools: Sequence[TracePool] = POOLS) -> WhatIf:
        return ask([self.dump(*rows)], pools, self.config)

    def jobs(self, *rows: str, pools: Sequence[TracePool] = POOLS) -> list[tuple[Job, ...]]:
        return [workload.jobs for workload in self(*rows, pools=pools).history.workloads]

    def why_not(self, *rows: str, pools: Sequence[TracePool] = POOLS) -> list[LeftOutReason]:
        """Reasons for all but a sound job, that is always there."""
        found = self(row("1"), *rows, pools=pools)
        assert [workload.job_id for workload in found.history.workloads] == ["1"]
        return [job.reason for job in found.history.left_out]


@pytest.fixture
def asker(tmp_path: Path, config: FederationConfig) -> Asker:
    folder = tmp_path / "dumps"
    folder.mkdir()
    return Asker(folder, config)


# ---- from a history to a scenario ----


def test_a_job_of_the_dump_is_a_submission_with_its_shape_time_and_limit(asker: Asker) -> None:
    found = asker(row(asked="", given="gres/gpu=8", nodes=2), row("8", submit=90, start=500))
    assert found.begin_s == 100
    first, second = found.scenario.arrivals
    assert (first.at_s, first.duration_s) == (0, 60)
    draft = first.draft
    assert (draft.name, draft.user, draft.tenant, draft.priority) == ("7", "ann", "Vision", 2)
    assert draft.jobs == (Job(name="", nodes=2, gpus_per_node=4),)
    assert draft.time_limit_s == 300.0
    assert second.at_s == 0  # from when it was eligible, not from its submission
    assert [w.came_s for w in found.history.workloads] == [100, 100]


def test_a_limit_never_cuts_a_job_short_that_ran_longer(asker: Asker) -> None:
    draft = asker(row(elapsed=400)).scenario.arrivals[0].draft
    assert draft.time_limit_s == 400.0
    assert asker(row(limit="UNLIMITED")).scenario.arrivals[0].draft.time_limit_s == inf


def test_shapes_that_are_uneven_leave_the_nodes_to_the_site(asker: Asker) -> None:
    assert asker.jobs(row(given="gres/gpu=7", nodes=2)) == [(Job(name="", gpus=7),)]
    assert asker.jobs(row(given="gres/gpu=7", nodes="")) == [(Job(name="", gpus=7),)]


def test_a_het_job_is_one_workload_of_its_components_with_gpus(asker: Asker) -> None:
    parts = (
        row("7+0", given="gres/gpu=4"),
        row("7+1", given="cpu=4", partition="cpu"),
        row("7+2", given="gres/gpu=1", elapsed=70),
    )
    found = asker(*parts)
    (workload,) = found.history.workloads
    assert (workload.job_id, workload.gpus, workload.duration_s) == ("7", 5, 70)
    assert [job.gpus_per_node for job in workload.jobs] == [4, 1]
    assert found.history.left_out == ()
    waiting = row("7+2", given="", state="PENDING")
    assert asker.why_not(*parts[:2], waiting)[-1] is LeftOutReason.NEVER_RAN


def test_a_type_of_gpu_counts_only_where_sizes_tell_of_types(asker: Asker) -> None:
    typed = row(asked="gres/gpu=2,gres/gpu:h100=2")
    assert asker.jobs(typed)[0][0].gpu_types == ()
    sizes = (pool("alpha", 2, 8, "a100"), pool("beta", 4, 4, "h100"))
    assert asker.jobs(typed, pools=sizes)[0][0].gpu_types == ("h100",)
    free = ask([asker.dump(typed)], sizes, asker.config, any_gpu=True)
    assert free.history.workloads[0].jobs[0].gpu_types == ()
    big = row(asked="gres/gpu:h100=8", given="gres/gpu=8")
    assert asker.why_not(big, pools=sizes) == [LeftOutReason.NO_SITE]


def test_what_says_nothing_is_left_out_with_the_reason(asker: Asker) -> None:
    assert asker.why_not(
        row(state="RUNNING"),
        row("8", given="cpu=4"),
        row("9", cluster="delta"),
        row("10", cluster="gamma"),
        row("11", start="Unknown"),
        row("12", submit="Unknown"),
        row("13", given="gres/gpu=9"),
        row("14", given="gres/gpu=17", nodes=3),
        row("15", account="speech", given="gres/gpu=5"),
        row("16", given="", state="CANCELLED"),
    ) == [
        LeftOutReason.NEVER_RAN,
        LeftOutReason.NO_GPU,
        LeftOutReason.OTHER_SITE,
        LeftOutReason.OTHER_SITE,
        LeftOutReason.NO_START,
        LeftOutReason.NO_SUBMISSION,
        LeftOutReason.NO_SITE,
        LeftOutReason.NO_SITE,
        LeftOutReason.NEVER_RAN,
        LeftOutReason.OVER_LIMIT,
    ]


def test_sizes_by_partition_take_in_the_jobs_of_these_alone(asker: Asker) -> None:
    own = (pool("alpha/gpu", 1, 8), pool("beta", 4, 4))
    assert asker.why_not(row(partition="big"), pools=own) == [LeftOutReason.OTHER_POOL]
    both = (*own, pool("alpha/big", 3, 4))
    found = asker(row(), row("8", partition="big"), pools=both)
    alpha, beta = found.scenario.sites
    assert (alpha.gpus, alpha.partitions) == (20, ("gpu", "big"))
    assert (beta.gpus, beta.partitions) == (16, ("fed",))
    rest = (pool("alpha", 1, 8), pool("alpha/big", 3, 4))
    found = asker(row(), row("8", partition="big"), row("9", partition="odd"), pools=rest)
    assert len(found.history.workloads) == 3
    assert found.scenario.sites[0].partitions == ("fed", "night", "big")


def test_nodes_are_what_sizes_and_federation_yaml_say_of_them(asker: Asker) -> None:
    found = asker(row(), pools=(pool("alpha", 17, 8, "a100"), pool("gamma", 1, 2, "odd")))
    alpha, gamma = found.scenario.sites
    assert [site.name for site in found.scenario.sites] == ["alpha", "gamma"]
    node = alpha.nodes[0]
    assert (node.gpus, node.gpu_type, node.gpu_mem_gib, node.nvlink) == (8, "a100", 80, True)
    assert node.gpu_weight == 2
    assert Counter(node.switch for node in alpha.nodes) == {"alpha-r0": 16, "alpha-r1": 1}
    assert (gamma.nodes[0].gpu_type, gamma.nodes[0].gpu_mem_gib) == ("odd", 0)


def test_accounts_that_are_no_tenants_come_last_and_are_named(asker: Asker) -> None:
    found = asker(row(), row("8", account="guests"), row("9", account=""))
    assert [a.draft.tenant for a in found.scenario.arrivals] == ["Vision", "guests", "unknown"]
    assert found.strangers == ("guests", "unknown")
    last = found.scenario.tenants[-1]
    assert (last.name, last.priority, last.quota) == (TenantName("unknown"), 7, None)


def test_overlapping_dumps_of_a_cluster_count_each_job_once(asker: Asker) -> None:
    one = asker.dump(row(), row("8"))
    two = asker.dump(row("8"), row("9"))
    found = ask([one, two], POOLS, asker.config)
    assert sorted(w.job_id for w in found.history.workloads) == ["7", "8", "9"]


@pytest.mark.parametrize("turned", [False, True])
def test_a_job_that_ran_in_one_dump_and_is_over_in_the_other_is_one(
    asker: Asker, turned: bool
) -> None:
    waited: dict[str, str | int] = {
        "state": "PENDING",
        "start": "Unknown",
        "elapsed": 0,
        "given": "",
    }
    early = asker.dump(
        row("7", state="RUNNING", elapsed=20),
        row("8", **waited),
        row("9+0", state="RUNNING", elapsed=20),
        row("9+1", state="RUNNING", elapsed=20),
    )
    late = asker.dump(row("9+1"), row("9+0"), row("8", start=300), row("7"))
    dumps = [late, early] if turned else [early, late]
    history = ask(dumps, POOLS, asker.config).history
    assert history.left_out == ()
    found = [(w.job_id, w.start_s, w.duration_s, len(w.jobs)) for w in history.workloads]
    assert found == [("7", 110, 60, 1), ("8", 300, 60, 1), ("9", 110, 60, 2)]


# ---- whose dump it is ----


def test_a_dump_that_does_not_say_its_cluster_is_of_the_site_that_is_named(asker: Asker) -> None:
    head = HEAD.replace("Cluster|", "")
    line = row().replace("|alpha", "")
    found = ask([asker.dump(line, site="beta", head=head)], POOLS, asker.config)
    assert found.history.workloads[0].site == "beta"
    with pytest.raises(InvalidRequest, match=r"does not say its cluster of .*--sacct SITE="):
        ask([asker.dump(line, head=head)], POOLS, asker.config)


def test_clusters_that_are_no_sites_are_named(asker: Asker) -> None:
    with pytest.raises(InvalidRequest, match=r"its clusters \('delta'\) are no sites of fed.*alph"):
        asker(row(cluster="delta"))


def test_one_site_takes_a_dump_that_says_nothing(tmp_path: Path, asker: Asker) -> None:
    lines = [line for line in CONFIG.splitlines() if not line.startswith(("  beta", "  gamma"))]
    (tmp_path / "one.yaml").write_text("\n".join(lines))
    asker.config = load_config(tmp_path / "one.yaml")
    head, line = HEAD.replace("Cluster|", ""), row().replace("|alpha", "")
    found = ask([asker.dump(line, head=head)], POOLS[:1], asker.config)
    assert found.history.workloads[0].site == "alpha"


def test_sizes_of_no_site_and_dumps_without_a_job_are_refused(asker: Asker) -> None:
    with pytest.raises(InvalidRequest, match=r"--pools: 'delta/x': expected SITE or SITE/PART"):
        asker(row(), pools=(pool("delta/x", 1, 1),))
    with pytest.raises(InvalidRequest, match="no job is left to simulate: asks for no GPU"):
        asker(row(given="cpu=1"))
    with pytest.raises(InvalidRequest, match="no job is left to simulate: it holds no job"):
        asker()
    with pytest.raises(InvalidRequest, match=r"1: Start: expected a column of this name .* sacct"):
        ask([asker.dump(head=HEAD.replace("Start|", ""))], POOLS, asker.config)


# ---- before and after ----


def simulated(found: WhatIf, config: FederationConfig) -> list[JobTrace]:
    return live_through(found.scenario, config, rules_of(config), ReplayOptions(audit=True))


def on_idle_beta(scenario: Scenario) -> list[JobTrace]:
    """Everything starts at once on alpha, is evicted after 5 s, and starts again on beta."""
    return [
        JobTrace(
            first_start_s=a.at_s,
            start_s=a.at_s + 50,
            end_s=a.at_s + 50 + a.duration_s,
            site=SiteName("beta"),
            preemptions=1,
            within_quota=True,
            stays=[
                AttemptInterval(SiteName("alpha"), a.at_s, a.at_s + 5),
                AttemptInterval(SiteName("beta"), a.at_s + 50, a.at_s + 50 + a.duration_s),
            ],
        )
        for a in scenario.arrivals
    ]


def test_before_and_after_worked_by_hand(asker: Asker) -> None:
    found = asker(
        row(),
        row("8", account="guests", start=160, elapsed=140, given="gres/gpu=4"),
        row("9", state="PREEMPTED", elapsed=10, start=120),
        row("9", submit=130, eligible=130, start=140, elapsed=20),
    )
    result = compare(found, on_idle_beta(found.scenario), "mast", 3)
    assert (result.begin_s, result.end_s, result.seed) == (100, 300, 3)
    whole = result.in_all
    assert (whole.gpus, whole.jobs, whole.start_later, whole.start_earlier) == (32, 3, 0, 3)
    assert msgspec.to_builtins(whole.before.wait_s) == {
        "mean": 30.0,
        "median": 20.0,
        "p95": 60,
        "max": 60,
    }
    assert whole.after.wait_s is not None
    assert whole.after.wait_s.max == 0
    assert (whole.before.preemptions, whole.after.preemptions) == (1, 3)
    held_before = 2 * 60 + 4 * 140 + 2 * (10 + 20)
    on_beta, on_alpha = 2 * 60 + 4 * 140 + 2 * 20, (2 + 4 + 2) * 5
    assert whole.before.allocation_frac == pytest.approx(held_before / (32 * 200))
    assert whole.after.allocation_frac == pytest.approx((on_beta + on_alpha) / (32 * 200))
    alpha, beta = result.sites
    assert (alpha.jobs, alpha.jobs_here, beta.jobs, beta.jobs_here) == (3, 0, 0, 3)
    assert beta.before.allocation_frac == 0
    assert alpha.after.allocation_frac == pytest.approx(on_alpha / (16 * 200))
    assert beta.after.allocation_frac == pytest.approx(on_beta / (16 * 200))
    assert beta.before.wait_s is None
    assert (alpha.peak_before_gpus, beta.peak_before_gpus) == (6, 0)  # 2 + 4, then 4 + 2
    assert [(t.name, t.jobs) for t in result.tenants] == [("Vision", 2), ("guests", 1)]


def test_what_runs_beyond_the_span_counts_only_inside_it(asker: Asker) -> None:
    stay = AttemptInterval(SiteName("beta"), 40, 100)
    late = JobTrace(first_start_s=40, start_s=40, end_s=100, site=stay.site, stays=[stay])
    result = compare(asker(row()), [late], "mast", 0)
    assert result.end_s == 170
    assert result.in_all.after.allocation_frac == pytest.approx(2 * 30 / (32 * 70))
    assert (result.in_all.start_later, result.in_all.start_earlier) == (1, 0)


def test_what_no_site_takes_counts_nowhere_else(asker: Asker) -> None:
    result = compare(asker(row()), [JobTrace()], "mast", 0)
    assert (result.in_all.jobs, result.in_all.never_started) == (0, 1)
    assert result.in_all.before.wait_s is None
    assert result.in_all.before.allocation_frac == 0


def test_the_federation_itself_sends_a_queue_where_there_is_room(
    asker: Asker, config: FederationConfig
) -> None:
    """Two jobs of all of alpha, one after the other there, while beta is idle."""
    wide: dict[str, Any] = {"given": "gres/gpu=8", "nodes": 2, "elapsed": 60}
    found = asker(
        row(**wide, start=100),
        row("8", **wide, submit=101, eligible=101, start=160),
        pools=(pool("alpha", 2, 4), pool("beta", 2, 4)),
    )
    lives = simulated(found, config)
    assert sorted(life.site for life in lives) == ["alpha", "beta"]
    result = compare(found, lives, "mast", 0)
    assert result.in_all.before.wait_s is not None
    assert result.in_all.after.wait_s is not None
    assert (result.in_all.before.wait_s.max, result.in_all.after.wait_s.max) == (59, 0)
    assert result.in_all.start_earlier == 1


def test_rules_are_those_of_federation_yaml(config: FederationConfig) -> None:
    rules = rules_of(config)
    assert (rules.launch_lease_s, rules.preempt_gpus) == (30.0, 0.0)
    evicting = rules_of(config, 64)
    assert (evicting.preempt_gpus, evicting.cooldown_s) == (16.0, 60.0)


def test_real_dumps_of_three_clusters_are_lived_through(config: FederationConfig) -> None:
    dumps = [Dump(path=DATA / release / "jobs.json.gz") for release in CLUSTERS]
    pools = [pool(name, 4, 4, "a100") for name in CLUSTERS.values()]
    found = ask(dumps, pools, config)
    workloads: Sequence[PastWorkload] = found.history.workloads
    assert Counter(w.site for w in workloads) == {"alpha": 26, "beta": 26, "gamma": 26}
    assert Counter(job.reason for job in found.history.left_out) == {
        LeftOutReason.NO_GPU: 3,
        LeftOutReason.NEVER_RAN: 15,
        LeftOutReason.OVER_LIMIT: 3,
    }
    result = compare(found, simulated(found, config), "mast", 0)
    assert (result.in_all.jobs, result.in_all.before.preemptions) == (78, 3)
    assert result.in_all.never_started == 0


def test_sites_that_are_only_watched_take_jobs_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "federation.yaml").write_text(
        CONFIG.replace("region: west,", "region: west, mode: advisory,")
    )
    config = load_config(tmp_path / "federation.yaml")
    question = Asker(tmp_path, config)(row())
    lives = live_through(question.scenario, config, rules_of(config), ReplayOptions())
    assert [life.first_start_s for life in lives] == [0.0]
