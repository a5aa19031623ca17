"""The services: ``federator daemon``, ``federator agent``; and ``federator check``."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec

from federator.cli.text import printable
from federator.cli.usage import exit_status
from federator.errors import ConfigError, SiteUnavailable, StoreError

if TYPE_CHECKING:
    from federator.agent.config import AgentConfig
    from federator.agent.shell import Agent
    from federator.agent.tenure import AgentTenure
    from federator.config import FederationConfig
    from federator.daemon.daemon import Daemon
    from federator.daemon.edges import DaemonEdges
    from federator.model.workload import SiteName
    from federator.traces.exporter import SpanSink
    from federator.wire.agent_protocol import Welcome

_CONFIG = click.Path(path_type=Path)
COLLECT_SELDOM: Final = (50_000, 20, 100)
"""See ``gc.set_threshold``. Bids and records hold no cycles; to look for some in them takes a sixth
of the daemon's time where it collects as often as Python does by itself."""
_ENDS_WITHIN_S = 10.0  # of its channel
_LEVEL = click.Choice(["debug", "info", "warning", "error"])


@click.command()
@click.option("--config", type=_CONFIG, required=True, help="The federation.yaml.")
@click.option("--log-level", type=_LEVEL, default="info", show_default=True, help="Of its log.")
@click.option("--verbose", is_flag=True, help="As --log-level=debug: every call and order, too.")
@click.option(
    "--displace", is_flag=True, help="Serve sites that remember another event log, too; once."
)
def daemon(config: Path, log_level: str, verbose: bool, displace: bool) -> None:
    """Run the federation daemon in the foreground until SIGTERM.

    While another daemon leads it stands by, and takes over when that one ends. It ends with status
    75 when another one leads in its stead, and 74 when the log fails: start it again then.

    On SIGHUP it reads its federation.yaml again, as for 'federator reload'.

    A site that has served a daemon of another event log refuses this one, so that a trial displaces
    nobody; with --displace it serves this one from now on.

    Example: federator daemon --config /etc/federator/federation.yaml
    """
    from federator.config import load_config  # noqa: PLC0415  # an agent has no pydantic
    from federator.daemon.daemon import Daemon  # noqa: PLC0415
    from federator.daemon.own_config import ConfigFile  # noqa: PLC0415
    from federator.daemon.supervisor import Supervisor  # noqa: PLC0415
    from federator.store.opening import open_store  # noqa: PLC0415

    gc.set_threshold(*COLLECT_SELDOM)
    supervisor = Supervisor.taken_from(os.environ, os.getpid())
    log_to_stderr("debug" if verbose else log_level)
    loaded = load_config(config)
    edges = _edges(loaded)
    service = Daemon(
        loaded,
        open_store(loaded.store),
        supervisor,
        edges,
        displaces=displace,
        source=ConfigFile(config),
    )
    try:
        asyncio.run(_until_signalled(service))
    finally:
        if edges.traces is not None:
            edges.traces.close()


def _edges(loaded: FederationConfig) -> DaemonEdges:
    from federator.audit.service import open_audit  # noqa: PLC0415
    from federator.daemon.edges import DaemonEdges  # noqa: PLC0415
    from federator.daemon.leader import in_a_thread  # noqa: PLC0415
    from federator.daemon.starts_file import starts_file  # noqa: PLC0415
    from federator.daemon.workload_traces import spans_dropped  # noqa: PLC0415
    from federator.history.service import open_history  # noqa: PLC0415
    from federator.traces.exporter import open_sink  # noqa: PLC0415

    where, name = loaded.traces.destination, loaded.federation
    return DaemonEdges(
        beside=in_a_thread,
        traces=open_sink(where, name, "federator-daemon", spans_dropped),
        history=open_history(loaded.history.url, loaded.store, loaded.history.keep_days),
        audit=open_audit(
            loaded.audit.dir, loaded.store, loaded.audit.max_mib, loaded.audit.decisions_mib
        ),
        starts=starts_file(loaded.store),
    )


async def _until_signalled(service: Daemon) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, service.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    try:
        await service.run()
    except StoreError as error:
        _end_at_once(error)


def _end_at_once(error: StoreError) -> NoReturn:
    """Without a word to anybody else: what is still in a buffer on its way to a site stays there.

    Nor does it wait for a thread that a store keeps waiting.
    """
    print(f"federator: error: {error}", file=sys.stderr, flush=True)
    os._exit(exit_status(error))


