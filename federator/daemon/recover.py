"""Rebuilds a lost event log from the sites, and from an export of it.

Every site is asked for all that it remembers: orders it was given, jobs that live, jobs that have
ended and how. What waited is in the export alone. The new log is written in one step, by the same
core that runs the federation; then a daemon starts from it as from any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.agent.journal import Served
from federator.config import FederationConfig
from federator.daemon.attempt_recall import remembered
from federator.daemon.handshake import HANDSHAKE_S, check_hello
from federator.daemon.links import PING_S
from federator.daemon.own_config import new_federation
from federator.errors import FederatorError, SiteUnavailable, StoreError
from federator.model.event import encode_event
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.message import AttemptsShown, Command, Note, Record, Remembered
from federator.model.unreadable import UNREADABLE
from federator.model.workload import SiteName, WorkloadId
from federator.store.base import Store
from federator.store.replaying import replay_log
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Hello,
    Ping,
    RecoverAsk,
    RecoverDone,
    Welcome,
    from_agent_decoder,
)
from federator.wire.client_protocol import frame
from federator.wire.framing import FrameReader, skip_to_banner
from federator.wire.transport import Channel, Transport

TELLS_WITHIN_S: Final = 120.0  # an attempt that was just begun is looked for up to 45 s
TRIES: Final = 4  # the first may meet the agent of a daemon that has just died
AGAIN_S: Final = 2.0
WITHOUT_EXPORT_S: Final = 86_400.0  # what is not live is known if it was submitted since then
QUIET_S: Final = 20.0  # without a word; nobody waits for the fleet, so longer than a daemon waits
_FAILURES: Final = (FederatorError, OSError, TimeoutError, *UNREADABLE)

BySite = Mapping[SiteName, Sequence[Remembered]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A log that was built anew; counts are of workloads.

    ``from_sites``: that the export did not have. ``ended``: that it had, and that have ended since.
    ``unknown``: attempts at sites that cannot be rebuilt.
    """

    records: tuple[bytes, ...]
    epoch: int
    log_began: int  # by which sites know the log; 0: neither export nor epoch says
    at_sites: int
    pending: int
    from_sites: int
    ended: int
    attempts_of: Mapping[SiteName, int]  # attempts that each site told of
    unknown: tuple[str, ...] = field(default=())


async def ask_all(
    config: FederationConfig,
    sites: Sequence[SiteName],
    term: Served,
    way_to: Callable[[SiteName], Transport],
) -> BySite:
    """Ask these sites what they remember; from now on they serve only daemons of this term's log.

    Raises:
        SiteUnavailable: some do not tell; the message names them.
    """

    async def one(name: SiteName) -> Sequence[Remembered] | str:
        detail, way = "", way_to(name)
        for _ in range(TRIES):
            try:
                return await _ask(config, name, term, way)
            except _FAILURES as error:
                detail = str(error) or f"no word for {QUIET_S:.0f} s"
            await asyncio.sleep(AGAIN_S)
        return detail

    answers = dict(zip(sites, await asyncio.gather(*map(one, sites)), strict=True))
    silent = [f"{name}: {answer}" for name, answer in answers.items() if isinstance(answer, str)]
    if silent:
        raise SiteUnavailable(
            f"{'; '.join(silent)}. Nothing was written. Mend it and try again, or leave a site out "
            "by --without: what it was given after the export may then run twice. Sites that "
            f"answered have served epoch {term.epoch} now: a log that is found meanwhile counts "
            "as an older copy, and goes through recover as well (--export)"
        )
    return {name: answer for name, answer in answers.items() if not isinstance(answer, str)}


async def _ask(
    config: FederationConfig, name: SiteName, term: Served, transport: Transport
) -> Sequence[Remembered]:
    channel = await transport.open()
    try:
        async with asyncio.timeout(HANDSHAKE_S + TELLS_WITHIN_S):
            await asyncio.wait_for(skip_to_banner(channel.reader), QUIET_S)
            site = config.sites[name]
            welcome = Welcome(
                protocol=PROTOCOL_VERSION,
                federation=term.federation,
                epoch=term.epoch,
                site=name,
                partitions=site.partitions,
                poll_interval_s=site.poll_interval_s,
                log_began=term.log_began,
                displaces=True,
                names=site.names.there,
                mode=site.mode.there,
            )
            channel.write(frame(welcome))
            frames = FrameReader(channel.reader)
            hello = await _next(frames, HANDSHAKE_S)
            if not isinstance(hello, Hello) or hello.site != name:
                raise SiteUnavailable(f"expected the agent of {name}, got {hello}")
            check_hello(hello, welcome)
            return await _remembered_by(channel, frames)
    except _FAILURES as error:
        detail = str(error) or f"no word for {QUIET_S:.0f} s"
        said = channel.last_words() or "nothing"
        raise SiteUnavailable(f"{detail}; it said: {said}") from error
    finally:
        await channel.close()


