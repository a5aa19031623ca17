"""``federator upgrade-check``: whether this release can go on where the one that runs will stop.

It is the new release's command, run beside the daemon of the release before. It only reads.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from federator import __version__
from federator.cli import client
from federator.cli.log import NoSuchLog, opened, replayed, up_to_its_mark
from federator.cli.text import counted, refused, unexpected
from federator.cli.verify import findings_as_json, table
from federator.config import FederationConfig, load_config
from federator.daemon.own_config import check_complete
from federator.errors import ConfigError, FederatorError, SiteUnavailable
from federator.store.sqlite import SqliteStore
from federator.wire.client_protocol import ErrorReply, Finding, SitesCall, SitesReply, Verdict

_NO_WAY_BACK = "the release before cannot read it afterwards: keep a copy"


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="Federation.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def upgrade_check(config: Path, as_json: bool) -> None:
    """Say whether this release can take over from the one whose daemon runs; nothing is changed.

    Run it from the new release, on the daemon's host, before that daemon is stopped. It reads
    federation.yaml, the event log and the history as this release would, and asks the daemon
    whether its sites are there.

    \b
    Exit status:
      0   every check is ok, or warns
      1   a check failed: this release would not start, or not go on with the queue

    Example: federator upgrade-check --config /etc/federator/federation.yaml
    """
    findings = list(_findings(config))
    failed = any(each.verdict is Verdict.FAIL for each in findings)
    if as_json:
        found = {"schema": 1, "release": __version__, "ok": not failed}
        print(json.dumps({**found, "findings": findings_as_json(findings)}))
    else:
        for line in table(findings):
            print(line)
    if failed:
        sys.exit(1)


def _findings(path: Path) -> Iterator[Finding]:
    try:
        config = load_config(path, with_files=True)
    except ConfigError as error:
        yield _found("configuration", Verdict.FAIL, str(error))
        return
    yield from (_found("configuration", Verdict.WARN, each) for each in config.warnings)
    yield _found("configuration", Verdict.OK, f"{path} is valid for release {__version__}")
    for check in (_of_log, _of_history, _of_sites):
        try:
            yield check(config)
        except FederatorError as error:
            yield _found(_NAMES[check], Verdict.FAIL, str(error))


def _of_log(config: FederationConfig) -> Finding:
    """Whether all of it is read, follows from what came before, and fits the configuration.

    Raises:
        ConfigError: a site or a tenant is missing that still has workloads.
        StoreError: it cannot be read, or is not what was written.
    """
    try:
        where, store = opened(config.store, None)
    except NoSuchLog as error:
        return _without_records(config, str(error))
    federation, seen = replayed(up_to_its_mark(where, store))
    if not seen.kinds.total():  # Redis has no file that could be missing
        return _without_records(config, "the log that 'store' names has no record")
    check_complete(config, federation.ledger)
    number = counted(seen.kinds.total(), "record")
    if isinstance(store, SqliteStore) and store.will_be_converted():
        return _found("log", Verdict.WARN, f"{number}; its format is converted; {_NO_WAY_BACK}")
    return _found("log", Verdict.OK, f"{number}, all of which this release reads")


def _without_records(config: FederationConfig, what: str) -> Finding:
    """A daemon that runs has noted the beginning of its term: its log is another one."""
    if not _daemon_is_there(config):
        return _found("log", Verdict.WARN, what)
    words = f"{what}, though a daemon runs, which has one: see 'store' in the configuration"
    return _found("log", Verdict.FAIL, words)


def _daemon_is_there(config: FederationConfig) -> bool:
    try:
        client.call(SitesCall(), path=client.socket_beside(config.socket))
    except client.NoAnswer:  # it is busy
        return True
    except SiteUnavailable:
        return False
    return True


def _of_history(config: FederationConfig) -> Finding:
    """Whether its tables are those of this release, or can become so.

    Raises:
        HistoryError: they are of a later release, or cannot be read.
    """
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415  # slow to import

    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.schema import VERSION, check_version, found_version  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415

    url = history_url(config.history.url, config.store)
    if url == NONE:
        return _found("history", Verdict.OK, "none is kept")
    engine = open_reader(url)
    try:
        with engine.connect() as connection:
            found = found_version(connection)
    except SQLAlchemyError as error:
        words = str(error.__cause__ or error)
        return _found("history", Verdict.WARN, f"it was not looked at: {words}")
    finally:
        engine.dispose()
    check_version(found)
    if 0 < found < VERSION:
        changed = f"schema {found} becomes {VERSION} at the first start; {_NO_WAY_BACK}"
        return _found("history", Verdict.WARN, changed)
    return _found("history", Verdict.OK, f"schema {VERSION}" if found else "it is empty")


def _of_sites(config: FederationConfig) -> Finding:
    """Whether the daemon that runs has all of them, and of which release their agents are.

    Of who is away nothing can be told.
    """
    try:
        reply = client.call(SitesCall(), path=client.socket_beside(config.socket))
    except SiteUnavailable as error:
        return _found("sites", Verdict.WARN, f"no daemon answers: {error}")
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    down = [row.name for row in reply.sites if not row.up]
    if down:
        return _found("sites", Verdict.WARN, f"down before the upgrade: {', '.join(down)}")
    of_release = Counter(row.agent_release or "unknown" for row in reply.sites)
    agents = ", ".join(f"{count} of release {name}" for name, count in sorted(of_release.items()))
    words = f"{counted(len(reply.sites), 'site')} up; agents: {agents or 'none'}"
    return _found("sites", Verdict.OK, words)


def _found(check: str, verdict: Verdict, detail: str) -> Finding:
    return Finding(check=check, verdict=verdict, detail=" ".join(detail.split()))


_NAMES: dict[Callable[[FederationConfig], Finding], str] = {
    _of_log: "log",
    _of_history: "history",
    _of_sites: "sites",
}
