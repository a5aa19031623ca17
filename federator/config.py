"""What does federation.yaml say? Parsed, checked, and every mistake named by file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from federator.errors import ConfigError
from federator.model.workload import SiteName, TenantName
from federator.policies import POLICIES
from federator.sched.policy import Policy

_PLANNED = {"mast": "fifo"}  # policies of the file format that are still to come, and a stand-in
_Positive = Annotated[float, Field(gt=0)]
_Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CreditConfig(_Strict):
    """Weights of MAST's credit. Read, and not used before the credit ranking is there."""

    per_hour_waited: float = 1.0
    age_cap_h: _Positive = 168.0
    fair_share: float = 24.0
    usage_window_h: _Positive = 168.0


class PreemptionConfig(_Strict):
    """Limits of preemption. Read, and not used before preemption is there."""

    grace_s: _Seconds = 120.0
    cooldown_s: _Seconds = 3600.0
    budget_frac: Annotated[float, Field(ge=0, le=1)] = 0.05
    budget_window_s: _Seconds = 600.0


class PolicyConfig(_Strict):
    """How the queue is ordered and how patient the federation is."""

    name: str = "fifo"
    credit: CreditConfig = CreditConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    pass_interval_s: _Seconds = 300.0
    launch_lease_s: _Seconds = 60.0
    bid_timeout_s: _Seconds = 5.0

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        known = (*POLICIES, *_PLANNED)
        if name not in known:
            raise ValueError(f"unknown policy; one of {', '.join(known)}")
        return name

    @property
    def order(self) -> Policy:
        """The policy that ranks the queue: for a planned one, what stands in for it."""
        return POLICIES[_PLANNED.get(self.name, self.name)]

    @property
    def warning(self) -> str:
        """What an admin should know of the policy; "" when all is well."""
        if self.name not in _PLANNED:
            return ""
        return (
            f"policy {self.name!r} is not there yet: the queue is ordered by priority, then "
            "submission; quota, credit and preemption settings have no effect"
        )


class RegionConfig(_Strict):
    """Sites that share storage."""

    shared: Path


class GpuConfig(_Strict):
    """What one gres type is worth. Ranking (weight) and capability requests will use it."""

    mem_gib: Annotated[int, Field(gt=0)]
    nvlink: bool = False
    weight: Annotated[float, Field(gt=0)] = 1.0


class SshConfig(_Strict):
    """How to reach a site's agent: one account, one key, one pinned host key."""

    host: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 22
    user: str = "federator"
    key: Path
    known_hosts: Path


class SiteConfig(_Strict):
    """One Slurm cluster. Exactly one of ``ssh`` and ``command`` says how its agent is reached."""

    region: str
    ssh: SshConfig | None = None
    command: tuple[str, ...] = ()  # starts the agent as a local process
    partitions: Annotated[tuple[str, ...], Field(min_length=1)]
    poll_interval_s: _Seconds = 10.0

    @model_validator(mode="after")
    def _one_way(self) -> SiteConfig:
        if (self.ssh is None) == (not self.command):
            raise ValueError("give exactly one of 'ssh' and 'command'")
        return self


class Amounts(_Strict):
    """GPUs and CPUs in simultaneous use."""

    gpus: Annotated[int, Field(ge=0)] | None = None
    cpus: Annotated[int, Field(ge=0)] | None = None


class TenantConfig(_Strict):
    """A Slurm account of the federation. Quota and limit are read, and not enforced yet."""

    priority: Annotated[int, Field(ge=1, le=7)] = 7
    quota: Amounts = Amounts()
    limit: Amounts = Amounts()
    users: tuple[str, ...] = ()


