"""federation.yaml: its keys, what each may be, and how they fit together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from federator.config_files import ssh_mistakes
from federator.config_listen import MetricsConfig
from federator.config_mail import MailConfig
from federator.config_mistakes import (
    NOT_YAML,
    Loader,
    Mistake,
    brief,
    explain,
    line,
    not_yaml,
    one_of,
    one_word_of,
    refuse,
)
from federator.config_names import NamesConfig
from federator.config_policy import PolicyConfig, Seconds
from federator.config_prices import PricesConfig
from federator.config_services import AuditConfig, HistoryConfig, LogConfig, RolesConfig, Strict
from federator.config_storage import DataConfig, StorageConfig, storage_mistakes
from federator.config_tenant_checks import parent_mistakes, tenant_mistakes, tenant_warnings
from federator.config_tenants import (
    SiteKey,
    TenantConfig,
    TenantKey,
    checked_name,
    unused_quota_mode,
)
from federator.config_traces import TracesConfig
from federator.config_web import WebConfig
from federator.errors import ConfigError
from federator.history.url import history_warnings
from federator.model.site_mode import SiteMode
from federator.model.site_reader import SiteReader
from federator.model.tenant import Tenancy, Tenant
from federator.model.viewer import Privacy, Viewer
from federator.model.workload import SiteName, TenantName
from federator.policies.settings import RULE_KEYS, at_keys
from federator.sched.state.rules import Rules
from federator.slurm.options.license_option import licenses
from federator.store.opening import check_url, warnings_of

_FEDERATION: Final = re.compile(r"[A-Za-z0-9_.-]+")
_LOGIN: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:]{2,45}\])(?::[1-9][0-9]{0,4})?"
)


def _federation_name(name: str) -> str:
    if not _FEDERATION.fullmatch(name):
        raise ValueError("expected one word of A-Z a-z 0-9 . _ -")
    return name


def _license_name(name: str) -> str:
    if licenses(name) != ((name, 1),):
        raise ValueError("expected a name as --licenses takes it, without a number")
    return name


_LicenseName = Annotated[str, AfterValidator(_license_name)]
_RegionName = Annotated[str, AfterValidator(checked_name)]
_StorageName = Annotated[str, AfterValidator(checked_name)]
_GpuName = Annotated[str, AfterValidator(checked_name)]


def _login(text: str) -> str:
    """A host and maybe a port; it becomes a word of the ssh command of every user."""
    if text and not _LOGIN.fullmatch(text):
        raise ValueError("expected HOST, HOST:PORT or [IPV6]:PORT, without a user")
    return text


def _standby(text: str) -> str:
    if not text:
        raise ValueError("expected HOST, HOST:PORT or [IPV6]:PORT, without a user")
    return _login(text)


def _host_and_port(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, named = text[1:].partition("]")
        return host, int(named[1:] or port)
    host, _, named = text.partition(":")
    return host, int(named or port)


class RegionConfig(Strict):
    """Sites that share storage."""

    shared: Path
    keep_saved_h: Annotated[float, Field(ge=0, le=100 * 365 * 24)] = 2160.0  # 0: for ever

    @field_validator("shared")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError("expected an absolute path, the same at all sites of the region")
        return path


class GpuConfig(Strict):
    """One gres type: ``weight`` counts in usage; capability requests use the rest."""

    mem_gib: Annotated[int, Field(gt=0)]
    nvlink: bool = False
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0


class SshConfig(Strict):
    """The way to reach a site's agent: one account, one key, pinned host keys."""

    host: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 22
    standbys: tuple[Annotated[str, AfterValidator(_standby)], ...] = ()  # HOST or HOST:PORT
    user: str = "federator"
    key: Path
    known_hosts: Path

    @property
    def login_nodes(self) -> list[tuple[str, int]]:
        """Host and port of each login node, the first one first."""
        others = [_host_and_port(each, self.port) for each in self.standbys]
        return [(self.host, self.port), *others]

    @model_validator(mode="after")
    def _all_differ(self) -> SshConfig:
        if len(set(self.login_nodes)) <= len(self.standbys):
            raise ValueError("standbys: expected other login nodes, each once")
        return self


class Connect(Enum):
    """Which side opens the channel between a site and the daemon."""

    INBOUND = "inbound"  # the daemon, into the site
    OUTBOUND = "outbound"  # the site, out to the daemon's host


