"""Checks the names in wants.yaml against the sites: one that nothing has would weaken a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from federator.cli.capacity_wants import WantsFile
from federator.cli.node_lists import expanded
from federator.config_mistakes import Loader, Mistake, brief, line, one_of
from federator.errors import ConfigError
from federator.model.site import Snapshot


def check_names(
    path: Path, file: WantsFile, snapshots: Sequence[Snapshot], sites: Collection[str]
) -> None:
    """Refuse names that no site has; only of ``sites`` without a snapshot nothing is known.

    A spare partition may be unknown: one that a plan has emptied looks the same.

    Raises:
        ConfigError: one line per name, each with file, line and key.
    """
    tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=Loader)
    found = [
        *_of_partitions(file, snapshots, sites),
        *_of_domains(file, snapshots, sites),
    ]
    if found:
        raise ConfigError("\n".join(line(path, tree, keys, message) for keys, message in found))


def _of_partitions(
    file: WantsFile, snapshots: Sequence[Snapshot], sites: Collection[str]
) -> Iterator[Mistake]:
    types = sorted({node.gpu_type for taken in snapshots for node in taken.nodes if node.gpu_type})
    for name, want in file.partitions.items():
        at = ("partitions", name)
        yield from _unknown((*at, "sites"), "site", want.sites, sites)
        yield from _unknown((*at, "near"), "storage domain", want.near, file.domains.storage)
        if len(snapshots) == len(sites):
            for gpu_type in want.gpu_types:
                if gpu_type not in types:
                    yield (*at, "gpu_types", gpu_type), f"no node has it; {one_of(gpu_type, types)}"


def _unknown(
    keys: tuple[str, ...], kind: str, names: Iterable[str], known: Collection[str]
) -> Iterator[Mistake]:
    for number, name in enumerate(names):
        if name not in known:
            yield (*keys, str(number)), f"no {kind} {brief(name)}; {one_of(name, known)}"


def _of_domains(
    file: WantsFile, snapshots: Sequence[Snapshot], sites: Collection[str]
) -> Iterator[Mistake]:
    places = {
        str(taken.site): {place for node in taken.nodes for place in (node.name, node.switch)}
        for taken in snapshots
    }
    for kind in ("rack", "power", "storage"):
        racks = () if kind == "rack" else file.domains.rack
        for domain, texts in getattr(file.domains, kind).items():
            for number, text in enumerate(texts):
                keys = ("domains", kind, domain, str(number))
                site, _, names = text.partition(":")
                if site not in sites:
                    yield keys, f"no site {brief(site)}; {one_of(site, sites)}"
                for name in expanded(names, ".".join(keys)) if site in places else ():
                    if name not in places[site] and name not in racks:
                        yield keys, f"{site} has no node or rack {brief(name)}"
