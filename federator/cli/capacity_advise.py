"""``federator capacity advise``: how full GPU types are, how long work waits, what more does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from federator.cli.text import counted, listed, printable, slurm_span
from federator.errors import InvalidRequest
from federator.usage.queueing import TARGET, variation_of, wait_ratio
from federator.usage.supply import CellKey, Supplied, SupplyRow

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from federator.config import FederationConfig
    from federator.history.past_work import PastWork
    from federator.sim.advice import Gain, SimulatedWait, TypedNodes

_DAY_S: Final = 86_400.0
MOST: Final = 4_000  # workloads that are simulated, unless more are asked for
_HALF: Final = 0.5
_LEFT_OUT_FRAC: Final = 0.05  # of a type's workloads; more is said
_WIDTHS: Final = (-8, 6, 7, 6, 6, 10, 12, 12)


class PoolLoad(NamedTuple):
    """One GPU type of the whole fleet, over the days that were asked for."""

    gpu_type: str
    gpus: int  # that work of the federation could have had, on average
    jobs: int  # that came in that time
    load_frac: float
    variation: float  # of run times
    servers: float  # jobs of the mean size that it holds
    run_mean_s: float
    wait_mean_s: float
    wait_p95_s: float
    formula_s: float  # the mean wait by load and variation


class _Month(NamedTuple):
    """What the history has of these days."""

    start_s: float
    end_s: float
    supply: Mapping[CellKey, Supplied]
    held: Mapping[CellKey, tuple[int, int]]
    latest: Sequence[SupplyRow]
    work: Sequence[PastWork]


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="federation.yaml.")
@click.option("--days", type=click.IntRange(1, 400), default=28, help="So many, up to now.")
@click.option("--more", type=click.IntRange(1, 100_000), default=20, help="GPUs to try, of a type.")
@click.option("--gpu-type", metavar="NAMES", help="Try more of these types only.")
@click.option(
    "--most",
    type=click.IntRange(1, 500_000),
    default=MOST,
    show_default=True,
    help="Workloads to live through again, the latest.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def advise(
    config: Path, days: int, more: int, gpu_type: str | None, most: int, as_json: bool
) -> None:
    """How full each GPU type is, how long work waits for it, and what more GPUs would change.

    Reads the history, and lives through the last weeks again in the simulator with more GPUs of one
    type at a time. Nothing is changed. docs/capacity.md says what it leaves out.

    Example: federator capacity advise --config federation.yaml --more 20 --gpu-type a100
    """
    from federator.config import load_config  # noqa: PLC0415
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415

    loaded = load_config(config)
    url = history_url(loaded.history.url, loaded.store)
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url)")
    month = _month(open_reader(url), days, loaded)
    nodes = nodes_of(month)
    loads = [_load(month, nodes, each) for each in sorted({n.gpu_type for n in nodes})]
    wanted = set(listed(gpu_type)) if gpu_type is not None else {each.gpu_type for each in loads}
    unknown = wanted - {each.gpu_type for each in loads}
    if unknown:
        raise InvalidRequest(f"--gpu-type: no site has {printable(min(unknown))!r}")
    latest = latest_of(month, most)
    gains = _gains(latest, nodes, loaded, sorted(wanted), more)
    if as_json:
        found = _json(month, loads, gains, more) | {"simulated_from_s": latest.start_s}
        click.echo(msgspec.json.encode(found).decode())
    else:
        bound = _bound_text(month, latest)
        click.echo("\n".join([*_table(loads), *_advice(loads, gains, latest, more), *bound]))


def _month(engine: Engine, days: int, config: FederationConfig) -> _Month:
    from federator.history.past_work import past_work  # noqa: PLC0415
    from federator.history.usage_query import UsageQuestion, find  # noqa: PLC0415

    last = int(time.time() // _DAY_S) + 1
    question = UsageQuestion(
        first_day=last - 1 - days, end_day=last, columns=("gpu_type",), sites=tuple(config.sites)
    )
    found = find(engine, question)
    past = past_work(engine, found.start_s, found.end_s)
    if not past.is_whole:
        raise InvalidRequest(f"more than {len(past.work)} workloads; ask for fewer --days")
    known = [each for each in past.work if each.site in config.sites]
    there = [row for row in past.supply if row.site in config.sites]
    return _Month(found.start_s, found.end_s, found.supply, found.held, there, known)


def latest_of(month: _Month, most: int) -> _Month:
    """The last whole days (UTC) to which no more workloads came than so many; all, if they do.

    With what still ran when they began. Where even one day has more, its last ones.
    """
    came = sorted(each.came_s for each in month.work)
    if len(came) <= most:
        return month
    since_s = came[-most]
    midnight_s = -(-since_s // _DAY_S) * _DAY_S
    since_s = midnight_s if midnight_s <= came[-1] else since_s
    work = [w for w in month.work if w.came_s >= since_s or w.start_s + w.ran_s > since_s]
    return month._replace(start_s=max(since_s, month.start_s), work=work)


def _bound_text(month: _Month, latest: _Month) -> Iterator[str]:
    if latest is not month:
        came = sum(each.came_s >= latest.start_s for each in latest.work)
        days = max(1, ceil((latest.end_s - latest.start_s) / _DAY_S))
        yield (
            f"simulated: the last {counted(days, 'day')}, {came} of {len(month.work)} workloads; "
            "--most for more"
        )


def _available_ms(supplied: Supplied) -> int:
    """Of the supply, what work of the federation could have had."""
    gone = supplied.local_gpu_ms + supplied.drained_gpu_ms + supplied.down_gpu_ms
    return max(0, supplied.gpu_ms - gone)


def nodes_of(month: _Month) -> tuple[TypedNodes, ...]:
    """The nodes that sites have now, fewer by what was local, drained or down on average.

    All nodes of a site and type get one size. Where there are two, the mean would be too small for
    work that had whole nodes of the larger one.
    """
    from federator.sim.advice import TypedNodes  # noqa: PLC0415

    found, had = [], _most_per_node(month.work)
    for row in sorted(month.latest):
        if row.gpus <= 0 or row.nodes <= 0:
            continue
        cells = [month.supply[k] for k in month.supply if k[1:] == (row.site, row.gpu_type)]
        whole = sum(each.gpu_ms for each in cells)
        frac = sum(map(_available_ms, cells)) / whole if whole else 1.0
        mean = -(-row.gpus // row.nodes)
        per_node = max(mean, min(row.gpus, had.get((row.site, row.gpu_type), 0)))
        found.append(
            TypedNodes(
                site=row.site,
                gpu_type=row.gpu_type,
                nodes=round(row.gpus * frac / per_node),
                gpus_per_node=per_node,
            )
        )
    return tuple(found)


def _most_per_node(work: Iterable[PastWork]) -> dict[tuple[str, str], int]:
    """The most GPUs of one type that a workload had on each of its nodes, by site and type."""
    found: dict[tuple[str, str], int] = {}
    for each in work:
        if len(each.gpu_types) <= 1:
            key = (each.site, (each.gpu_types or ("",))[0])
            found[key] = max(found.get(key, 0), -(-each.gpus // each.nodes))
    return found


def _load(month: _Month, nodes: Sequence[TypedNodes], gpu_type: str) -> PoolLoad:
    cells = [k for k in month.supply if k.gpu_type == gpu_type and month.supply[k].gpu_ms]
    available = sum(_available_ms(month.supply[k]) for k in cells)
    held = sum(month.held.get(k, (0, 0))[0] for k in cells)
    came = [each for each in _of_type(month.work, gpu_type) if each.came_s >= month.start_s]
    run_s = [each.ran_s for each in came]
    waits_s = sorted(each.start_s - each.came_s for each in came)
    gpus = sum(n.nodes * n.gpus_per_node for n in nodes if n.gpu_type == gpu_type)
    servers = gpus / fmean(each.gpus for each in came) if came else float(gpus)
    load = held / available if available else 0.0
    mean_s, variation = fmean(run_s) if run_s else 0.0, variation_of(run_s)
    return PoolLoad(
        gpu_type=gpu_type,
        gpus=gpus,
        jobs=len(came),
        load_frac=load,
        variation=variation,
        servers=servers,
        run_mean_s=mean_s,
        wait_mean_s=fmean(waits_s) if waits_s else 0.0,
        wait_p95_s=waits_s[-(-len(waits_s) * 95 // 100) - 1] if waits_s else 0.0,
        formula_s=mean_s * wait_ratio(load, variation, servers) if mean_s else 0.0,
    )


def _of_type(work: Iterable[PastWork], gpu_type: str) -> list[PastWork]:
    return [each for each in work if (each.gpu_types or ("",))[0] == gpu_type]


def _gains(
    month: _Month,
    nodes: Sequence[TypedNodes],
    config: FederationConfig,
    types: Sequence[str],
    more: int,
) -> dict[str, Gain]:
    """The P95 waits of each type's own workloads, with and without more of it."""
    from federator.sim.advice import gain, replayed, with_more  # noqa: PLC0415

    if not month.work:
        return {}
    before = replayed(month.work, nodes, config, month.start_s)
    found = {}
    for name in types:
        mine = {each.id for each in _of_type(month.work, name)}
        after = replayed(month.work, with_more(nodes, name, more), config, month.start_s)
        found[name] = gain(_only(before, mine), _only(after, mine))
    return found