class FederationConfig(_Strict):
    """All of federation.yaml."""

    federation: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    store: str  # sqlite:///ABSOLUTE/PATH, or memory: for trials
    socket: Path = Path("/run/federator/daemon.sock")
    policy: PolicyConfig = PolicyConfig()
    regions: dict[str, RegionConfig] = {}
    gpus: dict[str, GpuConfig] = {}
    sites: Annotated[dict[SiteName, SiteConfig], Field(min_length=1)]
    tenants: dict[TenantName, TenantConfig] = {}

    @model_validator(mode="after")
    def _regions_exist(self) -> FederationConfig:
        for name, site in self.sites.items():
            if site.region not in self.regions:
                known = ", ".join(self.regions) or "none"
                raise PydanticCustomError(
                    "region",
                    "unknown region '{region}'; one of {known}",
                    {"region": site.region, "known": known, "at": ("sites", name, "region")},
                )
        return self

    @field_validator("store")
    @classmethod
    def _known_store(cls, url: str) -> str:
        if url.startswith("redis://"):
            raise ValueError("the Redis store is not there yet; use sqlite:///PATH")
        if url != "memory:" and not (url.startswith("sqlite:///") and len(url) > len("sqlite:///")):
            raise ValueError("expected sqlite:///PATH")
        return url

    @model_validator(mode="after")
    def _no_root(self) -> FederationConfig:
        for name, tenant in self.tenants.items():
            if "root" in tenant.users:
                raise ValueError(f"tenant {name!r} lists root; any site's root could then use it")
        return self

    def tenants_of(self, user: str) -> list[TenantName]:
        """The tenants a user belongs to, in the file's order; the first is the default."""
        return [name for name, tenant in self.tenants.items() if user in tenant.users]


class _Loader(yaml.SafeLoader):
    """YAML in which every key counts once, and every mistake has a line."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConstructorError(None, None, f"{key.value}: given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # such as a date in month 13
            raise ConstructorError(None, None, str(error), node.start_mark) from error


def _not_yaml(text: str, error: yaml.YAMLError) -> str:
    line, problem = 1, " ".join(str(error).split())
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line, problem = error.problem_mark.line + 1, error.problem or problem
    elif isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
    return f"{line}: not YAML as expected: {problem}"


def load_config(path: Path) -> FederationConfig:
    """Read federation.yaml; relative paths of keys and socket are taken from the file's folder.

    Raises:
        ConfigError: one line per mistake, each with file, line, key and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        tree = yaml.compose(text, Loader=_Loader)
        values = yaml.load(text, Loader=_Loader)  # noqa: S506  # it is a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:{_not_yaml(text, error)}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}:1: expected a mapping with keys such as 'federation' and 'sites'"
        )
    try:
        config = FederationConfig.model_validate(values)
    except ValidationError as error:
        lines = [_explain(path, tree, dict(e)) for e in error.errors()]
        raise ConfigError("\n".join(lines)) from error
    return _anchored(config, path.resolve().parent)


def _explain(path: Path, tree: yaml.Node | None, error: dict[str, Any]) -> str:
    keys = [str(key) for key in error.get("ctx", {}).get("at", error["loc"])]
    line = _line_of(tree, keys)
    message = str(error["msg"]).removeprefix("Value error, ")
    found = "" if isinstance(error.get("input"), dict) else f" (found {error.get('input')!r})"
    if error["type"] == "missing":
        found = ""
    return f"{path}:{line}: {'.'.join(keys) or 'file'}: {message}{found}"


def _line_of(node: yaml.Node | None, keys: list[str]) -> int:
    """The line of the innermost of ``keys`` that the file has, counted from 1."""
    line = 1
    for key in keys:
        child = None
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if name.value == key:
                    line, child = name.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            child = node.value[int(key)]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line


def _anchored(config: FederationConfig, folder: Path) -> FederationConfig:
    """Make the paths of keys absolute."""
    sites = {}
    for name, site in config.sites.items():
        ssh = site.ssh
        if ssh is not None:
            ssh = ssh.model_copy(
                update={"key": folder / ssh.key, "known_hosts": folder / ssh.known_hosts}
            )
        sites[name] = site.model_copy(update={"ssh": ssh})
    return config.model_copy(update={"sites": sites, "socket": folder / config.socket})
