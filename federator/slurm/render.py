"""Renders an attempt as one call of sbatch that says everything on its command line.

The submission and its plan become argv, script and environment; nothing passes through a shell.

* argv carries every option of every component, pinned to the plan: ``--nodes=k --nodelist=…`` of
  equal lengths (with a longer list 22.05 refuses and later ones choose), its partition, the
  tenant's account, and the attempt as the first word of the comment. The site's own SBATCH_*
  variables have no say, because none is passed on.
* ``--nodelist``, ``--exclude``, ``--switches`` and ``--contiguous`` have become part of the plan,
  and so has a ``--constraint`` that is more than features joined by &. (Beside a list of nodes
  slurmctld fills gaps of its own accord if it reads ``--contiguous``, and has too many.)
* ``--nice``, ``--hold``, ``--begin``, ``--dependency`` and ``--fed-*`` say how the federation ranks
  and places the workload, and when; when it is launched they have done their work, and the site's
  sbatch is not told, plug-in or not.
* A job with ``--fed-spare`` has ``--no-kill``: it outlives a node that dies.
* ``--mail-type`` has what is left to the site's Slurm (``mail_option``).
* ``#SBATCH`` lines of the script's header become ``##SBATCH``, and ``--ignore-pbs`` is set, so
  that argv alone decides. The body is not touched.
* Where no prolog consumes leases the script's interpreter line does; see ``agent.lease_wrapper``.
* FED_CHECKPOINT_DIR is a folder of the workload's own on what the sites of a region share; the
  helper makes it. FED_PREEMPT_DEADLINE is a file in it that appears when the job is told to leave.
  Where the folder cannot be made, both are unset and FED_CHECKPOINT_ERROR says why.
  FED_CHECKPOINT_INTERVAL_S suggests how often to save, where it is known how long a save takes.
* The environment is the user's, less what belongs to the submitting machine (``_HOST_ONLY``), plus
  FED_JOB_ID, FED_ATTEMPT, FED_SITE; as asked for, SLURM_JOB_DEPENDENCY, FED_PROJECT, FED_DATASET,
  FED_PROGRESS and FED_CONTINUE=1; for each data set FED_DATASET_NAME, its path here; for the one
  that it writes FED_OUTPUT and FED_OUTPUT_NAME; for a job of one component also FED_TP, FED_PP,
  FED_ELASTIC and FED_SPARE as asked for, and FED_RAILS, the GPUs of a node, if it has all on each
  node: then GPU r of every node is on rail r of a rail-optimised fabric. PATH keeps the user's
  order with the site's default behind. A variable
  longer than the kernel takes (``MAX_VARIABLE_BYTES``) would make every exec of the job fail; it is
  left out and named in FED_DROPPED_ENV, behind those that fsbatch left out.
* The umask is that of the shell where the job was submitted, as with sbatch.
* Bytes of the script that are not UTF-8 are surrogates in ``SbatchCall.script``; JSON carries them
  to the site's helper, which makes them bytes again.
* FED_TICKET opens a partition that is closed to direct submission (``agent.spool``); it is of no
  use once sbatch has returned. A job of ``--export=NIL`` has it as the second word of its comment,
  and its project with it.
* ``--export``: with NONE or a list, the FED_* names are added as a list, which keeps what both
  imply (the user's login environment is loaded at the site). NIL stays as it is: it forbids
  names beside it, so such a job sees no FED_*. ALL needs nothing.
* An array task is a plain job whose environment says of which array: SLURM_ARRAY_JOB_ID (the
  federation's), _TASK_ID, _TASK_COUNT, _TASK_MIN, _TASK_MAX and _TASK_STEP as sbatch would set them
  for the whole array, and the same as FED_ARRAY_…. Slurm sets them for its own arrays alone, and
  lets SLURM_* through with any ``--export``.
* Names of files say the federation's ids; see ``file_names``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from federator.agent.base import Probe
from federator.agent.lease_wrapper import started_by
from federator.errors import InvalidRequest
from federator.model import progress
from federator.model.constraint import plain_names
from federator.model.plan import JobPlan
from federator.model.submission import Option
from federator.slurm.options import own_values, quantities
from federator.slurm.options.file_names import (
    PATTERNS,
    FederationIds,
    file_options,
    no_files,
    opened,
    with_federation_ids,
    working_dir,
)
from federator.slurm.options.interpret import datasets_of
from federator.slurm.options.license_option import words_of_licenses
from federator.slurm.options.mail_option import left_to_the_site
from federator.slurm.options.option_table import OPTIONS, OWN, Treatment
from federator.slurm.options.options import DIRECTIVE, Options, header_lines, words_of
from federator.wire.agent_protocol import LaunchOrder

DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
MAX_VARIABLE_BYTES: Final = 128 * 1024 - 1  # MAX_ARG_STRLEN less its NUL
FOLD_ABOVE_NODES: Final = 16
FED_NAMES: Final = ("FED_JOB_ID", "FED_ATTEMPT", "FED_SITE")
TICKET_NAME: Final = "FED_TICKET"
DROPPED_NAMES: Final = "FED_DROPPED_ENV"
MAX_DROPPED_NAMES: Final = 16 * 1024  # characters, of at most 4 bytes each

_REPLACED: Final = frozenset(
    {
        "nodes",
        "nodelist",
        "exclude",
        "partition",
        "account",
        "comment",
        "job-name",
        "array",
        "begin",
        "chdir",
        "contiguous",
        "dependency",
        "export",
        "hold",
        "ignore-pbs",
        "kill-on-invalid-dep",
        "licenses",
        "nice",
        "reservation",
        "switches",
    }
)
_HOST_ONLY: Final = frozenset(
    {
        "HOME",
        "USER",
        "LOGNAME",
        "USERNAME",
        "SHELL",
        "PWD",
        "OLDPWD",
        "MAIL",
        "HOSTNAME",
        "HOST",
        "TMPDIR",
        "TMP",
        "TEMP",
        "TERM",
        "TERMCAP",
        "DISPLAY",
        "XAUTHORITY",
        "WAYLAND_DISPLAY",
        "LS_COLORS",
        "SHLVL",
        "_",
        "STY",
        "TMUX",
        "TMUX_PANE",
        "WINDOWID",
        "CUDA_VISIBLE_DEVICES",
        "FED_CHECKPOINT_DIR",
        "FED_CHECKPOINT_ERROR",
        "FED_CHECKPOINT_INTERVAL_S",
        "FED_PREEMPT_DEADLINE",
        "FED_TICKET",
        "FED_CONTINUE",
        "FED_DATASET",
        "FED_ELASTIC",
        "FED_OUTPUT",
        "FED_PP",
        "FED_PROGRESS",
        "FED_PROJECT",
        "FED_RAILS",
        "FED_SPARE",
        "FED_TP",
        "FEDERATOR_SOCKET",
        "FED_SUBMIT_KEY",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
    }
)
_HOST_ONLY_PREFIXES: Final = (
    *("SSH_", "XDG_", "DBUS_", "SLURM_", "SBATCH_", "SUDO_"),
    *("FED_ARRAY_", "FED_DATASET_", "FED_OUTPUT_"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchCall:
    """The call that the site's helper runs as the user, in ``work_dir`` (else in their home).

    ``argv`` holds long options and ``:`` between components; ``args`` are the script's own.
    """

    argv: tuple[str, ...]
    args: tuple[str, ...]
    script: str
    environment: dict[str, str]
    work_dir: str
    umask: int = 0o022
    checkpoint_dir: str = ""
    files: Mapping[str, object] = field(default_factory=no_files)  # see ``file_names``


def render(
    order: LaunchOrder,
    site: str,
    default_path: str = DEFAULT_PATH,
    *,
    ticket: str = "",
    start_line: str = "",
) -> SbatchCall:
    """Turn a launch order into the call of sbatch that carries it out.

    Args:
        order: its ``jobs`` are the plans of the submission's components, in the same order.
        site: the name of the site, for FED_SITE.
        default_path: appended to the user's PATH.
        ticket: opens the partition to this submission; "": the site needs none.
        start_line: in place of the script's first line, see ``agent.lease_wrapper``; "": it stays.

    Raises:
        InvalidRequest: plans and components do not match, or a plan has no nodes.
    """
    submission = order.submission
    if len(order.jobs) != len(submission.components):
        raise InvalidRequest(
            f"{order.attempt}: {len(order.jobs)} plans for {len(submission.components)} components"
        )
    argv = ["--ignore-pbs"]
    for k, (options, plan) in enumerate(zip(submission.components, order.jobs, strict=True)):
        argv += [":"] if k else []
        argv += _component(order, options, plan, k, ticket)
    script = without_directives(submission.script_bytes.decode("utf-8", "surrogateescape"))
    return SbatchCall(
        argv=tuple(argv),
        args=submission.args,
        script=started_by(script, start_line) if start_line else script,
        environment=job_environment(order, site, default_path) | _opened_by(ticket),
        work_dir=working_dir(submission),
        umask=submission.umask,
        checkpoint_dir=order.checkpoint_dir,
        files=files_to_open(order),
    )


# Should nobody end a probe, Slurm gives it up by then. (22.05 keeps one that is held all the same,
# so that what is not to start begins later than it is ended.)
PROBE_DEADLINE: Final = "now+3minutes"
PROBE_LATER: Final = "now+1minute"


def probe_call(probe: Probe) -> SbatchCall:
    """The call of sbatch for a job that does nothing; see ``agent.services.site_check``."""
    options = {
        "comment": str(probe.attempt),
        "job-name": "fed-verify",
        "partition": probe.partition,
        "account": probe.account,
        "nodes": "1",
        "nodelist": probe.node,
        "gres": f"gpu:{probe.gpus}" if probe.gpus else "",
        "time": "1",
        "deadline": PROBE_DEADLINE,
        "begin": PROBE_LATER if probe.later else "",
        "output": "/dev/null",
        "chdir": "/",
    }
    argv = [f"--{name}={value}" for name, value in options.items() if value] + ["--no-requeue"]
    return SbatchCall(
        argv=tuple(argv),
        args=(),
        script="#!/bin/sh\nexit 0\n",
        environment={"PATH": DEFAULT_PATH, "FED_PROJECT": "fed-verify"} | _opened_by(probe.ticket),
        work_dir="/",
    )


def _component(
    order: LaunchOrder, options: Options, plan: JobPlan, k: int, ticket: str
) -> list[str]:
    if not plan.nodes:
        raise InvalidRequest(f"{order.attempt}: the plan for {plan.name!r} has no nodes")
    ids = ids_of(order)
    left = left_to_the_site(options, mailed=order.mailed)
    kept = [_named(option, ids) for option in left if not _is_replaced(option)]
    values = {option.name: option.value for option in options}
    outlives = "fed-spare" in values and "no-kill" not in values
    export = _export(
        values.get("export"),
        (*FED_NAMES, *_own(order), *_error(order), *_opened_by(ticket)),
    )
    brought = _brought(order, ticket) if export == "NIL" else ""  # it gets no environment
    comment = " ".join(filter(None, (str(order.attempt), brought, values.get("comment"))))
    pins = [
        ("nodes", str(len(plan.nodes))),
        ("nodelist", fold(tuple(plan.nodes))),
        ("partition", plan.partition),
        ("account", str(order.tenant)),
        ("reservation", plan.reservation),
        ("licenses", words_of_licenses(plan.licenses)),
        ("comment", comment),
        ("job-name", values.get("job-name") or order.name),
        ("chdir", working_dir(order.submission, k) if "chdir" in values else None),
        ("export", export),
        *(file_options(options, ids, order.attempt.attempt) if k == 0 else ()),
    ]
    said = [words_of(option) for option in kept] + (["--no-kill"] if outlives else [])
    return said + [f"--{name}={value}" for name, value in pins if value]


def _is_replaced(option: Option) -> bool:
    spec = OPTIONS.get(option.name)
    travels = spec is None or spec.treatment in (Treatment.READ, Treatment.PASSED)
    if option.name == "constraint" and plain_names(option.value or "") is None:
        return True  # beside a list of nodes 26.05 leaves counts pending: BadConstraints
    return option.name in _REPLACED or option.name in OWN or not travels


def files_to_open(order: LaunchOrder) -> dict[str, object]:
    """Return the helper's orders for the files that Slurm will open; see ``site_exec``.

    An output of an earlier attempt that is another UID's is put aside under that one's number.
    """
    earlier = order.attempt.attempt - 1
    data = [[path.root, path.path, path.write] for path in order.data]
    return {
        "names": opened(order.submission, ids_of(order), user=order.user, name=chosen_name(order)),
        "shared": order.shared,
        "aside": f".{earlier}" if earlier and order.has_run else "",
        **({"data": data} if data else {}),  # a helper of an older release knows none, nor the next
        **({"output": order.output.for_helper()} if order.output is not None else {}),
    }


def chosen_name(order: LaunchOrder) -> str:
    """The name of its batch script at the site."""
    options = {option.name: option.value for option in order.submission.components[0]}
    return options.get("job-name") or order.name


def ids_of(order: LaunchOrder) -> FederationIds:
    """The federation's ids of the job of an order."""
    workload = int(order.attempt.workload)
    if order.array_index is None:
        return FederationIds(workload=workload)
    return FederationIds(
        workload=workload, array=order.array_id or workload, index=order.array_index
    )


