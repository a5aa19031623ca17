"""Keeps the audit of a leading daemon, in a thread of its own: a follower of the event log.

Awards and what operators do to sites and workloads come from the log, so that a daemon that was
killed goes on where it was, with nothing lost and nothing twice. What no record tells of (a reload,
a refusal) is noted when it happens.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from federator.audit.acts import act_of
from federator.audit.chain import AuditAct, AuditEnd
from federator.audit.decisions import DecisionRing
from federator.audit.file import MAX_BYTES, AuditFile
from federator.audit.latest import LatestActs
from federator.errors import AuditError, FederatorError, NotCompacted, StaleState, StoreError
from federator.history.url import SQLITE
from federator.model.decision import SeenDecision
from federator.model.event import SnapshotBegan, SnapshotDone
from federator.store.base import Store
from federator.store.opening import open_store
from federator.store.replaying import read_record

RECORDS_AT_ONCE: Final = 1_000
POLL_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
MOST_WAITING: Final = 10_000  # acts that are not written yet; of more it is noted how many
REPEATED_S: Final = 60.0  # the same refusal is noted once in this time
MOST_REFUSED: Final = 200  # of one site that are noted in this time: it may name whom it likes
HEAD_EVERY_S: Final = 3_600.0  # the chain's end is written to the daemon's log
NONE: Final = "none"

log = structlog.get_logger()


class AuditFollower:
    """Writes one log's audit. Its methods may be called from any thread.

    Args:
        store: holds the log; read, and not the object that the leader appends by.
        file: not opened yet.
        clock: Unix time.
    """

    def __init__(self, store: Store, file: AuditFile, clock: Callable[[], float]) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: deque[AuditAct] = deque(maxlen=MOST_WAITING)
        self._left_out = 0
        self._noted: dict[tuple[str, ...], float] = {}
        self._refused: dict[str, tuple[float, int]] = {}  # by site: since when, how many

    @property
    def end(self) -> AuditEnd:
        return self._file.end

    @property
    def latest(self) -> LatestActs:
        """The last acts that were written."""
        return self._file.latest

    def note(self, act: AuditAct) -> None:
        """Have it written soon; a refusal that was noted a moment ago is not noted again."""
        if act.refused and not self._is_news(act):
            return
        self._left_out += len(self._waiting) == MOST_WAITING
        self._waiting.append(act)

    def _is_news(self, refused: AuditAct) -> bool:
        key, now_s = (refused.act, refused.by, refused.via, refused.refused), refused.at_s
        if now_s - self._noted.get(key, -REPEATED_S) < REPEATED_S:
            return False
        since_s, count = self._refused.get(refused.via, (now_s, 0))
        if now_s - since_s >= REPEATED_S:
            since_s, count = now_s, 0
        if count == MOST_REFUSED:
            return False
        self._refused[refused.via] = since_s, count + 1
        if len(self._noted) >= MOST_WAITING:
            self._noted.clear()
        self._noted[key] = now_s
        return True

    def take(self) -> bool:
        """Write what is noted, and what comes next in the log; True when that was all.

        Raises:
            AuditError: the file cannot be written.
            StoreError: the log, or a record, cannot be read.
        """
        with self._lock:
            if not self._is_open:
                self._file.open(self._clock())
                self._is_open = True
            return self._take()

    def _take(self) -> bool:
        file = self._file
        place, within, acts, count = file.place, file.within_snapshot, list[AuditAct](), 0
        try:
            with closing(self._store.read_on(place)) as rest:
                for at, record in islice(rest, RECORDS_AT_ONCE):
                    place, count = at, count + 1
                    position = at.end.next - 1
                    event = read_record(position, record)
                    within = within or isinstance(event, SnapshotBegan)
                    act = None if within else act_of(event, position)
                    if act is not None and position > file.last_record:
                        acts.append(act)
                    within = within and not isinstance(event, SnapshotDone)
        except StaleState:
            self._begin_anew()
            return False
        noted = self._noted_acts()
        if acts or noted or count:
            try:
                file.append([*acts, *noted], place, within_snapshot=within)
            except AuditError:
                self._waiting.extendleft(reversed(noted))
                raise
        return count < RECORDS_AT_ONCE

    def _begin_anew(self) -> None:
        """The log is not what was read: it was compacted, or another one is in its place."""
        with closing(self._store.read_on(None)) as rest:
            first = next((place.first for place, _ in rest), 1)
        read = self._file.place
        assert read is not None
        acts = []
        if first <= read.first:
            self._file.last_record = 0
            acts = [AuditAct(at_s=self._clock(), act="another-log")]
        elif first > read.end.next:
            missed = {"first": read.end.next, "last": first - 1}
            acts = [AuditAct(at_s=self._clock(), act="log-compacted", effect={"missed": missed})]
        self._file.append(acts, None)

    def _noted_acts(self) -> list[AuditAct]:
        found = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._left_out:
            found.append(
                AuditAct(at_s=self._clock(), act="left-out", effect={"acts": self._left_out})
            )
            self._left_out = 0
        return found

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._file.close()
            self._is_open = False


class Audit:
    """The audit of one federation, as its leading daemon keeps it.

    Args:
        follower: see there.
        ring: keeps what awards were decided on.
    """

    def __init__(self, follower: AuditFollower, ring: DecisionRing) -> None:
        self._follower = follower
        self._ring = ring
        self._decisions: deque[SeenDecision] = deque(maxlen=MOST_WAITING)
        self._ending = threading.Event()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""
        self._head_at_s = -HEAD_EVERY_S

    @property
    def latest(self) -> LatestActs:
        """The last acts that were written; of those before this process, of the last file."""
        return self._follower.latest

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, once what is being written is written."""
        self._ending.set()
        self._wanted.set()

    def note(self, act: AuditAct) -> None:
        """Note an act that no record tells of."""
        self._follower.note(act)
        self._wanted.set()

    def keep(self, seen: SeenDecision) -> None:
        """Keep what an award was decided on, for a while."""
        self._decisions.append(seen)

    def _keep_decisions(self) -> None:
        waiting = [self._decisions.popleft() for _ in range(len(self._decisions))]
        self._ring.append(waiting)

    def take_all(self) -> None:
        """Follow the log up to its end, before it is compacted.

        Raises:
            NotCompacted: the audit cannot be written.
        """
        try:
            while not self._follower.take():
                pass
        except (AuditError, StoreError) as error:
            raise NotCompacted(f"the audit is behind the log: {error}") from error

    def _run(self) -> None:
        pause_s = POLL_S
        while not self._ending.is_set():
            self._wanted.clear()
            try:
                up_to_date = self._follower.take()
                self._keep_decisions()
            except FederatorError as error:
                self._failed(str(error))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except Exception:  # a fault of ours must not end the thread
                log.exception("audit_fault")
                pause_s = LONGEST_PAUSE_S
            else:
                self._failed("")
                pause_s = POLL_S if up_to_date else 0.0
                self._tell_head()
            self._wanted.wait(pause_s)

    def _failed(self, trouble: str) -> None:
        """Say so once for each kind of trouble."""
        if trouble and trouble != self._trouble:
            log.warning("audit_behind", detail=trouble)
        elif self._trouble and not trouble:
            log.info("audit_again")
        self._trouble = trouble

    def _tell_head(self) -> None:
        now_s = time.monotonic()
        if now_s - self._head_at_s >= HEAD_EVERY_S:
            self._head_at_s = now_s
            log.info("audit_end", lines=self._follower.end.n, hash=self._follower.end.hash)


def audit_folder(folder: str, store_url: str) -> Path | None:
    """The folder that is meant; where it is "", one beside a log that is a file. None: no audit."""
    if folder == NONE or not (folder or store_url.startswith(SQLITE)):
        return None
    if folder:
        return Path(folder)
    path = Path(store_url.removeprefix("sqlite://"))
    return path.with_name(f"{path.stem}-audit")


def open_audit(
    folder: str, store_url: str, max_mib: int = MAX_BYTES >> 20, decisions_mib: int = 64
) -> Audit | None:
    """The audit of a log, which is opened once more, to be read; None: there is none.

    Args:
        folder: ``audit.dir``; "" where it is not given.
        store_url: of the log.
        max_mib: ``audit.max_mib``.
        decisions_mib: ``audit.decisions_mib``.
    """
    where = audit_folder(folder, store_url)
    if where is None:
        return None
    file = AuditFile(where, max_mib * 2**20)
    ring = DecisionRing(where, decisions_mib * 2**20)
    return Audit(AuditFollower(open_store(store_url), file, time.time), ring)
