"""``federator recover``: rebuilds a lost queue from the sites and an export."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from federator.cli.text import counted
from federator.errors import InvalidRequest

if TYPE_CHECKING:
    from federator.agent.journal import Served
    from federator.config import FederationConfig
    from federator.daemon.recover import BySite, Recovered
    from federator.model.workload import SiteName
    from federator.wire.transport import Transport

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--config", type=_PATH, required=True, help="The federation.yaml.")
@click.option("--export", "exported", type=_PATH, help="What federator log export wrote.")
@click.option(
    "--without", multiple=True, metavar="SITE", help="Do not ask this site; may come again."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def recover(config: Path, exported: Path | None, without: Sequence[str], as_json: bool) -> None:
    """Write a new event log from what the sites remember, and from an export of the old one.

    The daemon is stopped, and the old log, if there is one, has been moved away. Every site must
    answer: a job that was pending in the export may run there.

    Example: federator recover --config /etc/federator/federation.yaml --export queue.jsonl
    """
    from federator.cli.services import log_to_stderr  # noqa: PLC0415  # slow to import, as the next
    from federator.config import load_config  # noqa: PLC0415

    loaded = load_config(config)
    unknown = sorted(set(without) - set(loaded.sites))
    if unknown:
        raise InvalidRequest(f"there is no site {unknown[0]!r}; one of {', '.join(loaded.sites)}")
    asked = [name for name in loaded.sites if name not in without]
    if any(loaded.sites[name].dials for name in asked):
        log_to_stderr("info")  # which sites have dialled; standard output is the result's
    found = _recovered(loaded, asked, exported)
    if as_json:
        print(json.dumps(_as_json(found, without)))
        return
    for line in _lines(found, without):
        print(line)


def _recovered(
    config: FederationConfig, asked: Sequence[SiteName], exported: Path | None
) -> Recovered:
    from federator.agent.journal import Served  # noqa: PLC0415
    from federator.daemon.recover import led_empty_store, rebuild  # noqa: PLC0415
    from federator.model.workload import TERM_S  # noqa: PLC0415
    from federator.store.export import read_export  # noqa: PLC0415
    from federator.store.opening import open_store  # noqa: PLC0415

    now_s = time.time()
    records = list(read_export(exported)) if exported is not None else []
    known = rebuild(config, records, {}, now_s, 0)  # a bad export must disturb no site
    store = open_store(config.store, accept_loss=True)
    try:
        epoch = led_empty_store(store, int(now_s))
        term = Served(epoch, config.federation, known.log_began or epoch)
        by_site = asyncio.run(ask_sites(config, asked, term))
        found = rebuild(config, records, by_site, time.time(), epoch)
        store.compact(found.records)  # in pages: a store may refuse so many at once
    finally:
        store.close()
    time.sleep(max(0.0, now_s + TERM_S - time.time()))
    return found


async def ask_sites(config: FederationConfig, asked: Sequence[SiteName], term: Served) -> BySite:
    """Ask these sites what they remember; those that dial are waited for at the daemon's door.

    Raises:
        SiteUnavailable: some do not tell; the message names them.
    """
    from federator.daemon.edges import transport_of  # noqa: PLC0415
    from federator.daemon.recover import ask_all  # noqa: PLC0415
    from federator.daemon.site_door import SiteDoor  # noqa: PLC0415
    from federator.wire.attaching import door_beside  # noqa: PLC0415

    sites = config.sites
    door = SiteDoor(door_beside(config.socket), lambda name: name in asked and sites[name].dials)

    def way_to(name: SiteName) -> Transport:
        return door.way_to(name) if sites[name].dials else transport_of(sites[name])

    try:
        return await ask_all(config, asked, term, way_to)
    finally:
        door.close()


def _as_json(found: Recovered, without: Sequence[str]) -> dict[str, object]:
    return {
        "epoch": found.epoch,
        "records": len(found.records),
        "at_sites": found.at_sites,
        "pending": found.pending,
        "from_sites": found.from_sites,
        "ended": found.ended,
        "told": {str(site): number for site, number in found.attempts_of.items()},
        "without": list(without),
        "unknown": list(found.unknown),
    }


def _lines(found: Recovered, without: Sequence[str]) -> list[str]:
    counts = ", ".join(f"{site} {number}" for site, number in found.attempts_of.items())
    lines = [
        f"a new log of {counted(len(found.records), 'record')}, epoch {found.epoch}",
        f"attempts that sites told of: {counts or 'none'}",
        f"at sites now: {found.at_sites}; pending: {found.pending}",
        f"not in the export, known from sites: {found.from_sites}",
        f"ended since the export: {found.ended}",
    ]
    lines += [f"cannot be rebuilt: {attempt}" for attempt in found.unknown]
    if without:
        names = ", ".join(without)
        lines.append(f"not asked: {names}; what was started there since the export may run twice")
    return [*lines, "start the daemon now"]