async def _remembered_by(channel: Channel, frames: FrameReader) -> Sequence[Remembered]:
    """All parts of the answer; pings keep the agent at it."""
    pinging = asyncio.create_task(_ping(channel))
    try:
        channel.write(frame(RecoverAsk(ask_id=1)))
        attempts: list[Remembered] = []
        while True:
            message = await _next(frames, QUIET_S)
            if not isinstance(message, RecoverDone):
                continue  # it sweeps and reports meanwhile
            attempts += map(remembered, message.kept)
            if message.detail:
                raise SiteUnavailable(message.detail)
            if message.last:
                return attempts
    finally:
        pinging.cancel()


async def _next(frames: FrameReader, patience_s: float) -> object:
    body = await frames.next(patience_s)
    if body is None:
        raise SiteUnavailable("the agent ended")
    return from_agent_decoder.decode(body)


async def _ping(channel: Channel) -> None:
    while True:
        channel.write(frame(Ping()))
        await asyncio.sleep(PING_S)


def rebuild(
    config: FederationConfig, exported: Sequence[bytes], by_site: BySite, now_s: float, epoch: int
) -> Recovered:
    """Build the log anew: the export, and what the sites have done since.

    Of a workload's attempts the last one counts; those before it were given up.

    Args:
        config: of the federation.
        exported: records of the old log, oldest first; none: there is no export.
        by_site: what the sites remember.
        now_s: Unix time.
        epoch: the term in which the log is built; every site serves it already.

    Raises:
        StoreError: a record of the export cannot be read.
    """
    federation = new_federation(config)
    newest_s = replay_log(federation, exported).last_at_s
    since_s = newest_s or now_s - WITHOUT_EXPORT_S
    entries = federation.ledger.entries
    before = {id_: entry.state for id_, entry in entries.items()}
    log_began = federation.ledger.log_began or epoch
    commands: list[Command] = list(federation.begin_epoch(now_s, epoch, log_began))
    for site, attempt in _last_attempts(by_site):
        if attempt.attempt.workload not in before and not _is_to_be_adopted(attempt, since_s):
            continue
        commands += federation.handle(AttemptsShown(site=site, attempts=(attempt,)), now_s)
    ended = [i for i, s in before.items() if s not in TERMINAL and entries[i].state in TERMINAL]
    states = [entry.state for entry in entries.values()]
    return Recovered(
        records=(*exported, *(encode_event(c.event) for c in commands if isinstance(c, Record))),
        epoch=federation.ledger.epoch,
        log_began=log_began,
        at_sites=sum(state in AT_SITE for state in states),
        pending=states.count(WorkloadState.PENDING),
        from_sites=len(entries) - len(before),
        ended=len(ended),
        attempts_of={site: len(attempts) for site, attempts in by_site.items()},
        unknown=_unknown(commands),
    )


def _unknown(commands: Sequence[Command]) -> tuple[str, ...]:
    notes = (c.fields for c in commands if isinstance(c, Note) and c.event == "attempt_not_adopted")
    return tuple(f"{note['attempt']} at {note['site']}" for note in notes)


def _is_to_be_adopted(attempt: Remembered, since_s: float) -> bool:
    """Whether a workload that the export lacks is to be known: it lives, or is younger than that.

    Else it was over when the export was made: one that a site gave back may have been cancelled,
    and would start again after weeks.
    """
    if attempt.report is not None and not attempt.report.state.ended:
        return True
    return attempt.workload is None or attempt.workload.submitted_at_s > since_s


def _last_attempts(by_site: BySite) -> list[tuple[SiteName, Remembered]]:
    """The last of each workload, by id; one that a site has, before one it refused.

    One for each user: anyone may name any workload, and only its own user's is adopted.
    """
    last: dict[tuple[WorkloadId, str], tuple[SiteName, Remembered]] = {}
    for site, attempts in by_site.items():
        for attempt in attempts:
            whose = (attempt.attempt.workload, attempt.user)
            known = last.get(whose)
            if known is None or _weight(known[1]) < _weight(attempt):
                last[whose] = (site, attempt)
    return [last[whose] for whose in sorted(last)]


def _weight(attempt: Remembered) -> tuple[int, bool]:
    return attempt.attempt.attempt, not attempt.void


def led_empty_store(store: Store, at_least: int) -> int:
    """Lead a store that holds nothing; the epoch of the term.

    Raises:
        StoreError: it holds records, or a daemon leads it.
    """
    epoch = store.lead(at_least)
    if epoch is None:
        raise StoreError("a daemon leads the log: stop it first")
    if next(iter(store.records()), None) is not None:
        store.close()
        raise StoreError("the log is not empty: move it away first, recover writes a new one")
    return epoch
