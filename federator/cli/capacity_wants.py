"""Reads wants.yaml (docs/formats.md): how large each partition is to be, and what fails as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from federator.cli.node_lists import expanded
from federator.config_mistakes import NOT_YAML, Loader, explain, not_yaml
from federator.config_services import Strict
from federator.config_tenants import checked_name
from federator.errors import ConfigError, InvalidRequest
from federator.model.site import Snapshot
from federator.model.workload import MAX_AMOUNT
from federator.planner.capacity.fleet import CapacityNode, Costs, FailureDomain, Want

_Size = Annotated[int, Field(ge=1, le=MAX_AMOUNT, strict=True)]
_Part = Annotated[float, Field(gt=0, le=1)]
_Worth = Annotated[float, Field(ge=0, le=1)]
_Cost = Annotated[float, Field(ge=0, le=1000)]
_Name = Annotated[str, AfterValidator(checked_name)]
_Lists = dict[_Name, tuple[str, ...]]


class PartitionWant(Strict):
    """What a partition is to be."""

    gpus: _Size | None = None
    nodes: _Size | None = None
    sites: tuple[str, ...] = ()
    gpu_types: dict[str, _Worth] = Field(default={})
    buffer_frac: Annotated[float, Field(ge=0, le=10)] = 0.0
    survives: tuple[FailureDomain, ...] = ()
    spread: dict[FailureDomain, _Part] = Field(default={})
    near: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_a_size(self) -> PartitionWant:
        if (self.gpus is None) == (self.nodes is None):
            raise ValueError("give 'gpus' or 'nodes', one of them")
        return self

    def want(self, name: str) -> Want:
        return Want(
            name=name,
            size=self.gpus or self.nodes or 0,
            in_nodes=self.gpus is None,
            sites=self.sites,
            gpu_types=self.gpu_types,
            buffer_frac=self.buffer_frac,
            survives=self.survives,
            spread=self.spread,
            near=self.near,
        )


class DomainWants(Strict):
    """What fails as one, beyond leaf switches: lists of ``SITE:NAMES``, nodes or racks."""

    rack: _Lists = Field(default={})
    power: _Lists = Field(default={})
    storage: _Lists = Field(default={})


class CostWants(Strict):
    """What a plan pays for a node."""

    drain: Annotated[float, Field(gt=0, le=1000)] = 1.0
    join: Annotated[float, Field(gt=0, le=1000)] = 0.1
    preference: _Cost = 1.0
    far: _Cost = 1.0


class WantsFile(Strict):
    """The whole file."""

    partitions: Annotated[dict[_Name, PartitionWant], Field(min_length=1)]
    spare: tuple[_Name, ...] = ()
    domains: DomainWants = DomainWants()
    costs: CostWants = CostWants()

    @property
    def wants(self) -> tuple[Want, ...]:
        return tuple(partition.want(name) for name, partition in self.partitions.items())

    @property
    def as_costs(self) -> Costs:
        return Costs(**self.costs.model_dump())

    @model_validator(mode="after")
    def _spares_are_not_wanted(self) -> WantsFile:
        both = sorted({*self.spare} & {*self.partitions})
        if both:
            raise ValueError(f"spare: {both[0]} is under 'partitions', too; it is one of the two")
        return self


def read_wants(path: Path) -> WantsFile:
    """Read wants.yaml.

    Raises:
        ConfigError: one line per mistake, each with file, line, key and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        tree = yaml.compose(text, Loader=Loader)
        values = yaml.load(text, Loader=Loader)  # noqa: S506  # it is a SafeLoader
    except NOT_YAML as error:
        raise ConfigError(f"{path}:{not_yaml(text, error)}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}:1: expected a mapping with the key 'partitions'")
    try:
        return WantsFile.model_validate(values)
    except ValidationError as error:
        lines = explain(path, tree, WantsFile, error.errors())
        raise ConfigError("\n".join(lines)) from error