def _named(option: Option, ids: FederationIds) -> Option:
    if option.name not in PATTERNS or option.value is None:
        return option
    return Option(name=option.name, value=with_federation_ids(option.value, ids))


def _export(asked: str | None, names: tuple[str, ...]) -> str:
    if asked is None or asked.upper() == "ALL":
        return "ALL"
    if asked.upper() == "NIL":
        return "NIL"
    listed = ",".join(names)
    return listed if asked.upper() == "NONE" else f"{asked},{listed}"


def _shape(order: LaunchOrder) -> dict[str, str]:
    """The way in which the GPUs of a job of one component belong together."""
    if len(order.submission.components) != 1:
        return {}
    values = {option.name: option.value for option in order.submission.components[0]}
    asked = {name: values.get(key) for name, key in (("FED_TP", "fed-tp"), ("FED_PP", "fed-pp"))}
    found = {name: str(int(value)) for name, value in asked.items() if value}
    elastic = values.get("fed-elastic")
    found |= {"FED_ELASTIC": str(own_values.elastic(elastic))} if elastic else {}
    found |= {"FED_SPARE": str(int(values["fed-spare"] or 0))} if "fed-spare" in values else {}
    rails = order.jobs[0].rails
    return found | ({"FED_RAILS": str(rails)} if rails else {})


