"""``federator log``: verifies the event log, prints it, and shows a past state."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import click
import msgspec

from federator.cli.out_file import out_file
from federator.cli.queue_json import json_of
from federator.cli.queue_table import render
from federator.cli.text import counted, printable
from federator.errors import DamagedLog, InvalidRequest, StoreError
from federator.sched.passes.federation import Federation
from federator.store.base import Store
from federator.store.replaying import LogSeen, replay_log
from federator.wire.client_protocol import QueueCall

_PATH = click.Path(path_type=Path)


def _log_options(command: Callable[..., None]) -> Callable[..., None]:
    store = click.option("--store", "url", metavar="URL", help="As in federation.yaml.")
    config = click.option("--config", type=_PATH, help="The federation.yaml that names the store.")
    return store(config(command))


@click.group()
def log() -> None:
    """Look at the event log, also beside a running daemon; nothing is changed.

    Example: federator log verify --config /etc/federator/federation.yaml
    """


@log.command()
@_log_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def verify(url: str | None, config: Path | None, as_json: bool) -> None:
    """Read the whole log: checksums, and that every record follows from those before it.

    Also that it goes as far as this host noted that it was acknowledged. Exit status 65 says that
    it is damaged, or an older copy.

    Example: federator log verify --store sqlite:///var/lib/federator/daemon/queue.db
    """
    where, store = opened(url, config)
    federation, seen = replayed(up_to_its_mark(where, store))
    found = _summary(where, federation, seen)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print(f"{printable(where)}: sound")
    _print_summary(found)


@log.command()
@_log_options
@click.option("--out", type=_PATH, help="Write to this file; by default to standard output.")
def export(url: str | None, config: Path | None, out: Path | None) -> None:
    """Write the log as lines of JSON, for keeping elsewhere (docs/formats.md).

    It holds every job script: a new file may be read by its owner only.

    Example: federator log export --config federation.yaml --out queue.jsonl
    """
    from federator.store.export import write_export  # noqa: PLC0415

    where, records = _records(url, config)
    before = os.umask(0o077)
    try:
        with out_file(out, "--out", binary=True) as file:
            count = write_export(records, file or sys.stdout.buffer)
    finally:
        os.umask(before)
    sys.stdout.buffer.flush()
    print(f"{printable(where)}: {counted(count, 'record')} exported", file=sys.stderr)


@log.command()
@_log_options
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Only the first N records.")
@click.option("--json", "as_json", is_flag=True, help="Print the queue as of then as JSON.")
def replay(url: str | None, config: Path | None, until: int | None, as_json: bool) -> None:
    """Rebuild the state from the log, and show the queue as it was.

    Example: federator log replay --config federation.yaml --until 2000
    """
    from federator.daemon.views import queue_rows  # noqa: PLC0415  # only where the daemon is

    where, records = _records(url, config)
    federation, seen = replayed(islice(records, until))
    everything = max(1, len(federation.ledger.entries))
    rows, _ = queue_rows(federation, QueueCall(ended=as_json, files=as_json), everything)
    now_s = seen.last_at_s
    if as_json:
        print(json_of(rows, now_s))
        return
    _print_summary(_summary(where, federation, seen))
    print(render(list(rows), now_s, header=True, why=False))


@log.command()
@_log_options
@click.argument("award", metavar="N")
@click.option("--dir", "folder", type=_PATH, help="The audit's folder, if not beside the log.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def decide(
    award: str, url: str | None, config: Path | None, folder: Path | None, as_json: bool
) -> None:
    """Make an award again from what was seen then, and say which term decided.

    N is a workload (its last award), an attempt (fed:4294967300:2), or the number of a record
    of the log. What was decided is compared with the log's record, bit for bit; status 65 says that
    they differ.

    Example: federator log decide 4294967300 --config /etc/federator/federation.yaml
    """
    from federator.cli.log_decide import show_decision  # noqa: PLC0415
    from federator.config import load_config  # noqa: PLC0415

    named = load_config(config).audit.dir if config is not None else ""
    where, store = opened(url, config)
    show_decision(
        award, store, str(folder) if folder is not None else named, where, as_json=as_json
    )


class NoSuchLog(StoreError):
    """No file is where the log should be."""


def opened(url: str | None, config: Path | None) -> tuple[str, Store]:
    """The log that the options name, and what to call it.

    Raises:
        InvalidRequest: not exactly one of them is given.
        NoSuchLog: there is none.
        StoreError: it cannot be opened.
    """
    from federator.config import load_config  # noqa: PLC0415
    from federator.store.opening import open_store  # noqa: PLC0415

    if (url is None) == (config is None):
        raise InvalidRequest("name the log by --store URL or by --config FILE, one of them")
    url = load_config(config).store if config is not None else str(url)
    path = Path(url.removeprefix("sqlite://"))
    if url.startswith("sqlite:"):
        try:
            path.stat()
        except FileNotFoundError as error:
            raise NoSuchLog(f"{path}: there is no such log") from error
        except OSError as error:
            raise StoreError(f"{path}: cannot be looked at: {error.strerror}") from error
    return url, open_store(url)


def _records(url: str | None, config: Path | None) -> tuple[str, Iterable[bytes]]:
    where, store = opened(url, config)
    return where, store.records()


def up_to_its_mark(url: str, store: Store) -> Iterator[bytes]:
    """Every record of a log.

    Raises:
        DamagedLog: at its end, that records are missing that were acknowledged.
    """
    from federator.store.chain import LogEnd, read_mark, what_is_lost  # noqa: PLC0415
    from federator.store.opening import mark_file_of  # noqa: PLC0415

    file = mark_file_of(url)
    mark = read_mark(file) if file is not None else None  # before the log: that may grow meanwhile
    end = LogEnd()
    for place, record in store.read_on(None):
        end = place.end
        yield record
    lost = what_is_lost(end, mark, file) if file is not None else None
    if lost:
        raise DamagedLog(f"{url}: {lost}")


def replayed(records: Iterable[bytes]) -> tuple[Federation, LogSeen]:
    """What a log's records tell, and how many of which kind there are.

    Raises:
        DamagedLog, StoreError: as ``replay_log``.
    """
    from federator.policies.fifo import Fifo  # noqa: PLC0415
    from federator.sched.state.rules import Rules  # noqa: PLC0415

    federation = Federation({}, Fifo(), Rules())  # a history needs neither sites nor an order
    return federation, replay_log(federation, records)


class LogSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of ``federator log verify``."""

    schema: int = 1
    store: str
    records: int
    kinds: dict[str, int]
    epoch: int  # of the last term; 0: none has begun
    last_at_s: float  # Unix time of the last record
    workloads: dict[str, int]  # by state


def _summary(where: str, federation: Federation, seen: LogSeen) -> LogSummary:
    ledger = federation.ledger
    states = Counter(entry.state.value for entry in ledger.entries.values())
    return LogSummary(
        store=where,
        records=seen.kinds.total(),
        kinds=dict(sorted(seen.kinds.items())),
        epoch=ledger.epoch,
        last_at_s=seen.last_at_s,
        workloads=dict(sorted(states.items())),
    )


def _print_summary(found: LogSummary) -> None:
    def listed(counts: dict[str, int]) -> str:
        return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"

    when = datetime.fromtimestamp(found.last_at_s, UTC).isoformat(timespec="seconds")
    print(f"records: {found.records} ({listed(found.kinds)})")
    print(f"last: {when if found.records else 'never'}; epoch {found.epoch}")
    print(f"workloads: {listed(found.workloads)}")