def nodes_of(
    snapshots: Iterable[Snapshot], file: WantsFile
) -> tuple[list[CapacityNode], dict[str, dict[str, list[str]]]]:
    """The nodes that a plan may use, and each site's partitions with all of their nodes.

    A node that is in none of the partitions and in no spare one is left out, unless it is in no
    partition at all.

    Raises:
        InvalidRequest: a node is in two partitions of the file, or a name in it is of no node.
    """
    nodes: list[CapacityNode] = []
    members: dict[str, dict[str, list[str]]] = {}
    for snapshot in snapshots:
        own = members.setdefault(snapshot.site, {})
        for node in snapshot.nodes:
            partitions = (*node.partitions, *node.closed_partitions)
            for name in partitions:
                if name in file.partitions or name in file.spare:
                    own.setdefault(name, []).append(node.name)
            wanted = [name for name in partitions if name in file.partitions]
            if len(wanted) > 1:
                raise InvalidRequest(
                    f"{snapshot.site}:{node.name} is in the partitions {' and '.join(wanted)}; "
                    "a plan gives each node to one: leave the others out of 'partitions'"
                )
            if not (wanted or not partitions or set(partitions) & set(file.spare)):
                continue
            nodes.append(
                CapacityNode(
                    site=snapshot.site,
                    name=node.name,
                    gpu_type=node.gpu_type,
                    gpus=node.gpus,
                    rack=f"{snapshot.site}:{node.switch}" if node.switch else "",
                    partition=wanted[0] if wanted else "",
                    usable=node.state.takes_jobs and not node.reserved,
                    busy=node.gpus_alloc > 0 or node.cpus_alloc > 0,
                )
            )
    return _placed(nodes, file.domains), members


def wants_at(file: WantsFile, members: Mapping[str, Mapping[str, list[str]]]) -> tuple[Want, ...]:
    """The wants; one that names no site may have nodes where its partition has some already.

    Raises:
        InvalidRequest: a partition has none at any site.
    """
    found = []
    for want in file.wants:
        sites = want.sites or tuple(site for site, own in members.items() if want.name in own)
        if not sites:
            raise InvalidRequest(
                f"partitions.{want.name}: no site shows a node in it; if it exists without nodes, "
                "list its 'sites'"
            )
        found.append(replace(want, sites=sites))
    return tuple(found)


def _placed(nodes: list[CapacityNode], domains: DomainWants) -> list[CapacityNode]:
    """With the domains of the file; racks first, since the others may name them."""
    for kind in ("rack", "power", "storage"):
        nodes = _placed_in(nodes, kind, getattr(domains, kind))
    for node in nodes:
        switch = node.rack.removeprefix(f"{node.site}:")
        if switch != node.rack and switch in domains.rack:
            raise InvalidRequest(
                f"domains.rack.{switch}: {node.site} has a leaf switch of that name with other "
                f"nodes, such as {node.name}; list them, or take another name"
            )
    return nodes


def _placed_in(
    nodes: list[CapacityNode], kind: str, lists: Mapping[str, tuple[str, ...]]
) -> list[CapacityNode]:
    domain_of: dict[tuple[str, str], str] = {}
    for domain, texts in lists.items():
        for text in texts:
            site, mark, names = text.partition(":")
            if not mark:
                raise InvalidRequest(
                    f"domains.{kind}.{domain}: expected SITE:NAMES, found {text[:80]!r}"
                )
            for name in expanded(names, f"domains.{kind}.{domain}"):
                if domain_of.setdefault((site, name), domain) != domain:
                    raise InvalidRequest(
                        f"domains.{kind}: {site}:{name} is in {domain_of[site, name]} and {domain}"
                    )
    found = []
    for node in nodes:
        rack = node.rack.removeprefix(f"{node.site}:")
        by_rack = domain_of.get((node.site, rack), getattr(node, kind))
        place = domain_of.get((node.site, node.name), by_rack)
        found.append(replace(node, **{kind: place}))
    return found