def log_to_stderr(level: str) -> None:
    """For people on a terminal, JSON lines otherwise."""
    import structlog  # noqa: PLC0415  # an agent has none

    form = (
        [_for_a_terminal, structlog.dev.ConsoleRenderer()]
        if sys.stderr.isatty()
        else [structlog.processors.JSONRenderer(_as_json)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *form,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


_json: Final = json.JSONEncoder(default=repr)  # json.dumps would make one for each line


def _as_json(line: dict[str, object], **_: object) -> str:
    """One line, of ASCII alone: names and reasons come from users and sites."""
    return _json.encode(line)


def _for_a_terminal(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Names and reasons come from users and sites; of a traceback each line stays one.

    What is no string is written as Python spells it, which escapes control characters.
    """
    for key, value in line.items():
        if isinstance(value, str):
            lines = value.split("\n") if key == "exception" else [value]
            line[key] = "\n".join(map(printable, lines))
    return line


@click.command()
@click.option("--config", type=_CONFIG, required=True, help="The site's agent.yaml.")
@click.option("--log-level", type=_LEVEL, help="Of its lines in syslog; else agent.yaml says it.")
@click.option("--dial", is_flag=True, help="Dial the daemons of agent.yaml until SIGTERM.")
def agent(config: Path, log_level: str | None, dial: bool) -> None:
    """Serve one daemon on standard input and output, then end.

    sshd starts it: it is the forced command of the federation's key. It logs to syslog, as
    federator-agent.

    With --dial it is the service of a site that cannot be reached from outside: it opens the
    channel to the daemon itself, over ssh, and again whenever that is lost.

    Example: federator agent --config /etc/federator/agent.yaml
    """
    from federator.agent.agent_log import log_to_syslog  # noqa: PLC0415
    from federator.agent.config import AgentConfig  # noqa: PLC0415

    try:
        settings = msgspec.yaml.decode(config.read_bytes(), type=AgentConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{config}: {error}") from error
    if dial:
        asyncio.run(_dial(settings, ["--config", str(config), *_with_level(log_level)]))
        return
    log_to_syslog(log_level or settings.log_level)
    asyncio.run(_serve_and_end(settings))


def _with_level(log_level: str | None) -> list[str]:
    return [] if log_level is None else ["--log-level", log_level]


async def _dial(settings: AgentConfig, options: list[str]) -> None:
    """Dial until a signal; each channel has an agent of its own, a process started anew."""
    from federator.agent.services.dialer import Dialer, only_dialer  # noqa: PLC0415

    if not settings.daemons:
        raise ConfigError("agent.yaml names no daemon to dial: see its key daemons")
    agent = [sys.executable, "-I", str(Path(sys.argv[0]).absolute()), "agent", *options]
    dialer = Dialer(
        settings.daemons,
        agent,
        lambda line: print(f"federator: {line}", file=sys.stderr, flush=True),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, dialer.stop)
    lock = only_dialer(Path(settings.state_dir))
    try:
        await dialer.run()
    finally:
        os.close(lock)


async def _serve_and_end(settings: AgentConfig) -> None:
    """Serve; then the process ends, whatever hangs, since the next agent needs its lock."""
    try:
        await _serve(settings)
    finally:
        guard = threading.Timer(_ENDS_WITHIN_S, os._exit, (os.EX_TEMPFAIL,))
        guard.daemon = True
        guard.start()


async def _serve(settings: AgentConfig) -> None:
    from federator.agent.agent_log import note_dropped_spans  # noqa: PLC0415
    from federator.agent.services.handshake import (  # noqa: PLC0415
        await_welcome,
        host_name,
        refuse_foreign_daemon,
        refuse_other_folder,
        take_over,
        tenure_here,
    )
    from federator.traces.exporter import open_sink  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pipe, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, reader.feed_eof)  # as if the daemon had hung up
    folder = Path(settings.state_dir)
    introduced = asyncio.ensure_future(await_welcome(reader, pipe.write))
    await asyncio.sleep(0)  # the banner is written; what is imported now need not be later
    _import_agent()
    welcome = await introduced
    refuse_foreign_daemon(folder, settings.site, welcome, pipe.write)
    refuse_other_folder(folder, settings.site, host_name(), welcome, pipe.write)
    sink = open_sink(settings.traces, welcome.federation, "federator-agent", note_dropped_spans)
    lock = await take_over(folder, welcome.epoch)
    try:
        tenure = tenure_here(folder, welcome)
        tenure.begin()
        await _agent(settings, welcome, pipe.write, sink, tenure).run(reader, welcome)
    except OSError as error:
        raise SiteUnavailable(f"the agent's own files in {folder}: {error}") from error
    finally:
        pipe.close()
        os.close(lock)
        if sink is not None:  # behind the lock, for which the next agent waits
            sink.close()


def _import_agent() -> None:
    """Load what serves a daemon: an agent that was started ahead waits for the daemon's word."""
    from federator.agent import journal, launch_traces, read_only, shell  # noqa: F401, PLC0415
    from federator.agent.services import accounts  # noqa: F401, PLC0415
    from federator.slurm import renaming_driver  # noqa: F401, PLC0415


def _agent(
    settings: AgentConfig,
    welcome: Welcome,
    write: Callable[[bytes], None],
    sink: SpanSink | None,
    tenure: AgentTenure,
) -> Agent:
    from federator.agent.agent_log import reader_notes  # noqa: PLC0415
    from federator.agent.journal import Journal  # noqa: PLC0415
    from federator.agent.launch_traces import LaunchTraces  # noqa: PLC0415
    from federator.agent.read_only import as_agreed  # noqa: PLC0415
    from federator.agent.services.accounts import Accounts  # noqa: PLC0415
    from federator.agent.shell import Agent  # noqa: PLC0415
    from federator.model.workload import SiteName  # noqa: PLC0415
    from federator.slurm.renaming_driver import open_driver  # noqa: PLC0415

    names, folder = welcome.names, Path(settings.state_dir)
    slurm = open_driver(
        settings.site,
        welcome.partitions,
        names,
        may_submit=tenure.check,
        watches=welcome.watches,
        note_pyslurm=reader_notes(settings.site, welcome.reader),
    )
    slurm.folder = folder
    settings, driver = as_agreed(settings, slurm, welcome)
    users = Accounts(names=names)
    return Agent(
        settings,
        driver,
        Journal(folder, time.time(), tenure),
        write,
        knows_user=users.has,
        user_there=users.name_of,
        traces=LaunchTraces(SiteName(settings.site), sink.tell) if sink is not None else None,
    )


@click.command()
@click.option("--config", type=_CONFIG, required=True, help="The federation.yaml.")
@click.option("--sites", "reach", is_flag=True, help="Also connect to every site's sshd.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(config: Path, reach: bool, as_json: bool) -> None:
    """Validate a federation.yaml and the files it names; with --sites also that sites let us in.

    A site is asked for its SSH session only. Where it has names of its own, the running daemon, if
    there is one that we may ask, is asked whether the site has them.

    Example: federator check --config federation.yaml --sites
    """
    from federator.config import load_config  # noqa: PLC0415

    loaded = load_config(config, with_files=True)
    results = asyncio.run(_reach(loaded)) if reach else dict.fromkeys(loaded.sites, "not tried")
    if reach:
        results |= _missing(loaded, results, config)
    good = all(result in ("ok", "not tried") for result in results.values())
    if as_json:
        print(
            json.dumps(
                {
                    "config": str(config),
                    "ok": good,
                    "sites": results,
                    "warnings": loaded.warnings,
                }
            )
        )
    else:
        print(f"{config}: ok ({len(loaded.sites)} sites, {len(loaded.tenants)} tenants)")
        for warning in loaded.warnings:
            print(f"{config}: warning: {warning}")
        for name, result in results.items():
            print(f"{name}: {result}")
    if not good:
        sys.exit(os.EX_UNAVAILABLE)


def _missing(
    loaded: FederationConfig, results: Mapping[SiteName, str], config: Path
) -> dict[SiteName, str]:
    """What is wrong with the names that sites have, of those that can be reached."""
    from federator.cli.verify import missing_names  # noqa: PLC0415

    asked = [n for n, site in loaded.sites.items() if site.names.there and results[n] == "ok"]
    found = {name: missing_names(name, loaded.socket, config) for name in asked}
    return {name: wrong for name, wrong in found.items() if wrong}


async def _reach(loaded: FederationConfig) -> dict[SiteName, str]:
    from federator.daemon.edges import transport_of  # noqa: PLC0415

    async def one(name: SiteName) -> str:
        if loaded.sites[name].dials:
            return "not tried"  # it dials us: `federator sites` says whether it has
        try:
            await transport_of(loaded.sites[name]).probe()
        except SiteUnavailable as error:
            return str(error)
        return "ok"

    names = list(loaded.sites)
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