class SiteConfig(Strict):
    """One Slurm cluster. Exactly one of ``ssh`` and ``command`` says how its agent is reached;
    a site that dials has neither."""

    region: str
    connect: Annotated[Connect, BeforeValidator(partial(one_word_of, Connect))] = Connect.INBOUND
    ssh: SshConfig | None = None
    command: tuple[str, ...] = ()  # starts the agent as a local process
    partitions: Annotated[tuple[str, ...], Field(min_length=1)]
    poll_interval_s: Seconds = 10.0
    mode: Annotated[SiteMode, BeforeValidator(partial(one_word_of, SiteMode))] = SiteMode.ENFORCED
    reader: Annotated[SiteReader, BeforeValidator(partial(one_word_of, SiteReader))] = (
        SiteReader.CLI
    )
    login: Annotated[str, AfterValidator(_login)] = ""  # where its users log in: HOST[:PORT]
    users: tuple[str, ...] | None = None  # for whom it may speak, "@TENANT" for all of one's users
    names: NamesConfig = NamesConfig()  # what it calls otherwise

    @model_validator(mode="after")
    def _one_way(self) -> SiteConfig:
        if self.dials:
            if self.ssh is not None or self.command:
                raise ValueError("with connect: outbound give neither 'ssh' nor 'command'")
        elif (self.ssh is None) == (not self.command):
            raise ValueError("give exactly one of 'ssh' and 'command'")
        return self

    def has_standby(self) -> bool:
        """Whether the daemon may reach it by another login node."""
        return self.ssh is not None and bool(self.ssh.standbys)

    @property
    def dials(self) -> bool:
        """Whether the site opens its channel itself."""
        return self.connect is Connect.OUTBOUND