def _own(order: LaunchOrder) -> dict[str, str]:
    """The variables that only some jobs get: what was said of them, their shape, where to save."""
    array = {f"FED_ARRAY_{name}": value for name, value in _array(order).items()}
    data = {path.variable: path.absolute for path in order.data}
    own = array | _from_federation(order) | data | _output(order)
    return own | _shape(order) | _checkpoint(order) | _interval(order)


def _output(order: LaunchOrder) -> dict[str, str]:
    """The data set that it writes, and where; its folder is made before sbatch is called."""
    place = order.output
    return {} if place is None else {"FED_OUTPUT": place.label, place.variable: place.folder}


def _dependency(order: LaunchOrder) -> dict[str, str]:
    """The variable that sbatch sets for a job with a dependency."""
    given = {option.name: option.value or "" for option in order.submission.components[0]}
    asked = given.get("dependency", "")
    return {"SLURM_JOB_DEPENDENCY": asked} if asked else {}


def _array(order: LaunchOrder) -> dict[str, str]:
    """Return the array variables that sbatch sets in each task, by the ends of their names."""
    ids = ids_of(order)
    if not ids.array:
        return {}
    given = {option.name: option.value or "" for option in order.submission.components[0]}
    indices, _ = quantities.array(given["array"])
    numbers = {
        "JOB_ID": ids.array,
        "TASK_ID": ids.index,
        "TASK_COUNT": len(indices),
        "TASK_MIN": indices[0],
        "TASK_MAX": indices[-1],
        "TASK_STEP": quantities.array_step(given["array"]),
    }
    return {name: str(number) for name, number in numbers.items()}


