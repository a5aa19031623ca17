"""The lines of slurm.conf that the federation needs, for each generation of Slurm.

``snippet`` is read by people, and by join.sh, which puts each setting beside what the site has
already: a key that is set twice is an error message at every Slurm command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from federator.site_installer.templates import EPILOG_DIR, PROLOG_DIR

PROLOG: Final = f"Prolog={PROLOG_DIR}/*"
EPILOG: Final = f"Epilog={EPILOG_DIR}/*"
# DeferBatch: else a script starts when the first of its nodes is found well.
PROLOG_FLAGS: Final = "PrologFlags=Alloc,DeferBatch"
JOB_SUBMIT: Final = "JobSubmitPlugins=lua"
NO_HOLD: Final = "nohold_on_prolog_fail"  # one of SchedulerParameters
SEND_SIGNAL: Final = "SlurmctldParameters=preempt_send_user_signal"

_CHOOSE: Final = "# Choose the nodes (federator site render --nodes), or lend a partition you have."


def partition_line(partition: str, nodes: str, more: str = "") -> str:
    """Return the line of one partition lent to the federation; it may overlap with others."""
    line = f"PartitionName={partition} Default=NO{more} Nodes={nodes}"
    return f"{line} MaxTime=INFINITE State=UP PriorityTier=1"


def snippet(generation: str, partitions: Sequence[str], nodes: str | None) -> str:
    """Return what slurm.conf needs, with reasons; what is only recommended is commented out.

    Args:
        generation: one of ``SUPPORTED_SLURM``.
        partitions: those of the federation.
        nodes: which they are of, as a host list; None leaves that to the admin.
    """
    lines = [
        f"# The federation's part of slurm.conf, for Slurm {generation}. The rest is the site's.",
        "",
        "# Partitions lent to the federation. Any other key of a partition may be added.",
    ]
    if nodes is None:
        lines += [_CHOOSE, *(f"#{partition_line(name, 'NODES')}" for name in partitions)]
    else:
        lines += [partition_line(name, nodes) for name in partitions]
    lines += [
        "",
        "# Prolog when a job gets its nodes, not at its first step, and no script before it has",
        "# ended on all of them: bad nodes are found in time.",
        PROLOG_FLAGS,
        "# Folders, so that the site's own programs stand beside ours.",
        PROLOG,
        EPILOG,
        "# A job whose prolog failed may start elsewhere, instead of being held.",
        f"SchedulerParameters={NO_HOLD}",
        "# Admission: the federation's partitions take no job past the federation.",
        JOB_SUBMIT,
        "",
        *_recommended(generation),
    ]
    return "\n".join(lines) + "\n"


def _recommended(generation: str) -> list[str]:
    """Comments: what is not needed, but makes evictions by the site itself gentler."""
    if generation == "22.05":
        spelling = [f"#{SEND_SIGNAL}", "# (PreemptParameters breaks every command of 22.05.)"]
    else:
        spelling = ["#PreemptParameters=send_user_signal"]
    return [
        "# Recommended, if this site preempts jobs itself: a job's own --signal before it must go,",
        "# and the queue rather than the end for it.",
        *spelling,
        "#JobRequeue=1",
        "#PreemptMode=REQUEUE",
        "# Well below policy.preemption.grace_s of the federation: it is taken off its end.",
        "#KillWait=30",
        "# How long the agent may be away without losing sight of how a job ended.",
        "#MinJobAge=300",
    ]
