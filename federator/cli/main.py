"""The admin program ``federator``: one noun or verb each; heavy parts are imported when used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import click

from federator import __version__
from federator.cli import pipe
from federator.cli.usage import exit_status, run
from federator.errors import FederatorError

COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType(
    {
        "agent": (
            "federator.cli.services",
            "agent",
            "The service at a site, beside its slurmctld.",
        ),
        "audit": ("federator.cli.audit", "audit", "Who did what, and is that as it was written."),
        "bid": ("federator.cli.bid", "bid", "What a site would bid for a workload, offline."),
        "capacity": (
            "federator.cli.capacity",
            "capacity",
            "Which nodes each partition should have: a plan.",
        ),
        "check": ("federator.cli.services", "check", "Validate a federation.yaml."),
        "completion": (
            "federator.cli.reference.command",
            "completion",
            "What a shell reads to complete commands.",
        ),
        "config": (
            "federator.cli.config",
            "config",
            "federation.yaml: its keys, and what a reload would change.",
        ),
        "cordon": ("federator.cli.drain", "cordon", "Start nothing more at a site."),
        "daemon": ("federator.cli.services", "daemon", "The federation daemon."),
        "data": (
            "federator.cli.data",
            "data",
            "The data sets that jobs name: which there are, and where.",
        ),
        "doctor": (
            "federator.cli.doctor",
            "doctor",
            "Which jobs waste what they hold, and what to do.",
        ),
        "drain": ("federator.cli.drain", "drain", "Empty a site, by a deadline if need be."),
        "experiment": (
            "federator.cli.experiment",
            "experiment",
            "Policies beside each other: a report.",
        ),
        "explain": ("federator.cli.explain", "explain", "Why a workload is where it is."),
        "faults": ("federator.cli.faults", "faults", "Is anything lost? Histories of faults."),
        "generate": ("federator.cli.generate", "generate", "Make up a trace of jobs to replay."),
        "log": ("federator.cli.log", "log", "The event log: verify, export, replay."),
        "man": ("federator.cli.reference.command", "man", "Write the man pages."),
        "planner": (
            "federator.cli.planner",
            "planner",
            "Forecasts by which idle quota is lent; plans for data.",
        ),
        "quotas": (
            "federator.cli.quotas",
            "quotas",
            "Quotas: hardly used ones, and whether each fits.",
        ),
        "rank": ("federator.cli.rank", "rank", "Offline: the order of a queue, and why."),
        "recover": ("federator.cli.recover", "recover", "Build a lost queue anew, from the sites."),
        "reload": ("federator.cli.reload", "reload", "Have the daemon read federation.yaml again."),
        "resume": ("federator.cli.drain", "resume", "End a drain or a cordon."),
        "shadow": (
            "federator.cli.shadow",
            "shadow",
            "What sites' own queues did, and would have done.",
        ),
        "shims": ("federator.cli.shims", "shims", "Slurm's names for the federation's commands."),
        "simulate": (
            "federator.cli.simulate",
            "simulate",
            "Replay a trace of jobs under a policy.",
        ),
        "site": ("federator.cli.site", "site", "Set a site up, and prove that it is."),
        "sites": ("federator.cli.sites", "sites", "The state of every site."),
        "snapshot": ("federator.cli.snapshot", "snapshot", "What a site bids on now."),
        "status": ("federator.cli.status", "status", "The federation on one screen."),
        "tenants": ("federator.cli.tenants", "tenants", "Quota, limit and use of every tenant."),
        "testbed": ("federator.cli.testbed", "testbed", "Three real Slurm clusters in containers."),
        "top": ("federator.cli.top", "top", "A live view: sites, queue, why a job waits."),
        "upgrade-check": (
            "federator.cli.upgrade_check",
            "upgrade_check",
            "May this release take over? Nothing is changed.",
        ),
        "usage": (
            "federator.cli.usage_report",
            "usage",
            "Who used what, what it cost, and what was idle or lost.",
        ),
        "web": ("federator.web.command", "web", "The web page: fleet, queue, jobs, tenants."),
        "whatif": ("federator.cli.whatif", "whatif", "Your own history under the federation."),
        "write-off": ("federator.cli.drain", "write_off", "Give up a site that is gone."),
    }
)
AT_SITES: Final = (
    "agent",
    "completion",
    "data",
    "doctor",
    "explain",
    "man",
    "quotas",
    "shims",
    "sites",
    "snapshot",
    "status",
    "tenants",
    "top",
    "usage",
)  # with no extra installed


BY_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {"sacctmgr": "federator.cli.sacctmgr", "sstat": "federator.cli.sstat"}
)
"""Programs that this one is when it is called so, by a link of ``federator shims``."""


class _Lazy(click.Group):
    """Imports a command's module only when it is called: an agent needs no docker SDK."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click sees it, which would exit with 1
            pipe.end_by_sigpipe()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


def _elsewhere(asked: Sequence[str], missing: str | None) -> str:
    """Say where a command runs that a site's part of Federator does not hold."""
    name = next((word for word in asked if word in COMMANDS), "")
    name = "data plan" if name == "data" else name
    where = "runs on the daemon's host; elsewhere install federator[daemon]"
    if name == "testbed":
        where = "needs its extra: install federator[testbed]"
    if name == "web":
        where = "runs on the daemon's host and needs its extra: install federator[daemon,web]"
    return (
        f"'federator {name}' {where}; here is a site's part, "
        f"without {missing}, for {', '.join(AT_SITES)}"
    )


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="federator")
def federator() -> None:
    """Many Slurm clusters act as one GPU fleet.

    Example: federator check --config /etc/federator/federation.yaml
    """


def main() -> None:
    """Run the program; a known error is one message on stderr and a sysexits status."""
    called = BY_NAME.get(os.path.basename(sys.argv[0]))
    if called is not None:
        importlib.import_module(called).main()
    try:
        run(federator, "federator", usage_status=os.EX_USAGE)
    except ModuleNotFoundError as error:  # of a library that a site does not have
        print(f"federator: error: {_elsewhere(sys.argv[1:], error.name)}", file=sys.stderr)
        sys.exit(os.EX_UNAVAILABLE)
    except FederatorError as error:
        print(f"federator: error: {error}", file=sys.stderr)
        sys.exit(exit_status(error))


if __name__ == "__main__":
    main()
