"""Reads jobs, time limit and array of a submission from its options.

Pure, and stricter than sbatch where the federation cannot plan what sbatch would let wait: every
option is read, passed on or refused as ``option_table`` says, and a refusal names what to do.

``interpret`` is the one gate. fsbatch asks it before it sends, the daemon before it queues; what a
client made by hand sends meets the same checks, and after it nobody checks a submission again.

Sizing, per het component. N = nodes, n = tasks, c = CPUs per task (1), g = GPUs per node,
G = GPUs in total. Later rules only apply where earlier ones left a value open:

* N: ``-N`` (of a range the smaller end); ``ceil(n / ntasks-per-node)``; ``G / g``; 1 when GPUs per
  node are asked for, or tasks per node, or just one task without a total of GPUs. Otherwise the
  site takes the fewest nodes that hold the totals. With ``-N`` above n, N becomes n, as in sbatch.
* n: ``-n``; ``ntasks-per-node * N``; ``ntasks-per-gpu * GPUs``; ``G / gpus-per-task``; N; 1.
* GPUs: g from ``--gres=gpu`` or ``--gpus-per-node``, G from ``--gpus``, or
  ``gpus-per-task * n`` (g where it divides evenly over N, else G).
* CPUs per node: ``ceil(n / N) * c`` or ``ntasks-per-node * c``; at least ``--mincpus``, and
  ``cpus-per-gpu`` for each GPU. Without N the same as totals. ``--overcommit`` asks for one CPU.
* Memory per node: ``--mem``; ``mem-per-cpu * CPUs``; ``mem-per-gpu * GPUs``; where N is open these
  two count with the CPUs or GPUs that the plan takes of each node. ``--mem=0`` means all of a
  node's memory, so the job is planned on otherwise empty nodes.
* ``--gres`` beside GPUs (``nic:2``, ``nic:mlx5:2``): so much on every node. Parts of GPUs (shard,
  mps) are refused.
* ``-C``: as ``model.constraint`` says. ``-w`` and ``-x``: ``node_options``; N is at least as many
  as ``-w`` names, or ``-C`` counts.
* ``--fed-gpu-types``, ``--fed-gpu-mem``, ``--fed-nvlink``: what the GPUs must be, whatever they are
  called; ``--fed-tp``: so many GPUs of a node belong together; ``--fed-pp``: so many such groups.
  Where no GPUs are asked for they say nothing, like sbatch's own options for GPUs.

``--fed-optional`` says what may be taken from a workload that runs before anything is killed: of a
het job each component that has it, of an array the tasks that it names. The batch script runs on
the first component, so that is never optional; nor is anything of what may not be evicted.

``--dependency`` is one for the whole workload (``dependency_option``). ``--hold`` of any component,
and the latest ``--begin`` (which fsbatch writes as ``utsSECONDS`` of Unix time, since its clock is
that of the user's time zone) hold for the whole workload.

One for the whole workload: the longest ``--time`` of its components, the largest ``--nice`` and
the lowest ``--fed-priority``. ``--fed-continue`` and ``--fed-no-preempt`` of any component hold for
all of it. What goes on in another attempt must be allowed to start again: ``--fed-continue`` and
``--no-requeue`` are refused together.

``--fed-project`` is one for the whole workload, ``--fed-dataset`` the sum of its components'.
``--fed-output`` (``output_option``), ``--fed-elastic`` and ``--fed-spare`` are for a job of one
component. With the second it asks for the least of its sizes (``elastic_option``), with the third
for its spare nodes as well (``spare_option``). The project is carried and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Final

from federator.errors import InvalidRequest
from federator.model.data_output import OutputWish
from federator.model.eligibility import NO_DEPENDENCY, Dependency, Hold
from federator.model.submission import NodeRange, Submission
from federator.model.tenant import HIGHEST_PRIORITY
from federator.model.workload import Job
from federator.slurm.options import own_values, passed_values, quantities
from federator.slurm.options.deadline_option import NO_DEADLINE, Deadline, deadline, earliest
from federator.slurm.options.dependency_option import read_dependency
from federator.slurm.options.elastic_option import elastic_of
from federator.slurm.options.license_option import licenses
from federator.slurm.options.node_options import node_wish, nodes_with
from federator.slurm.options.options import Options, check_components, has_foreign_directives
from federator.slurm.options.output_option import output_of
from federator.slurm.options.quantities import Gpus
from federator.slurm.options.reservation_option import reservation
from federator.slurm.options.restart_options import continues, migrates, progress_s
from federator.slurm.options.shape_options import least_shape
from federator.slurm.options.signal_option import read_signal
from federator.slurm.options.spare_option import spare_of, with_spares
from federator.slurm.options.submission_checks import check_options, check_surroundings, script_text
from federator.slurm.options.switches_option import switches

_BAD_GRES: Final = "Invalid generic resource (gres) specification"
MAX_NAME_BYTES: Final = 256
REMEMBERED: Final = 256  # readings of options
MOST_REMEMBERED_BYTES: Final = 4_096  # of the options of one; what is longer is read anew
_OF_AN_OPTION: Final = 64  # bytes, beside its text
_WRAP_MARK: Final = "# This script was created by sbatch --wrap."


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreted:
    """The values that the federation plans with; the rest of the submission is for the site."""

    jobs: tuple[Job, ...]
    name: str
    account: str | None = None
    time_limit_s: float = inf
    requeue: bool = True
    array_indices: tuple[int, ...] = ()  # empty: no array
    array_max_running: int = 0  # 0: no throttle
    nice: int = 0  # lowers its credit
    asked_priority: int = HIGHEST_PRIORITY  # never ranked above this level
    asks_priority: bool = False  # whether that was said; 1 holds for everyone else
    optional: tuple[int, ...] = ()  # array tasks by index, else components by number
    no_preempt: bool = False  # never evicted
    continues: bool = False  # in another attempt at its time limit
    migrates: bool = False  # to other nodes, when its own are slow and that pays
    progress_s: float = 0.0  # that may pass from one of its steps to the next; 0: any time
    signal_lead_s: float = 0.0  # so long before its limit Slurm signals it; 0: it does not
    project: str = ""
    datasets: tuple[str, ...] = ()
    output: OutputWish | None = None
    elastic: NodeRange | None = None
    spare: int = 0  # of the nodes of its job, so many are spare
    hold: Hold = Hold.NONE
    begin_at_s: float = 0.0  # Unix time
    deadline: Deadline = NO_DEADLINE
    waits_for: Dependency = NO_DEPENDENCY


class _Given:
    """The options of one component by name, the last of each."""

    def __init__(self, options: Options) -> None:
        self._values = {option.name: option.value for option in options}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return the value; None when the option is absent."""
        return self._values.get(name)

    def count(self, name: str) -> int | None:
        """Return the value as a number of at least 1; None when the option is absent."""
        text = self._values.get(name)
        return None if text is None else quantities.count(text, name)

    def nice(self) -> int:
        return quantities.nice(self._values["nice"]) if "nice" in self._values else 0

    def priority(self) -> int:
        text = self._values.get("fed-priority")
        return HIGHEST_PRIORITY if text is None else own_values.priority(text)

    def parallel(self, name: str) -> int:
        """Return the size of a tensor-parallel group, or the number of stages; 1 by default."""
        text = self._values.get(name)
        return 1 if text is None else own_values.parallel(text, name)

    def gpus(self, name: str) -> Gpus | None:
        text = self._values.get(name)
        return None if text is None else quantities.gpus(text)


