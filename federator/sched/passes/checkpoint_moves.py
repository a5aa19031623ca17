"""Decides which checkpoints are copied to other regions, so that jobs can go on there.

A checkpoint is a data set of its workload, with a replica where that last saved. What is known of
it here is of the moment: after a restart sites are asked again, and find what has been copied. That
a copy is whole is in the log (``CheckpointCopied``).

A copy only adds places: its workload keeps its place in the queue, and starts wherever it can
first. So none starts later than if it had waited in its region.

One that runs and is likely to have to leave may have its newest checkpoint copied ahead
(``at_risk``). Once its site has told how it left, the newest is where it ran, as ever: then the
copy spares the time only if it is of that one. If the region is lost, it goes on from the copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec.structs import replace

from federator.model.dataset import (
    CopyPhase,
    DataCopy,
    DataReplica,
    DataSet,
    ReplicaState,
)
from federator.model.event import CheckpointCopied
from federator.model.lifecycle import WorkloadState
from federator.model.mappings import NOTHING
from federator.model.message import CopySeen, Note, Wake
from federator.model.reason import ReasonCode, Refusal
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.at_risk import at_risk
from federator.sched.passes.copy_targets import CopyTargets
from federator.sched.passes.data_copies import replica_after
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import Transaction
from federator.sched.state.catalogue import with_replica
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

CHECKPOINT: Final = ".checkpoint"  # names them all as data sets; no user's begins with a dot
SEALED: Final = "sealed:"
LOOK_EVERY_S: Final = 60.0  # into a folder that had nothing to copy, or had none lately
PLAN_EVERY_S: Final = 2.0
MOST_TRIES: Final = 3  # of a copy, before another place is thought of
MOST: Final = 100  # workloads that are thought of at a time
AHEAD_EVERY_S: Final = 600.0  # a newer checkpoint of one that runs is copied
RISKS_EVERY_S: Final = 10.0  # it is looked who is at risk
GIVES_WAY_S: Final = 30.0  # after which one with nothing to copy leaves its place to others
_FOUND: Final = re.compile(r"(ckpt-[0-9]{8,18}-step-[0-9]{1,18}) (sealed:[0-9a-f]{64})")


@dataclass(slots=True, kw_only=True)
class CheckpointMove:
    """The newest checkpoint of a workload, as far as it is known, and its copy."""

    workload: WorkloadId
    attempt: int
    state: WorkloadState  # PENDING; or RUNNING: a drain would move it, or ``ahead``
    user: str
    saved_at: SiteName
    since_s: float
    look_s: float  # Unix time of the next look
    placed_s: float = 0.0  # since when it is one of ``MOST``
    found: DataSet | None = None
    why_not: str = ""
    target: SiteName = SiteName("")  # to whose region it is copied; "": it is not
    ahead: bool = False  # it is copied while the workload runs
    copied: str = ""  # the digest of the one that was last copied so
    near: SiteName = SiteName("")  # of the region that was the last target
    in_doubt: bool = False  # it is asked whether what is being copied still is the newest

    @property
    def is_due(self) -> bool:
        """Whether there is something to copy, which has no target yet."""
        if self.found is None or self.target:
            return False
        if self.state is WorkloadState.PENDING:
            return True
        return self.ahead and self.found.digest != self.copied

    @property
    def gives_way(self) -> bool:
        """Whether there is nothing to copy now: there is none, no place for it, or no answer."""
        if self.found is None or self.in_doubt:
            return True
        return self.state is WorkloadState.RUNNING and not self.target


class CheckpointMoves:
    """Decides what is copied where; ``copies`` and ``looks`` are for those who order it.

    Args:
        sites: as they last were.
        rules: see ``Rules``.
        ledger: knows who waits with a checkpoint, and where that is.

    Attributes:
        rules: as they are now.
        starts: as of ``StartsEstimated``.
    """

    def __init__(self, sites: Mapping[SiteName, SiteView], rules: Rules, ledger: Ledger) -> None:
        self._sites = sites
        self._ledger = ledger
        self.rules = rules
        self.starts: Mapping[WorkloadId, float] = NOTHING
        self._moves: dict[WorkloadId, CheckpointMove] = {}
        self._later: dict[WorkloadId, CheckpointMove] = {}  # without a place
        self._plan_s = self._take_in_s = self._risks_s = 0.0

    @property
    def _on(self) -> bool:
        regions = self.rules.regions
        return self.rules.staging.checkpoints and len({regions.get(s) for s in self._sites}) > 1

    # ---- for those who carry it out ----

    def looks(self, now_s: float) -> list[CheckpointMove]:
        """The workloads whose newest checkpoint is to be looked for where they last saved."""
        return [move for move in self._moves.values() if move.look_s <= now_s]

    def copies(self) -> Iterator[tuple[DataSet, DataReplica]]:
        """The copies that are to be made: of whoever waits longest first, then those ahead."""
        for move in sorted(self._moves.values(), key=lambda move: move.ahead):
            replica = _copy_of(move, self.rules)
            if move.found is not None and replica is not None:
                yield move.found, replica

    def find(self, name: str, version: str = "") -> DataSet | None:
        """The checkpoint of a workload, as a data set; None: none is known."""
        move = self._move_of(name, version)
        return None if move is None else move.found

    def _move_of(self, name: str, version: str) -> CheckpointMove | None:
        if name != CHECKPOINT or not (version.isdecimal() and len(version) < 20):
            return None
        return self._moves.get(WorkloadId(int(version)))

    # ---- what sites tell ----

    def take(self, turn: Transaction, seen: CopySeen) -> None:
        """Learn what there is to copy, or how far a copy is; a pass is due once it is whole."""
        move = self._move_of(seen.name, seen.version)
        if move is None or not _holds(move, self._ledger, self.rules):
            return
        if not seen.domain:
            if move.found is None or not move.target or move.in_doubt:
                self._looked(turn, move, seen)
            return
        if move.in_doubt and seen.phase is CopyPhase.DONE:
            return  # it will be told again; a newer one may be where it was saved
        of, replica = move.found, _copy_of(move, self.rules)
        if of is None or replica is None or replica.copy is None or of.digest != seen.digest:
            return
        if seen.domain != replica.domain:
            return
        after = replica_after(of, replica, replica.copy, seen, turn.now_s)
        move.found = replace(of, replicas=with_replica(of.replicas, after))
        if after.state is ReplicaState.READY:
            self._is_whole(turn, move, of, after)
        elif after.copy is not None and after.copy.tries >= MOST_TRIES:
            _begin_anew(turn, move, after.copy.detail)

    def _is_whole(
        self, turn: Transaction, move: CheckpointMove, of: DataSet, after: DataReplica
    ) -> None:
        """Record a copy; one that runs on is thought of again when it may have a newer one."""
        name = after.path.rpartition("/")[2]
        copied = CheckpointCopied(
            at_s=turn.now_s, workload=move.workload, site=move.target, checkpoint=name
        )
        turn.record(copied)
        del self._moves[move.workload]
        if move.state is WorkloadState.RUNNING:
            move.found = replace(of, replicas=of.replicas[:1])
            move.target, move.copied = SiteName(""), of.digest
            self._rest(move, turn.now_s)
        else:
            turn.pass_is_due(turn)

    def _rest(self, move: CheckpointMove, now_s: float) -> None:
        """Give up the place of one whose newest checkpoint is copied, for a while."""
        self._moves.pop(move.workload, None)
        move.look_s = now_s + AHEAD_EVERY_S
        self._later[move.workload] = move

    def _looked(self, turn: Transaction, move: CheckpointMove, seen: CopySeen) -> None:
        """Take in what is in a workload's folder."""
        match = _FOUND.fullmatch(seen.detail)
        doubted = move.found if move.in_doubt else None
        if doubted is not None and match is not None and match[2] == doubted.digest:
            move.in_doubt, move.look_s = False, inf
            return
        move.found, move.target, move.in_doubt = None, SiteName(""), False
        if seen.phase is not CopyPhase.FOUND or match is None or seen.copied_bytes <= 0:
            _begin_anew(turn, move, seen.detail.removeprefix("- "))
        elif seen.copied_bytes > self.rules.staging.most_bytes:
            _begin_anew(turn, move, "it is larger than data.stage_max_gib")
        else:
            entry = self._ledger.entries[move.workload]
            folder = f"{move.user}/checkpoints/{move.workload}"
            source = DataReplica(
                domain=self.rules.regions[move.saved_at],
                path=f"{folder}/{match[1]}",
                digest=match[2],
            )
            move.found = DataSet(
                name=CHECKPOINT,
                version=str(move.workload),
                owner=move.user,
                tenant=entry.workload.tenant,
                size_bytes=seen.copied_bytes,
                digest=match[2],
                replicas=(source,),
            )
            is_moved = move.state is WorkloadState.RUNNING
            move.look_s = turn.now_s + LOOK_EVERY_S if is_moved else inf
            self._plan_s = 0.0
            if move.ahead and move.copied == match[2]:
                self._rest(move, turn.now_s)

    # ---- what is to be copied ----

    def settle(self, turn: Transaction) -> None:
        """Forget who waits no more, think of who does, and choose where to copy to."""
        if not self._on:
            self._moves.clear()
            self._later.clear()
            return
        self._follow(self._moves, turn.now_s)
        if turn.now_s >= self._risks_s:
            self._look_ahead(turn.now_s)
            self._risks_s = turn.now_s + RISKS_EVERY_S
        if turn.now_s >= self._take_in_s:
            self._take_in(turn.now_s)
            self._take_in_s = turn.now_s + PLAN_EVERY_S if self._later else 0.0
        if not self._moves and not self._later:
            return
        if turn.now_s >= self._plan_s:
            self._plan(turn)
            self._plan_s = turn.now_s + PLAN_EVERY_S
            at_rest_s = [move.look_s if move.copied else 0.0 for move in self._later.values()]
            next_s = 0.0 if self._moves else min(at_rest_s, default=0.0)
            turn.commands.append(Wake(at_s=max(self._plan_s, next_s)))

    def _follow(self, moves: dict[WorkloadId, CheckpointMove], now_s: float) -> None:
        """Forget those that are not as they were; of one that leaves what was copied is kept."""
        for id_, move in list(moves.items()):
            if not _holds(move, self._ledger, self.rules):
                del moves[id_]
                after = _after_it_left(move, self._ledger, self.rules, now_s)
                if after is not None:
                    moves[id_] = after
            elif _leaves(move, self._ledger):
                move.look_s = inf  # it may be saving: what is there now is of no account

    def _look_ahead(self, now_s: float) -> None:
        """Think of those at risk, if that is wanted, and of those that are not any more no more."""
        wanted = at_risk(self._ledger, self.rules, now_s) if self.rules.staging.ahead else ()
        entries = {entry.workload.id: entry for entry in wanted}
        for moves in (self._moves, self._later):
            for id_, move in list(moves.items()):
                known = self._ledger.entries.get(id_)
                runs = known is not None and known.state is WorkloadState.RUNNING
                if move.ahead and runs and id_ not in entries:
                    del moves[id_]
        for id_, entry in entries.items():
            of = self._moves.get(id_) or self._later.get(id_)
            if of is None and entry.site in self.rules.regions:
                of = self._later[id_] = _move(entry, entry.site, now_s)
            if of is not None and of.state is WorkloadState.RUNNING:
                of.ahead = True

    def _take_in(self, now_s: float) -> None:
        """Give places to those who wait with a checkpoint, or may be moved: first come first.

        Those that run and are at risk get what is left.
        """
        self._follow(self._later, now_s)
        for id_ in self._ledger.saved:
            if id_ not in self._moves and id_ not in self._later:
                entry = self._ledger.entries[id_]
                if not _is_copied(entry, self.rules) and entry.saved_at in self.rules.regions:
                    self._later[id_] = _move(entry, entry.saved_at, now_s)
        due = [(id_, move) for id_, move in self._later.items() if move.look_s <= now_s]
        for id_, move in sorted(due, key=lambda item: (item[1].ahead, item[1].look_s)):
            if not self._has_room(now_s):
                break
            move.placed_s = now_s
            self._moves[id_] = self._later.pop(id_)

    def _has_room(self, now_s: float) -> bool:
        """Whether a place is left; those with nothing to copy now give up theirs."""
        if len(self._moves) >= MOST:
            for id_, move in list(self._moves.items()):
                if move.gives_way and now_s >= move.placed_s + GIVES_WAY_S:
                    move.look_s = max(move.look_s, now_s + GIVES_WAY_S)
                    self._later[id_] = self._moves.pop(id_)
        return len(self._moves) < MOST

    def _plan(self, turn: Transaction) -> None:
        """Choose targets, as many as may be under way; give up those that take no work now."""
        targets = self._targets(turn.now_s)
        for move in self._moves.values():
            if move.target and not targets.takes_work(move.target):
                _begin_anew(turn, move, f"{move.target} takes no work")
        under_way = sum(bool(move.target) for move in self._moves.values())
        most = self.rules.staging.at_once
        moves = [move for move in self._moves.values() if not _leaves(move, self._ledger)]
        due = [(move, move.found) for move in moves if move.is_due]
        for move, of in sorted(due, key=lambda item: item[0].ahead):  # those that wait come first
            if under_way >= (max(1, most - 1) if move.ahead else most):
                return
            entry = self._ledger.entries[move.workload]
            if move.ahead:
                site = targets.ahead(entry, move.near)
            else:
                site = (
                    targets.choose(entry, of, move.since_s, move.near) if of is not None else None
                )
            if of is not None and site is not None:
                source = of.replicas[0]
                copy = DataReplica(
                    domain=self.rules.regions[site],
                    path=source.path,
                    state=ReplicaState.COPYING,
                    copy=DataCopy(by="", asked_at_s=turn.now_s),
                )
                move.found = replace(of, replicas=(source, copy))
                move.target, move.near, move.look_s = site, site, inf
                under_way += 1

    def _targets(self, now_s: float) -> CopyTargets:
        return CopyTargets(
            sites=self._sites,
            rules=self.rules,
            ledger=self._ledger,
            now_s=now_s,
            starts=self.starts,
        )

    # ---- for drains ----

    def may_move(self, entry: WorkloadRecord, now_s: float) -> bool:
        """Tell whether a workload that runs is known to have a checkpoint that can be copied.

        Where it could go on in another region, its folder is looked into; ask again.
        """
        if not self._on or entry.site not in self.rules.regions:
            return False
        targets, gpus = self._targets(now_s), entry.held_gpus
        free = targets.free_gpus
        if not any(free[site] >= gpus for site in targets.elsewhere(entry, entry.site)):
            return False
        id_ = entry.workload.id
        move = self._moves.get(id_) or self._later.get(id_)
        if move is None or not _holds(move, self._ledger, self.rules):
            self._later[id_] = _move(entry, entry.site, now_s)
            return False
        return move.found is not None

    # ---- for people ----

    def with_progress(self, id_: WorkloadId, refusal: Refusal) -> Refusal:
        """A refusal for a checkpoint that is out of reach, with what is done about it."""
        move = self._moves.get(id_) or self._later.get(id_)
        if move is None or refusal.reasons[0].code is not ReasonCode.CHECKPOINT:
            return refusal
        said = _progress(move, self.rules)
        detail = refusal.reasons[0].detail + (f" ({said})" if said else "")
        reason = replace(refusal.reasons[0], detail=detail)
        return replace(refusal, reasons=(reason, *refusal.reasons[1:]))

    def ahead_words(self, entry: WorkloadRecord) -> str:
        """What was, or is being, copied of one that runs; "": nothing is to be said."""
        if entry.state is not WorkloadState.RUNNING:
            return ""
        copied = f"a copy is at {entry.copied_to}" if _is_copied(entry, self.rules) else ""
        move = self._moves.get(entry.workload.id)
        doing = "" if move is None or not move.ahead else _progress(move, self.rules)
        return "; ".join(each for each in (copied, doing) if each)


