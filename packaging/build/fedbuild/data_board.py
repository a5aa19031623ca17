"""The dashboard of data sets: copies, replicas, and starts near their data."""

from __future__ import annotations

from typing import Final

from fedbuild.panels import Board, Panel, Query, rate, sum_rate

DATA: Final = Board(
    "federator-data",
    "Federator: data sets",
    (
        Panel(
            "Starts where the data was",
            "Of GPUs that began to run jobs with data sets: the part whose data had been there "
            "when the job was submitted; the rest start from copies made since.",
            "percentunit",
            (
                Query(
                    f"""{sum_rate('federator_data_started_gpus_total{data="there"}')} """
                    f"""/ {sum_rate('federator_data_started_gpus_total{data!="none"}')}""",
                    "there",
                ),
            ),
        ),
        Panel(
            "Starts by their data",
            "Attempts a second whose data had been there, was copied there, or that have none.",
            "ops",
            (Query(rate("federator_data_starts_total", "data"), "{{data}}"),),
            stacked=True,
        ),
        Panel(
            "Regions of jobs with data sets",
            "A second: attempts that began to run, by how many regions had all of their data then; "
            "and workloads that ended, by how many regions they ran in.",
            "ops",
            (
                Query(rate("federator_data_candidate_regions_total", "regions"), "had {{regions}}"),
                Query(
                    rate("federator_data_ended_workloads_total", "regions"), "ran in {{regions}}"
                ),
            ),
        ),
        Panel(
            "Starts at home",
            "Of GPUs that began to run: the part at sites of the tenant's home, if it has one.",
            "percentunit",
            (
                Query(
                    f"""{rate('federator_tenant_started_gpus_total{at="home"}', "tenant")} """
                    f"""/ {rate("federator_tenant_started_gpus_total", "tenant")}""",
                    "{{tenant}}",
                ),
            ),
        ),
        Panel(
            "Copied",
            "Sizes of data sets, when their copies are whole; from one domain to another.",
            "Bps",
            (
                Query(
                    f"{rate('federator_copied_bytes_total', 'from, to')} > 0", "{{from}} to {{to}}"
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Copies",
            "That are being made, by phase; none: nothing has begun.",
            "short",
            (Query("sum by (phase) (federator_copies)", "{{phase}}"),),
            stacked=True,
        ),
        Panel(
            "Ends and failures of copies",
            "A second.",
            "ops",
            (
                Query(rate("federator_copies_ended_total", "outcome"), "{{outcome}}"),
                Query(sum_rate("federator_copy_failures_total"), "failed tries"),
            ),
        ),
        Panel(
            "Replicas",
            "By storage domain and state.",
            "short",
            (Query("sum by (domain, state) (federator_data_replicas)", "{{domain}} {{state}}"),),
        ),
    ),
)