def _from_federation(order: LaunchOrder) -> dict[str, str]:
    """The variables that hold for the whole workload, in the words of who submitted it."""
    components = order.submission.components
    said = {option.name: option.value or "" for options in components for option in options}
    found = {
        "FED_PROJECT": said.get("fed-project", ""),
        "FED_DATASET": ",".join(datasets_of(components)),
        "FED_PROGRESS": progress.longest(components),
        "FED_CONTINUE": "1" if "fed-continue" in said else "",
    }
    return {name: value for name, value in found.items() if value}


def _brought(order: LaunchOrder, ticket: str) -> str:
    """The word of the comment that job_submit/federator.lua reads, and takes out."""
    project = _from_federation(order).get("FED_PROJECT")
    named = f",project={project}" if project else ""
    return f"ticket={ticket}{named}" if ticket else ""


def _opened_by(ticket: str) -> dict[str, str]:
    return {TICKET_NAME: ticket} if ticket else {}


def _checkpoint(order: LaunchOrder) -> dict[str, str]:
    if not order.checkpoint_dir:
        return {}
    deadline = f"{order.checkpoint_dir}/.fed/deadline.{order.attempt.attempt}"
    return {"FED_CHECKPOINT_DIR": order.checkpoint_dir, "FED_PREEMPT_DEADLINE": deadline}