def interpret(submission: Submission, extra_long: frozenset[str] = frozenset()) -> Interpreted:
    """Check a submission, and read it as the federation will plan it.

    Args:
        submission: from anywhere; nothing about it is taken for granted.
        extra_long: options of a site's own (SPANK); they are passed on.

    Raises:
        InvalidRequest: an option is wrong (in sbatch's words), or cannot be honoured; or no site's
            sbatch could be handed the submission as it is.
    """
    if not submission.components:
        raise InvalidRequest("the submission has no component")
    is_short = _is_short(submission.components)
    (_checked if is_short else _check)(submission.components, extra_long)
    check_surroundings(submission)
    script = script_text(submission)
    ignored = any(option.name == "ignore-pbs" for option in submission.components[0])
    if not ignored and has_foreign_directives(script):
        raise InvalidRequest(
            "#PBS and #BSUB directives are not read; say it with #SBATCH, or pass --ignore-pbs"
        )
    default_name = "wrap" if _WRAP_MARK in script[:80] else "sbatch"
    return (_known if is_short else _read)(submission.components, default_name)


def _is_short(components: tuple[Options, ...]) -> bool:
    """Whether a reading may be remembered: anybody may send long ones, and none is paid for.

    An array's reading has a number for each task.
    """
    options = [option for component in components for option in component]
    size = sum(len(option.name) + len(option.value or "") + _OF_AN_OPTION for option in options)
    return size <= MOST_REMEMBERED_BYTES and all(option.name != "array" for option in options)