def _only(waits: Mapping[int, SimulatedWait], ids: set[int]) -> dict[int, SimulatedWait]:
    return {id_: wait for id_, wait in waits.items() if id_ in ids}


def _table(loads: Sequence[PoolLoad]) -> list[str]:
    head = ("GPUTYPE", "GPUS", "JOBS", "LOAD", "C_S", "WAITMEAN", "WAITP95", "FORMULA")
    rows: list[Sequence[str]] = [head]
    for each in loads:
        rows.append(
            (
                printable(each.gpu_type or "-"),
                str(each.gpus),
                str(each.jobs),
                f"{each.load_frac:.1%}",
                f"{each.variation:.2f}",
                slurm_span(each.wait_mean_s),
                slurm_span(each.wait_p95_s),
                slurm_span(each.formula_s) if isfinite(each.formula_s) else "-",
            )
        )
    return [
        " ".join(
            cell.ljust(-width) if width < 0 else cell.rjust(width)
            for cell, width in zip(row, _WIDTHS, strict=True)
        ).rstrip()
        for row in rows
    ]


def _advice(
    loads: Sequence[PoolLoad], gains: Mapping[str, Gain], simulated: _Month, more: int
) -> list[str]:
    lines = []
    low, high = TARGET
    for load in loads:
        name = printable(load.gpu_type or "GPUs of no type")
        if load.load_frac < low:
            lines.append(f"{name}: less than {low:.0%} is used; fewer would do, if nobody waits")
        elif load.load_frac > high:
            lines.append(f"{name}: more than {high:.0%} is used; waits grow fast from here")
        if load.gpu_type in gains:
            mine = _of_type(simulated.work, load.gpu_type)
            jobs = sum(each.came_s >= simulated.start_s for each in mine)
            lines += [f"{name}: {text}" for text in _gain_texts(gains[load.gpu_type], jobs, more)]
    return lines