class FederationConfig(Strict):
    """All of federation.yaml."""

    federation: Annotated[str, AfterValidator(_federation_name)]
    store: str  # sqlite:///ABSOLUTE/PATH, or memory: for trials
    socket: Path = Path("/run/federator/daemon.sock")
    log: LogConfig = LogConfig()
    history: HistoryConfig = HistoryConfig()
    metrics: MetricsConfig = MetricsConfig()
    traces: TracesConfig = TracesConfig()
    policy: PolicyConfig = PolicyConfig()
    web: WebConfig = WebConfig()
    prices: PricesConfig = PricesConfig()
    privacy: Annotated[Privacy, BeforeValidator(partial(one_word_of, Privacy))] = Privacy.OPEN
    audit: AuditConfig = AuditConfig()
    mail: MailConfig = MailConfig()
    roles: RolesConfig = RolesConfig()
    regions: dict[_RegionName, RegionConfig] = Field(default={})
    gpus: dict[_GpuName, GpuConfig] = Field(default={})
    sites: Annotated[dict[SiteKey, SiteConfig], Field(min_length=1)]
    tenants: dict[TenantKey, TenantConfig] = Field(default={})
    storage: dict[_StorageName, StorageConfig] = Field(default={})
    data: DataConfig = DataConfig()
    licenses: dict[_LicenseName, Annotated[int, Field(ge=0, le=10**9)]] = Field(default={})

    @field_validator("store")
    @classmethod
    def _known_store(cls, url: str) -> str:
        try:
            check_url(url)
        except ValueError as error:  # without the URL itself: it may hold a password
            refuse([((), str(error))])
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> FederationConfig:
        refuse(
            [
                *self._region_mistakes(),
                *parent_mistakes(self.tenants),
                *tenant_mistakes(self.tenants, self.sites, self.gpus),
                *storage_mistakes(self.storage, self.sites),
            ]
        )
        return self

    def _region_mistakes(self) -> Iterator[Mistake]:
        for name, site in self.sites.items():
            if site.region not in self.regions:
                meant = one_of(site.region, self.regions)
                message = f"unknown region '{brief(site.region)}'; {meant}"
                yield ("sites", name, "region"), message
            yield from self._name_mistakes(name, site)
            for k, user in enumerate(site.users or ()):
                tenant = user.removeprefix("@")
                if user.startswith("@") and tenant not in self.tenants:
                    message = f"unknown tenant '{brief(tenant)}'; {one_of(tenant, self.tenants)}"
                    yield ("sites", name, "users", str(k)), message

    def _name_mistakes(self, name: SiteName, site: SiteConfig) -> Iterator[Mistake]:
        """Names of a site for what there is not, or that cannot be told apart there."""
        known: dict[str, tuple[str, Collection[str]]] = {
            "accounts": ("tenant", self.tenants),
            "partitions": ("partition", site.partitions),
            "gpu_types": ("GPU type", self.gpus),
            "users": ("user of a tenant", self._users),
        }
        at = ("sites", name, "names")
        for kind, (word, names) in known.items():
            for here in getattr(site.names, kind):
                if here not in names:
                    message = f"unknown {word} '{brief(here)}'; {one_of(here, names)}"
                    yield (*at, kind, here), message
        unlisted = {
            "partitions": site.partitions,
            "gpu_types": tuple(self.gpus),
            "users": tuple(self._users) if site.names.users else (),
        }
        for keys, message in site.names.mistakes(unlisted):
            yield (*at, *keys), message

    def file_mistakes(self) -> Iterator[Mistake]:
        """The errors in the files that the sites' keys name."""
        for name, site in self.sites.items():
            if (ssh := site.ssh) is not None:
                for keys, message in ssh_mistakes(ssh.key, ssh.known_hosts, ssh.login_nodes):
                    yield ("sites", name, "ssh", *keys), message

    def tenants_of(self, user: str) -> list[TenantName]:
        """The tenants a user belongs to, in the file's order; the first is the default."""
        return [name for name, tenant in self.tenants.items() if user in tenant.users]

    @property
    def _users(self) -> dict[str, None]:
        """All users of tenants, once, in the file's order."""
        return dict.fromkeys(user for tenant in self.tenants.values() for user in tenant.users)

    def user_at(self, site: SiteName, name: str) -> str | None:
        """The user of the federation whom a site calls so; None: that account is nobody's."""
        return self.sites[site].names.user_here(name) if site in self.sites else name

    def name_at(self, site: str, user: str) -> str:
        """What a site calls a user of the federation; anywhere else it is the same name."""
        known = self.sites.get(SiteName(site))
        return known.names.users.get(user, user) if known is not None else user

    def speaks_for(self, site: SiteName, user: str) -> bool:
        """Whether a site's agent is believed that a call is by this user."""
        users = self.sites[site].users if site in self.sites else None
        if users is None or user in users:
            return True
        return any(f"@{tenant}" in users for tenant in self.tenants_of(user))

    def viewer(
        self, user: str, *, operator: bool, administers: Collection[TenantName] = ()
    ) -> Viewer | None:
        """What of the queue and the history a user sees; None: all of it."""
        if operator or self.privacy is Privacy.OPEN:
            return None
        own = self.tenants_of(user) if self.privacy is Privacy.TENANT else ()
        return Viewer(user=user, tenants=frozenset([*own, *administers]))

    def usage_viewer(
        self, user: str, sees_all: bool, administers: Collection[TenantName] = ()
    ) -> Viewer | None:
        """What of the usage a user sees, which is no more where the queue is open; None: all."""
        if sees_all:
            return None
        own = () if self.privacy is Privacy.OWN else self.tenants_of(user)
        return Viewer(user=user, tenants=frozenset([*own, *administers]))

    def watches(self, site: SiteName) -> bool:
        """Whether a site's own jobs are recorded: somebody there is not in mode enforced."""
        modes = (self.sites[site].mode, *(tenant.mode for tenant in self.tenants.values()))
        return SiteMode.lowest(modes) is not SiteMode.ENFORCED

    def tenancy(self) -> Tenancy:
        """The tenants as the core knows them."""
        tenants = [
            Tenant(
                name=name,
                priority=tenant.priority,
                quota=tenant.quota.allowance if tenant.quota else None,
                limit=tenant.limit.allowance,
                parent=tenant.parent,
                home=tenant.home,
                start_within_s=tenant.start_within_s,
                jobs=tenant.job_limits,
                unused_quota=unused_quota_mode(name, self.tenants, self.policy.unused_quota.mode),
                mode=tenant.mode,
            )
            for name, tenant in self.tenants.items()
        ]
        gpus, credit = {name: gpu.weight for name, gpu in self.gpus.items()}, self.policy.credit
        return Tenancy(tenants, gpus, credit.cpu_weight, credit.mem_gib_weight)

    @property
    def rules(self) -> Rules:
        """The settings that the core's decisions depend on."""
        regions = {name: site.region for name, site in self.sites.items()}
        storage = {name: each.domain for name, each in self.storage.items()}
        modes = {name: site.mode for name, site in self.sites.items()}
        fixed = Rules(
            regions=regions,
            storage=storage,
            staging=self.data.staging,
            moving=self.data.moving,
            shadow=frozenset(name for name, mode in modes.items() if not mode.acts),
            advisory=frozenset(n for n, mode in modes.items() if mode is SiteMode.ADVISORY),
            opt_in=frozenset(n for n, mode in modes.items() if mode is SiteMode.OPT_IN),
            licenses=self.licenses,
            prices=self.prices.price_list().rules,
            unused=self.policy.unused_quota.rules,
            slow_nodes=self.policy.slow_nodes.rules,
            quiet_hours=self.policy.defragment.quiet,
        )
        return replace(fixed, **at_keys(self.policy, RULE_KEYS))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that is allowed, and probably not what the admin means."""
        return (
            *warnings_of(self.store),
            *history_warnings(self.history.url, self.store),
            *self.web.warnings(),
            *self.metrics.warnings,
            *tenant_warnings(self.tenants, self.policy),
        )


def load_config(path: Path, *, with_files: bool = False) -> FederationConfig:
    """Read federation.yaml; relative paths of keys and socket are taken from the file's folder.

    Args:
        path: of federation.yaml.
        with_files: whether the files that it names must be there, too.

    Raises:
        ConfigError: one line per mistake, each with file, line, key and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        tree = yaml.compose(text, Loader=Loader)
        values = yaml.load(text, Loader=Loader)  # noqa: S506  # it is a SafeLoader
    except NOT_YAML as error:
        raise ConfigError(f"{path}:{not_yaml(text, error)}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}:1: expected a mapping with keys such as 'federation' and 'sites'"
        )
    try:
        config = FederationConfig.model_validate(values)
    except ValidationError as error:
        lines = explain(path, tree, FederationConfig, error.errors())
        raise ConfigError("\n".join(lines)) from error
    anchored = _anchored(config, path.resolve().parent)
    lines = [line(path, tree, *each) for each in anchored.file_mistakes()] if with_files else []
    if lines:
        raise ConfigError("\n".join(lines))
    return anchored


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
