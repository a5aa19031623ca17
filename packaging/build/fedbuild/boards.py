"""The dashboards for Grafana as values; ``dashboards`` writes them."""

from __future__ import annotations

from typing import Final

from fedbuild.data_board import DATA
from fedbuild.panels import Board, Panel, Query, by_kind, by_tenant, one, quantile, rate, times

FLEET: Final = Board(
    "federator-fleet",
    "Federator: fleet and queue",
    (
        one("Leaders", "1: one daemon leads.", "short", "sum(federator_leader)"),
        one("Sites up", "Sites that take part.", "short", "sum(federator_site_up)"),
        one("GPUs", "GPUs of all sites.", "short", "sum(federator_gpus)"),
        one("Free GPUs", "GPUs that nobody uses.", "short", 'sum(federator_gpus{use="free"})'),
        one(
            "Pending",
            "Workloads in the queue.",
            "short",
            'sum(federator_workloads{state="PENDING"})',
        ),
        one(
            "Oldest wait",
            "Age of the oldest pending workload.",
            "s",
            "max(federator_oldest_wait_seconds)",
        ),
        Panel(
            "GPUs by use",
            "Owners are within quota, guests over quota, local jobs not the federation's.",
            "short",
            (Query("sum by (use) (federator_gpus)", "{{use}}"),),
            stacked=True,
        ),
        Panel(
            "Workloads by state",
            "Workloads that have not ended.",
            "short",
            (Query("sum by (state) (federator_workloads)", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Pending by reason",
            "The main reason of each pending workload; docs/reasons.md explains the codes.",
            "short",
            (Query("sum by (reason) (federator_pending_workloads) > 0", "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Wait until the first award",
            "95 % of workloads waited no longer.",
            "s",
            (Query(quantile(0.95, "federator_wait_seconds", "quota"), "{{quota}} quota"),),
        ),
        Panel(
            "Estimated starts that held",
            "Of the latest 500, and of each class with 20; nine of ten should (docs/starts.md).",
            "percentunit",
            (
                Query("max(federator_start_estimates_hit_ratio)", "held"),
                Query(
                    "max by (gpus, quota) (federator_start_estimates_class_hit_ratio"
                    " and federator_start_estimates_class_latest >= 20)",
                    "{{gpus}} GPUs, {{quota}} quota",
                ),
            ),
        ),
        Panel(
            "Estimated starts judged",
            "Estimates whose outcome became known, a second.",
            "ops",
            (
                Query(
                    "sum(rate(federator_start_estimates_judged_total[$__rate_interval]))", "judged"
                ),
            ),
        ),
        Panel(
            "Submissions and awards",
            "Workloads a second.",
            "ops",
            (
                Query(
                    "sum(rate(federator_submitted_workloads_total[$__rate_interval]))", "submitted"
                ),
                Query("sum(rate(federator_awards_total[$__rate_interval]))", "awarded"),
                Query("sum(rate(federator_starts_total[$__rate_interval]))", "started"),
                Query(rate("federator_ended_workloads_total", "state"), "{{state}}"),
            ),
        ),
        Panel(
            "Refusals by reason",
            "Answers of sites in passes that are no bid, a second.",
            "ops",
            (Query(f"{rate('federator_refusals_total', 'reason')} > 0", "{{reason}}"),),
        ),
    ),
)

SITES: Final = Board(
    "federator-sites",
    "Federator: sites",
    (
        Panel(
            "Up",
            "1: the site takes part.",
            "short",
            (Query('federator_site_up{site=~"$site"}', "{{site}}"),),
        ),
        Panel(
            "Age of the last sweep",
            "Time since the site's agent last read its Slurm.",
            "s",
            (Query('federator_site_sweep_age_seconds{site=~"$site"}', "{{site}}"),),
        ),
        Panel(
            "GPUs by use",
            "Of the chosen sites.",
            "short",
            (Query('sum by (use) (federator_gpus{site=~"$site"})', "{{use}}"),),
            stacked=True,
        ),
        Panel(
            "Nodes by state",
            "A node in two partitions counts twice.",
            "short",
            (Query('sum by (state) (federator_nodes{site=~"$site"})', "{{state}}"),),
            stacked=True,
        ),
        Panel(
            "Answer time in a pass",
            "95 % of a site's answers came within.",
            "s",
            (Query(quantile(0.95, "federator_bid_seconds", "site"), "{{site}}"),),
        ),
        Panel(
            "Late answers",
            "Questions a second that a site answered late or never.",
            "ops",
            (Query(rate('federator_bid_timeouts_total{site=~"$site"}', "site"), "{{site}}"),),
        ),
        Panel(
            "Launches",
            "Attempts that a site has accepted, and declined, a second.",
            "ops",
            (
                Query(
                    rate('federator_launches_accepted_total{site=~"$site"}', "site"),
                    "{{site}} accepted",
                ),
                Query(
                    rate('federator_launches_declined_total{site=~"$site"}', "site"),
                    "{{site}} declined",
                ),
            ),
        ),
        Panel(
            "Ended workloads",
            "By site and state, a second.",
            "ops",
            (
                Query(
                    rate('federator_ended_workloads_total{site=~"$site"}', "site, state"),
                    "{{site}} {{state}}",
                ),
            ),
        ),
        Panel(
            "Channels that came up",
            "A second; more than a few in an hour is a channel that breaks.",
            "ops",
            (Query(rate('federator_site_connections_total{site=~"$site"}', "site"), "{{site}}"),),
        ),
        Panel(
            "Partitions",
            "GPUs of each partition by use.",
            "short",
            (
                Query(
                    'sum by (partition, use) (federator_partition_gpus{site=~"$site"})',
                    "{{partition}} {{use}}",
                ),
            ),
        ),
        Panel(
            "Training time that was kept",
            "Of the GPU time of which it is known, in the last 28 days; aim at 97 %.",
            "percentunit",
            (Query('federator_site_effective_training_ratio{site=~"$site"}', "{{site}}"),),
        ),
    ),
    ("site", "federator_site_up"),
)

TENANTS: Final = Board(
    "federator-tenants",
    "Federator: tenants, lending and evictions",
    (
        Panel(
            "GPUs in use",
            "That each tenant holds itself.",
            "short",
            (
                Query(
                    'sum by (tenant) (federator_tenant_used_gpus{tenant=~"$tenant"})', "{{tenant}}"
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Quota, use and demand",
            "Of the chosen tenants together.",
            "short",
            (
                Query('sum(federator_tenant_quota_gpus{tenant=~"$tenant"})', "quota"),
                Query('sum(federator_tenant_used_gpus{tenant=~"$tenant"})', "used"),
                Query('sum(federator_tenant_demand_gpus{tenant=~"$tenant"})', "waiting for"),
            ),
        ),
        Panel(
            "Borrowed and lent",
            "GPUs held over quota, and idle quota that others use.",
            "short",
            (
                Query(
                    'sum by (tenant) (federator_tenant_borrowed_gpus{tenant=~"$tenant"}) > 0',
                    "{{tenant}} borrows",
                ),
                Query(
                    'sum by (tenant) (federator_tenant_lent_gpus{tenant=~"$tenant"}) > 0',
                    "{{tenant}} lends",
                ),
            ),
        ),
        by_tenant(
            "Part of all use",
            "Over the time that credit counts.",
            "federator_tenant_usage_ratio",
            "percentunit",
        ),
        by_tenant("Pending workloads", "By tenant.", "federator_tenant_pending_workloads"),
        Panel(
            "Work destroyed",
            "GPUs whose work is lost to evictions, on average.",
            "short",
            (
                Query(
                    rate('federator_lost_gpu_seconds_total{tenant=~"$tenant"}', "tenant"),
                    "{{tenant}}",
                ),
            ),
        ),
        Panel(
            "Evictions",
            "GPUs of victims, a second; within and beyond the budget.",
            "short",
            (Query(rate("federator_evicted_gpus_total", "budget"), "{{budget}}"),),
        ),
        Panel(
            "Eviction budget",
            "GPUs that may be evicted in a window, and now.",
            "short",
            (
                Query("sum(federator_eviction_budget_gpus)", "in a window"),
                Query("sum(federator_eviction_budget_left_gpus)", "now"),
            ),
        ),
        Panel(
            "Time to leave",
            "95 % of victims were gone within.",
            "s",
            (Query(quantile(0.95, "federator_eviction_seconds"), "victims"),),
        ),
        Panel(
            "Claims",
            "Open, overdue; and how they end, a second.",
            "short",
            (
                Query("sum(federator_claims)", "open"),
                Query("sum(federator_claims_overdue)", "overdue"),
                Query(rate("federator_claims_ended_total", "outcome"), "{{outcome}}"),
            ),
        ),
        Panel(
            "Lending plan",
            "1: lending needs plans; 1: one is in force.",
            "short",
            (
                Query("max(federator_lending_enabled)", "enabled"),
                Query("max(federator_lending_plan_in_force)", "in force"),
            ),
        ),
    ),
    ("tenant", "federator_tenant_used_gpus"),
)

DAEMON: Final = Board(
    "federator-daemon",
    "Federator: the daemon",
    (
        one("Leads", "1 at the leader, 0 at a standby.", "short", "max(federator_leader)"),
        one("Epoch", "The term of the leader.", "none", "max(federator_epoch)"),
        one(
            "Standbys",
            "Standbys that are up to date.",
            "short",
            "sum(federator_standby_up_to_date)",
        ),
        one(
            "Log tail",
            "Records since the last snapshot.",
            "short",
            "max(federator_log_tail_records)",
        ),
        one(
            "History behind",
            "Seconds that the history lags.",
            "s",
            "max(federator_history_lag_seconds)",
        ),
        one(
            "Last pass",
            "Time since it began.",
            "s",
            "time() - max(federator_pass_start_timestamp_seconds)",
        ),
        times(
            "Turns", "Time of a turn of the loop; commands wait as long.", "federator_turn_seconds"
        ),
        times("Commits", "Time of a durable append to the log.", "federator_log_commit_seconds"),
        times("Passes", "Time of a scheduling pass.", "federator_pass_seconds"),
        Panel(
            "Passes and rounds",
            "A second.",
            "ops",
            (
                Query("sum(rate(federator_pass_seconds_count[$__rate_interval]))", "passes"),
                Query("sum(rate(federator_pass_rounds_total[$__rate_interval]))", "rounds"),
            ),
        ),
        by_kind("Observations", "federator_observations_total"),
        by_kind("Records", "federator_log_records_total"),
        Panel(
            "CPU",
            "Cores that the daemon uses.",
            "percentunit",
            (
                Query(
                    "sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Memory",
            "Resident memory.",
            "bytes",
            (Query("sum by (instance) (process_resident_memory_bytes)", "{{instance}}"),),
        ),
    ),
)

BOARDS: Final = (FLEET, SITES, TENANTS, DATA, DAEMON)