def _interval(order: LaunchOrder) -> dict[str, str]:
    """In whole seconds; a shell can count with them."""
    interval_s = order.checkpoint_interval_s
    if not (isfinite(interval_s) and interval_s > 0):
        return {}
    return {"FED_CHECKPOINT_INTERVAL_S": str(max(1, round(interval_s)))}


def _error(order: LaunchOrder) -> tuple[str, ...]:
    """Set by the site's helper if it cannot make the folder."""
    return ("FED_CHECKPOINT_ERROR",) if order.checkpoint_dir else ()


def fold(nodes: tuple[str, ...]) -> str:
    """Write a node list; long ones in Slurm's bracket notation."""
    if len(nodes) <= FOLD_ABOVE_NODES:
        return ",".join(nodes)
    from ClusterShell.NodeSet import NodeSet  # noqa: PLC0415 - 30 ms, and seldom needed

    return str(NodeSet.fromlist(list(nodes)))


def without_directives(script: str) -> str:
    """Turn the header's ``#SBATCH`` into ``##SBATCH``; lines stay lines, the body is untouched."""
    lines = list(header_lines(script))
    end = min(len(script), sum(len(line) + 1 for line in lines))
    header = "\n".join(f"#{line}" if line.startswith(DIRECTIVE) else line for line in lines)
    newline = "\n" if lines and script[end - 1 : end] == "\n" else ""
    return header + newline + script[end:]


def job_environment(
    order: LaunchOrder, site: str, default_path: str = DEFAULT_PATH
) -> dict[str, str]:
    """Choose what the job sees of the environment it was submitted from; see the module."""
    given: Mapping[str, str] = order.submission.environment
    kept = {name: value for name, value in given.items() if _travels(name)}
    dropped = sorted(name for name, value in kept.items() if _too_long(name, value))
    for name in dropped:
        del kept[name]
    dropped = [name for name in kept.get(DROPPED_NAMES, "").split(",") if name] + dropped
    path = kept.get("PATH", "").split(":") + default_path.split(":")
    kept["PATH"] = ":".join(dict.fromkeys(part for part in path if part))
    kept["FED_JOB_ID"] = str(order.attempt.workload)
    kept["FED_ATTEMPT"] = str(order.attempt.attempt)
    kept["FED_SITE"] = site
    kept |= _dependency(order)
    kept |= _own(order)
    kept |= {f"SLURM_ARRAY_{name}": value for name, value in _array(order).items()}
    if dropped:
        kept[DROPPED_NAMES] = ",".join(dropped)[:MAX_DROPPED_NAMES]
    return kept


def _travels(name: str) -> bool:
    return bool(name) and name not in _HOST_ONLY and not name.startswith(_HOST_ONLY_PREFIXES)


def _too_long(name: str, value: str) -> bool:
    size = (
        len(name.encode("utf-8", "surrogateescape"))
        + 1
        + len(value.encode("utf-8", "surrogateescape"))
    )
    return size > MAX_VARIABLE_BYTES or "\0" in value