def _check(components: tuple[Options, ...], extra_long: frozenset[str]) -> None:
    check_components(len(components))
    for component in components:
        check_options(component, extra_long)


def _read(components: tuple[Options, ...], default_name: str) -> Interpreted:
    """What the options ask for."""
    given = [_Given(component) for component in components]
    first = given[0]
    indices, max_running = _array(given)
    name = _checked_name(first, default_name)
    jobs = tuple(
        _job(each, name if len(given) == 1 else f"{name}+{k}") for k, each in enumerate(given)
    )
    elastic = elastic_of(given, jobs, is_array=bool(indices))
    spare = spare_of(given, jobs, is_array=bool(indices))
    return Interpreted(
        jobs=_sized(jobs, elastic, spare),
        name=name,
        account=first.text("account"),
        time_limit_s=max(map(_time_limit_s, given)),
        requeue="no-requeue" not in first,
        array_indices=indices,
        array_max_running=max_running,
        nice=max(each.nice() for each in given),
        asked_priority=max(each.priority() for each in given),
        asks_priority=any("fed-priority" in each for each in given),
        optional=_optional(given, indices),
        no_preempt=any("fed-no-preempt" in each for each in given),
        continues=continues(given),
        migrates=migrates(given),
        progress_s=progress_s(given),
        signal_lead_s=max(map(_signal_lead_s, given)),
        project=_project(given),
        datasets=datasets_of(components),
        output=output_of(given, is_array=bool(indices)),
        elastic=elastic,
        spare=spare,
        hold=Hold.USER if any("hold" in each for each in given) else Hold.NONE,
        begin_at_s=max(map(_begin_at_s, given)),
        deadline=earliest(map(_deadline, given)),
        waits_for=read_dependency(
            [each.text("dependency") for each in given],
            [each.text("kill-on-invalid-dep") for each in given],
        ),
    )


def _sized(jobs: tuple[Job, ...], elastic: NodeRange | None, spare: int) -> tuple[Job, ...]:
    if elastic is not None:
        return (replace(jobs[0], nodes=elastic.least),)
    return (with_spares(jobs[0], spare),) if spare else jobs


# Most users repeat their options, with another script or environment.
_checked = lru_cache(maxsize=REMEMBERED)(_check)
_known = lru_cache(maxsize=REMEMBERED)(_read)


def _time_limit_s(given: _Given) -> float:
    limit_s = quantities.time_limit_s(given.text("time") or "-1")
    least = given.text("time-min")
    if least is not None:
        passed_values.check_time_min(least, limit_s)
    return limit_s


def _begin_at_s(given: _Given) -> float:
    return quantities.unix_time_s(given.text("begin") or "uts0")


def _deadline(given: _Given) -> Deadline:
    limit, least = given.text("time"), given.text("time-min")
    return deadline(given.text("deadline"), limit, least, _begin_at_s(given))


