"""Every key of federation.yaml in a line, for ``federator config explain`` and for editors.

NAME and TYPE stand for names that the file gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from federator.config import FederationConfig
from federator.config_changes import AT_RESTART
from federator.config_mistakes import expected_of, type_of

ABOUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "federation": "The federation's name, as --parsable and --clusters spell it.",
        "store": "The event log: sqlite:///PATH, redis://HOST:PORT/DB, or memory: for trials.",
        "socket": "Unix socket for commands on the daemon's host.",
        "log.keep_ended_h": "Workloads that ended longer ago leave the log with a snapshot.",
        "history.url": "Where ended workloads are kept: sqlite:///PATH, postgresql://… or none.",
        "history.keep_days": "Ended workloads leave the history after so many days.",
        "web.listen": "Where federator web listens: HOST:PORT, or unix:/PATH behind a proxy.",
        "web.account": "The account of federator web: its process may act for users; none: nobody.",
        "web.operators": "Users who may drain, and act on all jobs, through the page.",
        "web.proxies": "Addresses, or unix, whose user_header is believed; none: nobody's.",
        "web.user_header": "The header in which a proxy names the user.",
        "web.hosts": "Names under which browsers reach the page, beside web.listen's own.",
        "web.tokens": "File of users' tokens, as hashes; see federator web --help.",
        "metrics.listen": "Where Prometheus scrapes: HOST:PORT or unix:/PATH; none: nowhere.",
        "traces.file": "A file for OpenTelemetry's spans of workloads; none: none.",
        "traces.endpoint": "A collector on loopback that takes them by OTLP over HTTP; none: none.",
        "traces.ratio": "The part of all workloads that is traced, 0 to 1.",
        "audit.dir": "The folder of the audit; left out: beside a log that is a file; none: none.",
        "audit.max_mib": "Its files grow to this size.",
        "audit.decisions_mib": "Room for what awards were decided on, for federator log decide.",
        "mail.smtp": "HOST:PORT of this host's own mail server; none: no mail.",
        "mail.command": "A program in its place, called as Slurm's MailProg.",
        "mail.sender": "The address that mails come from.",
        "mail.domain": "The domain of users who name no address; none: the bare name.",
        "mail.per_user_h": "The most mails for one user in an hour.",
        "roles.operator_groups": "Unix groups of operators, on the daemon's host.",
        "roles.viewer_groups": "Unix groups that see everything, and change nothing of others.",
        "privacy": "Whose jobs a user sees: open (all), tenant (of the same tenants), own.",
        "policy.name": "The order of the queue: mast, or global-fifo.",
        "policy.pass_interval_s": "A scheduling pass is made at least this often.",
        "policy.launch_lease_s": "An accepted job must start within this time, or is withdrawn.",
        "policy.bid_timeout_s": "A site that answers later gave no bid.",
        "policy.forecast_ends": "Whether sites reserve by predicted ends where limits say nothing.",
        "policy.cells": "Whether jobs break the smallest free cells that hold them.",
        "policy.price_weight": "Steps in which a price of 1 counts in bids; 0: it does not.",
        "policy.spot_interruptions": "So many in a day end a job's use of spot; 0: none do.",
        "policy.enable_user_top": "Whether users may put their own jobs first: fscontrol top.",
        "policy.lending": "Whether firm work over quota keeps to the planner's forecasts.",
        "policy.unused_quota.mode": "Whether quotas that are hardly used are lent fully.",
        "policy.unused_quota.below_frac": "Less than this of a quota is hardly any use of it.",
        "policy.unused_quota.days": "So many whole days of hardly any use.",
        "policy.unused_quota.notice_h": "The time between the notice and the loan.",
        "policy.slow_nodes.budget_frac": "Of a site's nodes, gangs are kept off so many at most.",
        "policy.slow_nodes.quarantine_s": "For so long, the first time that a node is slow.",
        "policy.slow_nodes.restart_s": "From the end of a gang that moves to its next first step.",
        "policy.credit.per_hour_waited": "Credit for an hour of waiting.",
        "policy.credit.fair_share": "Credit of a tenant that used nothing lately.",
        "policy.credit.per_nice": "Credit taken off for each unit of --nice.",
        "policy.credit.non_preemptible": "Credit taken off from work that may not be evicted.",
        "policy.credit.cpu_weight": "GPUs that a CPU counts as in usage, where that is more.",
        "policy.credit.mem_gib_weight": "GPUs that a GiB of memory counts as, likewise.",
        "policy.credit.age_cap_h": "Waiting longer adds no credit.",
        "policy.credit.usage_window_h": "A tenant's usage is its average over this time.",
        "policy.credit.usage_half_life_h": "Usage decays with this half-life instead.",
        "policy.preemption.grace_s": "The time that a victim has to save and leave.",
        "policy.preemption.cooldown_s": "After an eviction a workload is spared for this time.",
        "policy.preemption.min_run_s": "After its start a workload is spared for this time.",
        "policy.preemption.budget_frac": "The fraction of all GPUs that a window may evict.",
        "policy.preemption.budget_window_s": "The window of the eviction budget.",
        "policy.preemption.budget_lost_gpu_s": "Work that a window may destroy; 0: no bound.",
        "policy.preemption.max_saves_per_region": "Victims that save at a time; 0: no bound.",
        "policy.preemption.beyond_budget_frac": "The fraction besides, for start objectives.",
        "policy.defragment.mode": "Whether small jobs move to other nodes so that a gang fits.",
        "policy.defragment.max_moves": "Jobs that move in a window of the eviction budget.",
        "policy.defragment.margin": "Waiting saved is at least so many times the work lost.",
        "policy.defragment.quiet_hours": "HH:MM-HH:MM, UTC, in which jobs move; none: always.",
        "policy.max_data_sets": "The most data sets in the catalogue; each version is one.",
        "policy.max_data_sets_per_user": "The most of one owner, unless an operator adds them.",
        "policy.interactive.max_s": "The longest time limit of fsalloc and fsrun.",
        "policy.interactive.silence_s": "A session not heard for so long is cancelled.",
        "regions.NAME.shared": "The folder that all sites of the region mount at this path.",
        "regions.NAME.keep_saved_h": "Checkpoint folders go so long after the end; 0: never.",
        "gpus.TYPE.mem_gib": "Memory of one GPU, for --fed-gpu-mem.",
        "gpus.TYPE.nvlink": "Whether the GPUs of a node are joined by NVLink.",
        "gpus.TYPE.weight": "The weight of one GPU in a tenant's usage.",
        "sites.NAME.region": "The region whose storage the site mounts.",
        "sites.NAME.ssh.host": "The host where the site's agent is reached.",
        "sites.NAME.ssh.port": "Its port.",
        "sites.NAME.ssh.standbys": "Other login nodes, HOST[:PORT], which serve when it is lost.",
        "sites.NAME.ssh.user": "The account of the agent.",
        "sites.NAME.ssh.key": "The private key; relative to the file's folder.",
        "sites.NAME.ssh.known_hosts": "The pinned host key; relative to the file's folder.",
        "sites.NAME.connect": "outbound: the site dials the daemon; inbound: the daemon connects.",
        "sites.NAME.command": "Starts the agent as a local process, instead of ssh.",
        "sites.NAME.partitions": "Partitions that the federation may use, best first.",
        "sites.NAME.login": "Where its users log in, for fsalloc and fsrun; left out: ssh.host.",
        "sites.NAME.users": "For whom its agent may speak; @TENANT: its users; left out: for all.",
        "sites.NAME.names.accounts.NAME": "The tenant's account at the site.",
        "sites.NAME.names.qos.NAME": "The site's name of a QOS.",
        "sites.NAME.names.users.NAME": "The user's account at the site, where it has another name.",
        "sites.NAME.names.partitions.NAME": "The site's name of one of partitions.",
        "sites.NAME.names.gpu_types.TYPE": "The site's gres type of a GPU type.",
        "sites.NAME.names.features.NAME": "The site's name of a feature.",
        "sites.NAME.mode": "How far the federation acts: shadow, advisory, opt-in or enforced.",
        "sites.NAME.reader": "How its agent reads Slurm: by commands (cli), pyslurm, or auto.",
        "sites.NAME.poll_interval_s": "Between two looks at Slurm while nothing is launched.",
        "tenants.NAME.priority": "Of its work within quota: 1 is the highest, 7 the lowest.",
        "tenants.NAME.parent": "The tenant whose quota and limit count for this one, too.",
        "tenants.NAME.quota.gpus": "GPUs that are guaranteed in simultaneous use.",
        "tenants.NAME.quota.cpus": "CPUs that are guaranteed; left out: they do not count.",
        "tenants.NAME.quota.gpu_types.TYPE": "GPUs of one type that are guaranteed, of gpus.",
        "tenants.NAME.home": "The sites at which the quota is guaranteed; none: at every site.",
        "tenants.NAME.start_within_s": "Work within quota starts within this time; 0: as it comes.",
        "tenants.NAME.unused_quota": "Its own policy.unused_quota.mode; left out: its parent's.",
        "tenants.NAME.mode": "How far the federation acts for it; a site's lower mode holds there.",
        "tenants.NAME.limit.gpus": "The most GPUs in simultaneous use, borrowed ones included.",
        "tenants.NAME.limit.cpus": "The most CPUs in simultaneous use.",
        "tenants.NAME.limit.gpu_types.TYPE": "The most GPUs of one type.",
        "tenants.NAME.max_submit_jobs": "The most jobs that may wait or run, with all below it.",
        "tenants.NAME.max_jobs": "The most jobs that run at once, with all below it.",
        "tenants.NAME.max_submit_jobs_per_user": "The most jobs of one user that wait or run.",
        "tenants.NAME.max_jobs_per_user": "The most jobs of one user that run at once.",
        "tenants.NAME.require_project": "Whether a job without --fed-project is refused.",
        "tenants.NAME.admin_groups": "Unix groups that may hold, requeue and cancel its work.",
        "tenants.NAME.users": "The users who may charge it; a user's first tenant is the default.",
        "prices.currency": "Shown beside costs.",
        "prices.rules": "What an hour costs; of each price the first rule that matches counts.",
        "storage.NAME.mounts.NAME": "The path at which a site mounts the storage domain.",
        "storage.NAME.rclone": "An object store, as REMOTE:BUCKET/PATH of its users' rclone.",
        "storage.NAME.capacity_tib": "The room for data sets in TiB; 0: not told.",
        "storage.NAME.keep_free_gib": "Room in GiB that no copy of a data set takes.",
        "storage.NAME.copy_mib_per_s": "The most that each copy to it takes in MiB/s; 0: no bound.",
        "storage.NAME.copy_streams": "How many rsyncs make each copy to it, side by side.",
        "data.stage": "Whether data sets are copied by themselves for jobs that wait.",
        "data.stage_max_gib": "Larger data sets are not copied by themselves.",
        "data.checkpoint_keep_free_gib": "Room in a region's shared folder that no copy takes.",
        "data.checkpoint_mib_per_s": "The most that each copy of a checkpoint takes; 0: no bound.",
        "data.checkpoints": "Whether checkpoints go to other regions: of jobs that wait, or run.",
        "data.output_grace_h": "Hours after which the folder of a job that failed is removed.",
        "data.planning": "Whether plans of where data sets should be are shown, or carried out.",
        "data.move_quota_gib_per_day": "What plans may have copied in any 24 hours.",
        "data.stage_at_once": "Copies for jobs that are under way at most.",
        "data.removal_grace_h": "Hours for which files of a retired replica stay.",
        "data.unused_days": "Copies for jobs that none was given for so long go; 0: never.",
        "licenses.NAME": "Licences that all sites share, for --licenses=NAME.",
    }
)


class ConfigKey(NamedTuple):
    """One key, with dots."""

    name: str
    expects: str  # such as "a number above 0"
    default: str  # "": it is required
    about: str
    at_restart: bool  # a reload refuses to change it


def config_keys() -> Iterator[ConfigKey]:
    """All keys, in the order of the model."""
    for name, field in _fields(FederationConfig):
        default = "" if field.is_required() else _shown(field.default)
        expects = expected_of(field)
        yield ConfigKey(name, expects, default, ABOUT.get(name, ""), name in AT_RESTART)


def generic_name(key: str) -> str:
    """A key as the catalogue has it: ``tenants.vision.priority`` is ``tenants.NAME.priority``."""
    words = key.split(".")
    if len(words) > 1 and words[0] in ("regions", "sites", "tenants", "gpus", "storage"):
        words[1] = "TYPE" if words[0] == "gpus" else "NAME"
    if words[0] == "sites" and words[2:3] == ["names"] and len(words) > 4:
        words[4] = "NAME"
    if words[0] == "storage" and words[2:3] == ["mounts"] and len(words) > 3:
        words[3] = "NAME"
    if "gpu_types" in words[:-1]:
        words[words.index("gpu_types") + 1] = "TYPE"
    return ".".join(words)


def described_schema() -> dict[str, Any]:
    """The JSON schema of federation.yaml, with a description of each key."""
    schema = FederationConfig.model_json_schema()
    definitions = schema.get("$defs", {})
    for name, about in ABOUT.items():
        place: Any = schema
        for word in name.split("."):
            place = _below(place, word, definitions)
            if place is None:
                break
        if isinstance(place, dict):
            place["description"] = about
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "federation.yaml",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _below(place: Mapping[str, Any], word: str, definitions: Mapping[str, Any]) -> Any:
    """The schema of a key below another one, whatever references lead there."""
    for each in (place, *place.get("anyOf", ())):
        found = definitions[each["$ref"].rsplit("/", 1)[1]] if "$ref" in each else each
        if word in ("NAME", "TYPE"):
            named = found.get("additionalProperties")
            if isinstance(named, dict):
                return named
        elif word in found.get("properties", {}):
            return found["properties"][word]
    return None


def _fields(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        key = f"{above}.{name}" if above else name
        kind = type_of(field)
        if get_origin(kind) is dict:
            key += ".TYPE" if name in ("gpus", "gpu_types") else ".NAME"
            kind = get_args(kind)[1]
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, key)
        else:
            yield key, field


def _shown(value: object) -> str:
    if value is None or value in ((), "", {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