def _move(entry: WorkloadRecord, saved_at: SiteName, now_s: float) -> CheckpointMove:
    return CheckpointMove(
        workload=entry.workload.id,
        attempt=entry.attempt,
        state=entry.state,
        user=entry.workload.user,
        saved_at=saved_at,
        since_s=now_s,
        look_s=now_s,
        near=entry.copied_to,
    )


def _holds(move: CheckpointMove, ledger: Ledger, rules: Rules) -> bool:
    """Whether a workload is as it was when its move began."""
    entry = ledger.entries.get(move.workload)
    if entry is None or entry.attempt != move.attempt:
        return False
    if entry.state is not move.state and not _leaves(move, ledger):
        return False
    if move.saved_at not in rules.regions:
        return False
    if move.state is WorkloadState.RUNNING:
        return entry.site == move.saved_at
    return entry.saved_at == move.saved_at and not _is_copied(entry, rules)


def _leaves(move: CheckpointMove, ledger: Ledger) -> bool:
    """Whether one whose checkpoint is copied ahead was told to leave, and has not yet."""
    state = ledger.entries[move.workload].state
    return move.ahead and state is WorkloadState.PREEMPTING


def _after_it_left(
    move: CheckpointMove, ledger: Ledger, rules: Rules, now_s: float
) -> CheckpointMove | None:
    """The move of one that waits now; what is being copied may still be the newest."""
    entry = ledger.entries.get(move.workload)
    if entry is None or not move.ahead or entry.state is not WorkloadState.PENDING:
        return None
    after = _move(entry, move.saved_at, now_s)
    after.near, after.placed_s = move.near, now_s
    if move.target:
        after.found, after.target, after.in_doubt = move.found, move.target, True
    return after if entry.attempt == move.attempt and _holds(after, ledger, rules) else None