def _signal_lead_s(given: _Given) -> float:
    asked = read_signal(given.text("signal") or "")
    return 0.0 if asked is None else asked.lead_s


def _array(given: Sequence[_Given]) -> tuple[tuple[int, ...], int]:
    """Indices of the tasks, and the most that may run at once; (), 0 of what is no array."""
    text = given[0].text("array")
    if not text:
        return (), 0
    if len(given) > 1:
        raise InvalidRequest("Batch job submission failed: Invalid job array specification")
    return quantities.array(text)


def _optional(given: Sequence[_Given], indices: tuple[int, ...]) -> tuple[int, ...]:
    """The tasks of an array, or the components of a het job, that may be lost first."""
    numbers = tuple(k for k, each in enumerate(given) if "fed-optional" in each)
    if not numbers:
        return ()
    if "no-requeue" in given[0] or any("fed-no-preempt" in each for each in given):
        raise InvalidRequest(
            "--fed-optional lets go what --fed-no-preempt and --no-requeue (or SBATCH_NO_REQUEUE) "
            "keep; leave one of them out"
        )
    texts = {given[k].text("fed-optional") for k in numbers}
    if indices:
        return _optional_tasks(texts.pop(), indices)
    if len(given) == 1:
        raise InvalidRequest(
            "--fed-optional needs a part that can be left out: a component of a het job, or "
            "--fed-optional=INDEXES with --array"
        )
    if texts != {None}:
        raise InvalidRequest(
            "--fed-optional takes no value in a het job; set it on each component that may go"
        )
    if 0 in numbers:
        raise InvalidRequest(
            "--fed-optional (or SBATCH_FED_OPTIONAL) cannot hold for the first component of a het "
            "job: the batch script runs there; set it on others"
        )
    return numbers


def _optional_tasks(text: str | None, indices: tuple[int, ...]) -> tuple[int, ...]:
    if not text:
        raise InvalidRequest("--fed-optional names the tasks of an array, e.g. --fed-optional=4-7")
    chosen = own_values.optional_tasks(text)
    unknown = sorted(set(chosen) - set(indices))
    if unknown:
        raise InvalidRequest(
            f"--fed-optional={text} names task {unknown[0]}, which is not in --array"
        )
    return chosen


def _checked_name(first: _Given, default: str) -> str:
    name = first.text("job-name")
    if name is None:
        name = default
    if len(name.encode()) > MAX_NAME_BYTES:  # it travels with every question to every site
        raise InvalidRequest(f"the job name is longer than {MAX_NAME_BYTES} bytes")
    return name


def datasets_of(components: Sequence[Options]) -> tuple[str, ...]:
    """The data sets that any component names, each once.

    Raises:
        InvalidRequest: a value is no list of names, or there are too many in all.
    """
    texts = [o.value or "" for options in components for o in options if o.name == "fed-dataset"]
    names = tuple(dict.fromkeys(name for text in texts for name in own_values.datasets(text)))
    if len(names) > own_values.MAX_DATASETS:  # they become one variable of the job
        raise InvalidRequest(
            f"--fed-dataset names {len(names)} data sets in all components; at most "
            f"{own_values.MAX_DATASETS} are possible"
        )
    return names


def _project(given: Sequence[_Given]) -> str:
    texts = [each.text("fed-project") for each in given]
    names = list(dict.fromkeys(own_values.project(text) for text in texts if text is not None))
    if len(names) > 1:
        raise InvalidRequest(
            f"--fed-project names {names[0]} and {names[1]}; a het job belongs to one project"
        )
    return names[0] if names else ""


# ---- sizing ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuWish:
    """GPUs as asked for; at most one type among them."""

    per_node: int = 0
    total: int = 0
    per_task: int = 0
    gpu_type: str = ""

    @property
    def any(self) -> bool:
        return bool(self.per_node or self.total or self.per_task)


