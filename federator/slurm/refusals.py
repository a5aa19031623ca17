"""Tells from the words of sbatch whether a refusal is for good.

Three kinds. *For good*: the submission itself is wrong for this site (an unknown QOS, account or
feature, a value that its sbatch does not read), and would be refused again. *The plan*: the nodes
and amounts that it was given do not suit; other nodes of the site may. Everything else passes:
limits that are reached, partitions that are down, a slurmctld that is restarting, and whatever is
not known here, such as the words of a site's own job_submit plug-in.

Slurm's words are those of ``slurm_strerror`` in 22.05, 24.11 and 26.05, and what sbatch prints
before it asks slurmctld; both are recorded beside the tests.
"""

from __future__ import annotations

import re
from typing import Final

from federator.model.reason import ReasonCode

_SUBMISSION_FAILED: Final = "Batch job submission failed: "
_PREFIX: Final = re.compile(r"^(?:\S*/)?sbatch: (?:error: |fatal: )?")
_HINT: Final = 'Try "sbatch --help"'

# What Slurm says when it cannot be asked, as opposed to saying no. After most of these it is not
# known whether the request was carried out.
_UNREACHABLE: Final = re.compile(
    r"Unable to contact slurm|controller not responding|Socket timed out|temporarily unable"
    r"|Zero Bytes were transmitted|[Mm]unge|authentication (?:error|failure)|Connection refused"
    r"|Connection reset|Insane message length|in standby mode|Unexpected message|Transport endpoint"
    r"|Message (?:receive|send) failure|timed out|Header lengths|Broken pipe|Unspecified error"
    r"|Incompatible (?:protocol|versions)|Unable to establish config"
)

FOR_GOOD: Final = frozenset(
    {
        "Cannot request more threads per core than the job allocation",
        "Container runtime not configured or invalid",
        "Container support is not configured",
        "Current SwitchType does not permit arbitrary task distribution",
        "Duplicate generic resource (gres) specification",
        "Invalid --nice value",
        "Invalid account or account/partition combination specified",
        "Invalid accounting frequency requested",
        "Invalid container id specified",
        "Invalid extra constraints specification",
        "Invalid feature specification",
        "Invalid generic resource (gres) specification",
        "Invalid GRES specification (with and without type identification)",
        "Invalid job array specification",
        "Invalid KNL configuration (MCDRAM or NUMA option)",
        "Invalid license specification",
        "Invalid mcs_label specified",
        "Invalid preferred feature specification",
        "Invalid qos specification",
        "Invalid time-min specification (exceeds job's time or other limits)",
        "Invalid Trackable RESource (TRES) specification",
        "Invalid wckey specification",
        "Job --batch option is invalid or not a subset of --constraint",
        "Job --batch option is invalid or not a subset of --constraints",
        "Multiple KNL NUMA and/or MCDRAM constraints require use of a heterogeneous job",
        "Pathname of a file, directory or other parameter too long",
        "Requested GRES option unsupported by configured SelectType plugin",
        "Requested operation not supported on this system",
        "Task count specification invalid",
        "Task distribution specification invalid",
        "Time limit specification required, but not provided",
    }
)
"""After ``Batch job submission failed:``, in any of the three generations."""

OF_THE_PLAN: Final = frozenset(
    {
        "CPU count specification invalid",
        "Invalid node name specified",
        "Invalid partition name specified",
        "Memory required by task is not available",
        "More processors requested than permitted",
        "Node count specification invalid",
        "Requested more tasks than available processors",
        "Requested node configuration is not available",
        "Requested nodes not in this partition",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "Requested topology configuration is not available",
        "RestrictedCoresPerGPU: Not enough unique cores per GPU",
        "User's group not permitted to use this partition",
    }
)
"""The same, of what the federation chose: partition, nodes, and how much of each."""

_BY_SBATCH: Final = re.compile(
    r"unrecognized option '"
    r"|option '[^']*' (?:is ambiguous|requires an argument|doesn't allow an argument)"
    r"|(?i:invalid) --?[A-Za-z-]+ (?:specification|argument|value|combo)"
    r"|invalid --profile="
    r"|Invalid numeric value"
    r"|Invalid plane size"
    r"|Invalid generic resource \(gres\) specification"
    r"|Numeric argument \(.*\) too large"
    r"|unrecognized --[a-z-]+ argument"
    r"|Bad rlimit name"
    r"|Failed to validate"
    r'|missing list for "'
    r"|With Arbitrary distribution"
    r"|--[a-z-]+ \([0-9]+\) can not be bigger than"
    r"|--[a-z-]+=\S+ is only used with srun"
    r"|--[a-z-]+ requires MARGIN@DELAY format"
    r"|--[a-z-]+ only permitted by root user"
    r"|Slurmstepd step management must be enabled"
    r"|In order to use --[a-z-]+=\S+ you must also have"
    r"|rebooting of nodes is only allowed for admins"
)
"""What sbatch finds out by itself; it is a matter of the submission and of its release."""


def kind_of_refusal(words: str) -> ReasonCode:
    """Classify what sbatch printed when it submitted nothing.

    Returns:
        ``SBATCH_REFUSED``: for good; ``PLAN_REFUSED``: for these nodes; ``LAUNCH_REFUSED``: for
        now, or for a reason that is not known.
    """
    lines = [_PREFIX.sub("", line.strip()) for line in words.splitlines()]
    by_slurmctld = [
        line.removeprefix(_SUBMISSION_FAILED).strip()
        for line in lines
        if line.startswith(_SUBMISSION_FAILED)
    ]
    if not FOR_GOOD.isdisjoint(by_slurmctld) or any(map(_BY_SBATCH.match, lines)):
        return ReasonCode.SBATCH_REFUSED
    if not OF_THE_PLAN.isdisjoint(by_slurmctld):
        return ReasonCode.PLAN_REFUSED
    return ReasonCode.LAUNCH_REFUSED


def in_one_line(words: str) -> str:
    """Return the message of sbatch in one line, without its name before each line."""
    lines = (_PREFIX.sub("", line.strip()) for line in words.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith(_HINT))


def cannot_be_asked(words: str) -> bool:
    """Tell whether Slurm could not be asked, as opposed to saying no."""
    return _UNREACHABLE.search(words) is not None
