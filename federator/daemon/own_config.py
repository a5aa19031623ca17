"""The daemon's own federation.yaml: a daemon made of it, and the keys that a reload may change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import yaml

from federator.config import FederationConfig, load_config
from federator.config_changes import AT_RESTART, changes
from federator.config_mistakes import NOT_YAML, Loader, line
from federator.errors import ConfigError
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger
from federator.wire.status_rows import KeyChange

_AT_RESTART: Final = "changes only by a restart of the daemon"


class ConfigSource(Protocol):
    """The daemon's configuration can be read from it again."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def load(self) -> FederationConfig:
        """Read it anew.

        Raises:
            ConfigError: it is not valid.
        """
        ...

    def mistake(self, keys: tuple[str, ...], message: str) -> str:
        """One line that says where it is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A federation.yaml."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def load(self) -> FederationConfig:
        return load_config(self.path)

    def mistake(self, keys: tuple[str, ...], message: str) -> str:
        try:
            tree = yaml.compose(self.path.read_text(encoding="utf-8"), Loader=Loader)
        except (OSError, *NOT_YAML):  # it was replaced a moment ago
            tree = None
        return line(self.path, tree, keys, message)


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """A configuration that never changes."""

    config: FederationConfig

    @property
    def name(self) -> str:
        return "the configuration"

    def load(self) -> FederationConfig:
        return self.config

    def mistake(self, keys: tuple[str, ...], message: str) -> str:
        return f"{'.'.join(keys)}: {message}"


class OwnConfig:
    """The configuration that a daemon goes by, and where it can be read from again.

    Args:
        config: as read at the start.
        source: None: it never changes.

    Attributes:
        now: the one in force.
    """

    def __init__(self, config: FederationConfig, source: ConfigSource | None = None) -> None:
        self.now = config
        self.source: ConfigSource = FixedConfig(config) if source is None else source

    def is_to_dial(self, site: SiteName) -> bool:
        """Whether a site is to open its channel itself."""
        now = self.now.sites.get(site)
        return now is not None and now.dials

    def changes_to(self, config: FederationConfig, ledger: Ledger) -> tuple[KeyChange, ...]:
        """The keys that a reload would change.

        Raises:
            ConfigError: one line for each key that only a restart changes, and for each site and
                tenant that still has workloads.
        """
        found = changes(self.now, config)
        lines = [
            self.source.mistake(tuple(each.key.split(".")), _AT_RESTART)
            for each in found
            if each.key in AT_RESTART
        ]
        lines += [self.source.mistake(keys, message) for keys, message in _missing(config, ledger)]
        if lines:
            raise ConfigError("\n".join(lines))
        return found


def new_federation(config: FederationConfig) -> Federation:
    """One without a history."""
    sites = {name: site.partitions for name, site in config.sites.items()}
    ledger = Ledger(config.tenancy(), config.policy.credit.usage.average())
    return Federation(sites, config.policy.order, config.rules, ledger)


def shared_folders(config: FederationConfig) -> dict[SiteName, Path]:
    """The folder that each site shares with its region."""
    return {name: config.regions[site.region].shared for name, site in config.sites.items()}


def check_complete(config: FederationConfig, ledger: Ledger) -> None:
    """Check that no live workload lacks its site, or its tenant.

    Raises:
        ConfigError: one does.
    """
    for _, message in _missing(config, ledger):
        raise ConfigError(message)


def _missing(config: FederationConfig, ledger: Ledger) -> Iterator[tuple[tuple[str, ...], str]]:
    """What the configuration lacks: the key, and what needs it."""
    at_sites = {entry.site for entry in ledger.in_state(*AT_SITE)}
    for name in sorted(at_sites - set(config.sites)):
        yield (
            ("sites",),
            f"the log has live workloads at site {name!r}, which the configuration lacks; leave "
            "the site in until they have ended",
        )
    for name in sorted(at_sites & config.rules.shadow):
        mode = config.sites[name].mode.value
        yield (
            ("sites", name, "mode"),
            f"the log has live workloads at site {name!r}, which mode {mode} would leave alone for "
            "ever; drain the site first",
        )
    # Without its tenant a workload would have no quota, and no limit either.
    live = (state for state in WorkloadState if state not in TERMINAL)
    needed = {entry.workload.tenant for entry in ledger.in_state(*live)}
    for tenant in sorted(needed - set(config.tenants)):
        yield (
            ("tenants",),
            f"the log has live workloads of tenant {tenant!r}, which the configuration lacks; "
            "leave the tenant in (its users may go) until they have ended or are cancelled",
        )