def _gpu_wish(given: _Given) -> _GpuWish:
    gres = quantities.gres(given.text("gres") or "none").gpus
    per_node = given.gpus("gpus-per-node")
    if gres and per_node and gres != per_node:
        raise InvalidRequest("--gres=gpu and --gpus-per-node ask for different GPUs; use one")
    total, per_task = given.gpus("gpus"), given.gpus("gpus-per-task")
    asked = [wish for wish in (gres, per_node, total, per_task) if wish]
    types = {wish.gpu_type for wish in asked if wish.gpu_type}
    if len(types) > 1:
        raise InvalidRequest(f"{_BAD_GRES}: GPU types {' and '.join(sorted(types))} in one job")
    wish = per_node or gres
    return _GpuWish(
        per_node=wish.number if wish else 0,
        total=total.number if total else 0,
        per_task=per_task.number if per_task else 0,
        gpu_type=types.pop() if types else "",
    )


def _nodes(given: _Given, wish: _GpuWish) -> int | None:
    """N, or None when the site shall choose."""
    text, tasks = given.text("nodes"), given.count("ntasks")
    tasks_per_node = given.count("ntasks-per-node")
    if text is not None:
        asked = quantities.nodes(text)
        return min(asked, tasks) if tasks else asked
    if tasks and tasks_per_node:
        return -(-tasks // tasks_per_node)
    if wish.per_node and wish.total:
        if wish.total % wish.per_node:
            raise InvalidRequest(_BAD_GRES)
        return wish.total // wish.per_node
    if wish.per_node or tasks_per_node:
        return 1
    one_task = (tasks or 1) == 1 and not wish.total and "ntasks-per-gpu" not in given
    return 1 if one_task and not wish.per_task > 1 else None


def _tasks(given: _Given, wish: _GpuWish, nodes: int | None) -> int:
    tasks, per_node = given.count("ntasks"), given.count("ntasks-per-node")
    per_gpu = given.count("ntasks-per-gpu")
    gpus = wish.total or wish.per_node * (nodes or 1)
    if per_gpu and not gpus and not tasks:
        raise InvalidRequest(_BAD_GRES)
    if wish.per_task and not (tasks or per_node or wish.total or "nodes" in given):
        raise InvalidRequest(_BAD_GRES)
    if tasks:
        return tasks
    if per_node:
        return per_node * (nodes or 1)
    if per_gpu:
        return per_gpu * gpus
    if wish.per_task and wish.total:
        return max(1, wish.total // wish.per_task)
    return nodes or 1


def _gpus(wish: _GpuWish, nodes: int | None, tasks: int) -> tuple[int, int]:
    """GPUs per node and in total, of which at least one is 0 unless they agree."""
    per_node, total = wish.per_node, wish.total
    if wish.per_task and not per_node:
        wanted = wish.per_task * tasks
        if total and total != wanted:
            raise InvalidRequest(_BAD_GRES)
        total = wanted
    if nodes is None:
        return per_node, total
    if total and (total < nodes or (per_node and total != per_node * nodes)):
        raise InvalidRequest(_BAD_GRES)
    if total and total % nodes == 0:
        return total // nodes, 0
    return per_node, 0 if per_node else total


def _cpus(given: _Given, nodes: int | None, tasks: int, gpus: tuple[int, int]) -> tuple[int, int]:
    """CPUs on each node (at least), and in total (0 when the first says it all)."""
    per_task = given.count("cpus-per-task") or 1
    at_least = max(given.count("mincpus") or 1, 1)
    if "overcommit" in given:
        return at_least, 0
    per_gpu = given.count("cpus-per-gpu") or 0
    if nodes is None:
        total = max(tasks * per_task, per_gpu * gpus[1])
        least = max(at_least, per_task)
        return least, total if total > least else 0
    tasks_on_node = given.count("ntasks-per-node") or 0
    tasks_on_node = max(-(-tasks // nodes), min(tasks_on_node, tasks))
    gpus_on_node = gpus[0] or -(-gpus[1] // nodes)
    return max(at_least, tasks_on_node * per_task, per_gpu * gpus_on_node), 0


def _mem_mib(given: _Given, cpus: int, gpus: tuple[int, int]) -> int:
    """MiB on each node; where the site chooses how many CPUs or GPUs, of one task or one GPU."""
    text = given.text("mem")
    if text is not None:
        return quantities.mebibytes(text, "mem")
    text = given.text("mem-per-cpu")
    if text is not None:
        return quantities.mebibytes(text, "mem-per-cpu") * cpus
    text = given.text("mem-per-gpu")
    if text is None:
        return 0
    each = quantities.mebibytes(text, "mem-per-gpu")
    if not any(gpus):
        raise InvalidRequest(_BAD_GRES)
    return each * (gpus[0] or 1)


def _mem_with_total(given: _Given, option: str, total: int) -> int:
    """MiB with each CPU or GPU of a total that the site spreads over nodes."""
    text = given.text(option)
    return 0 if text is None or not total else quantities.mebibytes(text, option)


def _job(given: _Given, name: str) -> Job:
    wish = _gpu_wish(given)
    asked = node_wish(given.text("nodelist"), given.text("exclude"), given.text("constraint"))
    nodes = nodes_with(asked, _nodes(given, wish), said="nodes" in given)
    tasks = _tasks(given, wish, nodes)
    gpus_per_node, gpus = _gpus(wish, nodes, tasks)
    cpus_per_node, cpus = _cpus(given, nodes, tasks, (gpus_per_node, gpus))
    mem = _mem_mib(given, cpus_per_node, (gpus_per_node, gpus))
    all_memory = mem == 0 and "mem" in given
    types = _gpu_types(given, wish)
    memory = own_values.gpu_mem_gib(given.text("fed-gpu-mem") or "0G") if wish.any else 0.0
    tensor, stages = given.parallel("fed-tp"), given.parallel("fed-pp")
    exclusive = given.text("exclusive")
    if exclusive not in (None, "user", "mcs", "topo"):
        raise InvalidRequest("Invalid --exclusive specification")
    job = Job(
        name=name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        gpus=gpus,
        cpus_per_node=cpus_per_node,
        cpus=cpus,
        mem_mib_per_node=mem,
        mem_mib_per_cpu=_mem_with_total(given, "mem-per-cpu", 0 if nodes is not None else cpus),
        mem_mib_per_gpu=_mem_with_total(given, "mem-per-gpu", gpus),
        gpu_types=types,
        min_gpu_mem_gib=memory,
        nvlink=wish.any and "fed-nvlink" in given,
        tensor_parallel=tensor if wish.any else 1,
        pipeline_stages=stages if wish.any else 1,
        gres=quantities.gres(given.text("gres") or "none").others,
        features=asked.features,
        constraint=asked.constraint,
        nodelist=asked.nodelist,
        exclude=asked.exclude,
        exclusive="exclusive" in given or all_memory,
        partitions=tuple(p for p in (given.text("partition") or "").split(",") if p),
    )
    return _with_what_sites_have(job, given)


def _with_what_sites_have(job: Job, given: _Given) -> Job:
    """The job with its wishes for what only sites know, as licences, and the order of nodes."""
    together = switches(given.text("switches"))
    return replace(
        job,
        licenses=licenses(given.text("licenses")),
        reservation=reservation(given.text("reservation")),
        switches=together.most,
        switch_wait_s=together.wait_s if together.most else inf,
        qos=given.text("qos") or "",
        shape=least_shape(given.text),
        contiguous="contiguous" in given and job.nodes != 1,
    )


def _gpu_types(given: _Given, wish: _GpuWish) -> tuple[str, ...]:
    """Acceptable types; of a component that asks for no GPUs, none."""
    own = (wish.gpu_type,) if wish.gpu_type and wish.any else ()
    text = given.text("fed-gpu-types")
    if not text or not wish.any:
        return own
    types = own_values.gpu_types(text)
    if own and own[0] not in types:
        raise InvalidRequest(f"--fed-gpu-types={text} leaves out the type {own[0]} asked for")
    return own or types
