"""Rows of fsacct: a workload with its latest attempt, and its earlier attempts.

The history keeps what has ended in the same form (``federator.history``).
"""

from __future__ import annotations

import msgspec


class MeasuredUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The use that an attempt made of its nodes, as its site measured it; None: it did not.

    Amounts count all nodes together.
    """

    cpu_s: float | None = None
    user_cpu_s: float | None = None
    system_cpu_s: float | None = None
    mem_mib: float | None = None  # of the largest step, the sum of its tasks' peaks
    task_mem_mib: float | None = None  # of the largest task
    alloc_cpus: float | None = None  # that Slurm gave it, which may be more than was planned
    alloc_mem_mib: float | None = None
    gpu_util_frac: float | None = None  # 0-1, of all its GPUs
    gpu_mem_mib: float | None = None  # the most on one GPU, as far as its site can tell
    ready_s: float | None = None  # from its start to its first step, as ``Checkpointer`` told
    save_s: float | None = None  # in all its saves, likewise
    gpu_total_mib: float | None = None  # the memory of the largest GPU that it had
    gpu_power_frac: float | None = None  # drawn, of what its GPUs may draw
    # Of the looks of the nodes' watch, each at all the GPUs on a node:
    gpu_looks: float | None = None  # how many, on the node with the most
    gpu_spread_frac: float | None = None  # the standard deviation of how busy they were
    gpu_low_frac: float | None = None  # the part in which they hardly worked
    gpu_high_frac: float | None = None  # in which they did
    gpu_falls: float | None = None  # how often the first followed on the second
    gpu_longest_low_frac: float | None = None  # the longest time without work, of all looks
    # Of a step, as ``Checkpointer`` told; see ``federator.agent.base.RankTimes``:
    step_s: float | None = None
    load_s: float | None = None
    own_least_s: float | None = None
    own_most_s: float | None = None
    slow_rank: float | None = None
    ranks: float | None = None
    # The end of the run by its site's accounts, Unix time: of a job that the site requeued it is
    # known to nobody else.
    accounts_end_at_s: float | None = None


class AttemptFacts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the log tells of an attempt beside its row, for reports of usage.

    Never in an answer: an evictor is somebody else's.
    """

    over_quota: bool = False  # as it was awarded
    evicted: bool = False  # told to leave for the workload of ``evictor_…``
    told_at_s: float = 0.0  # Unix time, as the next two: that it must leave
    saved_at_s: float = 0.0  # its last checkpoint
    known_at_s: float = 0.0  # since when the federation has known that it is over
    evictor_tenant: str = ""  # of the workload that its nodes are promised to
    evictor_user: str = ""
    evictor_project: str = ""
    evictor_family: str = ""
    last_job_id: int = 0  # that its site was known to have given by its award; 0: of none known


class AccountingAttempt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One attempt at a site.

    Amounts count all nodes together; times are Unix times, 0: not yet, or never.
    """

    attempt: int  # 1, 2, …
    site: str = ""
    site_job_id: int = 0  # 0: the site never had it
    partition: str = ""
    node_list: str = ""  # in Slurm's notation
    nodes: int = 0
    cpus: int = 0
    gpus: int = 0
    gpu_types: str = ""  # "a100=8,h100=4"
    mem_mib: int = 0
    awarded_at_s: float = 0.0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    state: str = ""  # a state of Slurm's, such as PREEMPTED
    exit_code: int = 0
    signal: int = 0
    reason: str = ""  # a ReasonCode's value, its detail behind a blank; "": none
    use: MeasuredUse | None = None  # only in answers; None: not known, or not asked for
    use_due_at_s: float = 0.0  # likewise: when its site is asked (again) for it; 0: no more
    facts: AttemptFacts | None = None  # only in the history's rows of what lives


class AccountingRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One workload, with what its latest attempt has, or had.

    ``state`` is Slurm's; in rows that the history keeps of a live workload, a WorkloadState's
    value. Times and amounts as of ``AccountingAttempt``.
    """

    id: int
    name: str
    user: str
    tenant: str
    submitted_at_s: float
    array_id: int = 0  # 0: not a task of an array
    array_index: int = 0
    eligible_at_s: float = 0.0
    over_at_s: float = 0.0  # since when the federation has known that it is over; 0: it is not
    state: str = "PENDING"
    site_state: str = ""  # Slurm's last word, e.g. "OUT_OF_MEMORY"
    cancelled_by: str = ""  # the user who asked for it
    reason: str = ""
    priority: int = 0  # 1 is the highest
    time_limit_s: float = float("inf")
    project: str = ""
    qos: str = ""
    comment: str = ""
    work_dir: str = ""
    asked_nodes: int = 0  # 0: the site chooses
    asked_cpus: int = 0
    asked_gpus: int = 0
    asked_mem_mib: int = 0  # 0: the partition's default
    asked_partition: str = ""
    preemptions: int = 0
    last: AccountingAttempt | None = None  # None: it waits for one, or ended without
    earlier: tuple[AccountingAttempt, ...] = ()  # this and the next only in answers
    array_tasks: str = ""  # of a row for the waiting tasks of an array, e.g. "[5-99%4]"
