"""``federator whatif --live``: the queue as it is now, under another configuration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from federator.cli.client import call
from federator.cli.log import opened
from federator.cli.progress import progress_bar
from federator.cli.text import counted, printable, refused, slurm_span, unexpected
from federator.config import FederationConfig, load_config
from federator.daemon.own_config import new_federation
from federator.errors import InvalidRequest
from federator.model.site import Snapshot
from federator.model.workload import SiteName
from federator.sim.live import Future, future
from federator.sim.report.live_report import LiveAnswer, LiveChange, LiveSide, compare_futures
from federator.store.replaying import replay_log
from federator.wire.agent_protocol import unpacked
from federator.wire.client_protocol import ErrorKind, ErrorReply, SnapshotCall, SnapshotReply

_HOUR_S: Final = 3600.0


class ConfigBeside(msgspec.Struct, frozen=True):
    """A configuration under which the queue goes on, with the sites drained in it."""

    name: str
    config: FederationConfig
    drained: tuple[SiteName, ...] = ()


def alternatives(paths: Sequence[Path], drained: Sequence[str]) -> list[ConfigBeside]:
    """As things are, by the first file, and what is put beside it.

    Raises:
        InvalidRequest: there is nothing to put beside it, or a site is none of a file.
        ConfigError: of a file.
    """
    configs = [load_config(path) for path in paths]
    for path, config in zip(paths, configs, strict=True):
        for site in drained:
            if site not in config.sites:
                known = ", ".join(list(config.sites)[:10])
                raise InvalidRequest(
                    f"--drain: {printable(site)}: expected a site of {path} ({known})"
                )
    if len(paths) == 1 and not drained:
        raise InvalidRequest(
            "--live: name what is to be put beside the present: a second --config, or --drain SITE"
        )
    sites = tuple(SiteName(site) for site in drained)
    words = "".join(f", {site} drained" for site in sites)
    others = list(zip(paths, configs, strict=True))[1:] or [(paths[0], configs[0])]
    return [
        ConfigBeside("as it is", configs[0]),
        *(ConfigBeside(f"{path}{words}", config, sites) for path, config in others),
    ]


def show_live(
    asked: Sequence[ConfigBeside], now_s: float, hours: float, draws: int, *, as_json: bool
) -> None:
    """Look at the queue and the sites, simulate, and print an answer for each alternative.

    Args:
        asked: the first is how things are; its federation.yaml names the store.
        now_s: Unix time.
        hours: so far ahead.
        draws: so many times, each with other run times.
        as_json: print JSON, a line for each answer.
    """
    _, store = opened(asked[0].config.store, None)
    records = list(store.records())
    snapshots, notes = _snapshots(asked[0].config)
    if not snapshots:
        raise InvalidRequest(f"--live: no site to look at: {'; '.join(notes)}")
    span_s = (now_s, now_s + hours * _HOUR_S)
    futures: list[list[Future]] = []
    with progress_bar("simulating", len(asked) * draws) as progress:
        for each in asked:
            futures.append([])
            for seed in range(draws):
                futures[-1].append(_future(each, records, snapshots, span_s, seed))
                progress(1)
    look = now_s, span_s[1] - now_s, [str(snapshot.site) for snapshot in snapshots]
    for each, after in zip(asked[1:], futures[1:], strict=True):
        answer = compare_futures(each.name, futures[0], after, look)
        if as_json:
            click.echo(msgspec.json.encode(answer))
        else:
            click.echo("\n".join([*table(answer), *notes]))


def _future(
    each: ConfigBeside,
    records: Sequence[bytes],
    snapshots: Sequence[Snapshot],
    span_s: tuple[float, float],
    seed: int,
) -> Future:
    """From a ledger of its own: a simulation goes on with it."""
    federation = new_federation(each.config)
    replay_log(federation, records)
    here = [snapshot for snapshot in snapshots if snapshot.site in each.config.sites]
    return future(federation.ledger, here, each.config, each.drained, span_s, seed)


def _snapshots(config: FederationConfig) -> tuple[list[Snapshot], list[str]]:
    """Of the sites that are there, and a note on each other."""
    found, notes = [], []
    for site in config.sites:
        reply = call(SnapshotCall(site=site))
        if isinstance(reply, SnapshotReply):
            found.append(unpacked(reply.snapshot))
        elif isinstance(reply, ErrorReply):
            if reply.kind is ErrorKind.DENIED:
                raise refused(reply)
            notes.append(f"left out: {printable(site)}: {printable(reply.message)}")
        else:
            raise unexpected(reply)
    return found, notes


def table(answer: LiveAnswer) -> list[str]:
    """A line for each tenant that has something waiting, and for all."""
    rows = [*answer.tenants, answer.in_all]
    names = max(6, *(len(printable(row.name)) for row in rows))
    held, gone = answer.allocation_frac, answer.preemptions
    when = datetime.fromtimestamp(answer.begin_s, UTC).strftime("%Y-%m-%d %H:%M")
    return [
        f"{when} UTC and the next {slurm_span(answer.span_s)}, {counted(answer.draws, 'draw')}; "
        f"as it is > {printable(answer.name)}",
        f"{'TENANT':<{names}} {'WAITING':>7} {'STARTED':>13} {'WAITMEAN':>23} {'WAITP95':>23} "
        f"{'LATER':>6} {'EARLIER':>7}",
        *(_line(row, names) for row in rows),
        f"GPUs held {held[0]:.1%} > {held[1]:.1%}; preemptions {gone[0]:.1f} > {gone[1]:.1f}",
    ]


def _line(row: LiveChange, names: int) -> str:
    before, after = row.before, row.after
    started = f"{before.started} > {after.started}"
    return (
        f"{printable(row.name):<{names}} {row.waiting:>7} {started:>13} "
        f"{_waits(before, after)} {row.later:>6} {row.earlier:>7}"
    )


def _waits(before: LiveSide, after: LiveSide) -> str:
    pairs = (before.wait_mean_s, after.wait_mean_s), (before.wait_p95_s, after.wait_p95_s)
    return " ".join(
        f"{'-' if a is None or b is None else f'{slurm_span(a)} > {slurm_span(b)}':>23}"
        for a, b in pairs
    )