def _gain_texts(gain: Gain, came: int, more: int) -> list[str]:
    left_out = came - gain.workloads
    if not gain.workloads:
        return [f"{counted(more, 'GPU')} more: none of its work could be simulated"]
    lines = [_gain_text(gain, more)]
    if left_out > _LEFT_OUT_FRAC * came:
        jobs = counted(came, "workload")
        lines.append(f"{left_out} of {jobs} never start in the simulation: they are not in that")
    return lines


def _gain_text(gain: Gain, more: int) -> str:
    gpus = counted(more, "GPU")
    if gain.ratio is None:
        return f"{gpus} more: in the simulation 19 of 20 start at once already"
    text = (
        f"{gpus} more: P95 wait {slurm_span(gain.before_s)} > {slurm_span(gain.after_s)} in the "
        f"simulation, {gain.ratio:.2f} of it"
    )
    if gain.interval is None:
        return f"{text}; too few days for an interval"
    text += f" ({gain.interval.low:.2f} to {gain.interval.high:.2f})"
    return text + (": it halves" if gain.interval.high <= _HALF else "")


def _json(
    month: _Month, loads: Sequence[PoolLoad], gains: Mapping[str, Gain], more: int
) -> dict[str, Any]:
    return {
        "schema": 1,
        "start_s": month.start_s,
        "end_s": month.end_s,
        "more_gpus": more,
        "pools": [_json_pool(each, gains.get(each.gpu_type)) for each in loads],
    }


def _json_pool(load: PoolLoad, gain: Gain | None) -> dict[str, Any]:
    found: dict[str, Any] = load._asdict()
    if not isfinite(load.formula_s):
        found["formula_s"] = None
    found["with_more"] = None
    if gain is not None:
        interval = gain.interval
        found["with_more"] = {
            "workloads": gain.workloads,
            "p95_before_s": gain.before_s,
            "p95_after_s": gain.after_s,
            "ratio": gain.ratio,
            "ratio_low": None if interval is None else interval.low,
            "ratio_high": None if interval is None else interval.high,
        }
    return found