def _begin_anew(turn: Transaction, move: CheckpointMove, why: str) -> None:
    if why != move.why_not:
        fields = {"workload": move.workload, "site": move.saved_at, "detail": why}
        turn.commands.append(Note(event="checkpoint_not_copied", fields=fields))
    if move.target:
        move.near = SiteName("")  # another place is thought of
    move.found, move.target, move.why_not, move.in_doubt = None, SiteName(""), why, False
    move.look_s = turn.now_s + LOOK_EVERY_S


def _is_copied(entry: WorkloadRecord, rules: Rules) -> bool:
    """Whether it may go on elsewhere; not where the copy's site was taken out since."""
    return entry.copied_to in rules.regions


def _copy_of(move: CheckpointMove, rules: Rules) -> DataReplica | None:
    if move.found is None or not move.target or move.target not in rules.regions:
        return None
    return move.found.replica_in(rules.regions[move.target])


def _progress(move: CheckpointMove, rules: Rules) -> str:
    replica = _copy_of(move, rules)
    if move.found is None or replica is None or replica.copy is None:
        return f"not copied: {move.why_not}" if move.why_not else ""
    copy, size = replica.copy, move.found.size_bytes
    if copy.phase is CopyPhase.FAILED:
        return f"its copy to {replica.domain} has failed, and is tried again: {copy.detail}"
    eta_s = copy.eta_s(size)
    left = f", about {max(0.0, eta_s - copy.told_at_s):.0f} s left" if eta_s else ""
    done = 100 * min(1.0, copy.copied_bytes / size) if size else 0.0
    return f"being copied to {replica.domain}, {done:.0f} %{left}"
