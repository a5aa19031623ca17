"""``federator shadow drill``: leaves a site to see how fast that is, and comes back."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TypeVar

import click

from federator.audit.drills import last_drills
from federator.audit.service import audit_folder
from federator.cli.client import NoAnswer, call
from federator.cli.mode_edit import replace_text, with_mode
from federator.cli.shadow_step import Stepped, change_mode, check_file, mode_now
from federator.cli.slurm_time import parsed_time
from federator.cli.text import counted, printable, refused, unexpected
from federator.config import FederationConfig, load_config
from federator.errors import AuditError, FederatorError, InvalidRequest, SiteUnavailable
from federator.history.url import NONE, history_url
from federator.model.drain import LeaveDrill
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName
from federator.sim.report.promotion import Rule, leave_rule
from federator.wire.client_protocol import (
    DrainCall,
    DrainReply,
    ErrorReply,
    ReloadCall,
    ReloadReply,
    ResumeCall,
    SiteRow,
    StatusCall,
    StatusReply,
)
from federator.wire.replies import Reply

REASON: Final = "leave drill"
LOOK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0  # with a site that is to be empty, that is to come up, or to be looked at
SURE_S: Final = 5.0  # later than this, a note that a site is watched stands behind what was seen
NOTED_S: Final = 30.0  # within which the audit has what is in the log
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T", bound=Reply)


@click.command("drill")
@click.argument("name", metavar="SITE")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    help="The federation.yaml of the daemon, which this changes, and changes back.",
)
@click.option(
    "--deadline",
    default="now+4minutes",
    show_default=True,
    help="The federation's jobs have left by then.",
)
@click.option("--cancel", is_flag=True, help="Although some there may not be requeued, and end.")
def drill(*, name: str, config: Path, deadline: str, cancel: bool) -> None:
    """Leave SITE and come back, and note how long leaving took: docs/adoption.md.

    The site is drained and goes to mode shadow, as if for good; what is in its queue is looked at.
    Then it goes back to the mode that it had. Mode enforced needs such a drill of the last 90 days.
    Only for operators: root, or the daemon's own user, on the daemon's host.

    \b
    Exit status:
      0   the federation left within 300 s, and nothing of it was left there
      1   it did not

    Example: federator shadow drill alpine --config /etc/federator/federation.yaml
    """
    until_s = parsed_time(deadline, time.time(), to_come=True)
    with _ending_in_order():
        rule = _Leaving(load_config(config), config, name).tried(until_s, cancel=cancel)
    print(
        printable(f"{name} {'holds' if rule.holds else 'FAILS'}: {rule.name}: {rule.value}; ")
        + f"needed: {rule.bound}"
    )
    if not rule.holds:
        sys.exit(1)


class _Leaving:
    """One drill at one site.

    Args:
        config: as the file has it.
        path: of the file, by which the daemon goes.
        name: of the site.

    Raises:
        InvalidRequest: nothing is there to be left, or nobody would know of it.
    """

    def __init__(self, config: FederationConfig, path: Path, name: str) -> None:
        self._path, self._site = path, SiteName(name)
        self._meant = Stepped("sites", name)
        self._mode = mode_now(config, self._meant)
        self._history = history_url(config.history.url, config.store)
        folder = audit_folder(config.audit.dir, config.store)
        if not self._mode.acts:
            raise InvalidRequest(
                f"{name} is in mode {self._mode.value}: the federation has nothing there that it "
                "could leave; a drill is for a site in mode opt-in or enforced"
            )
        if folder is None or self._history == NONE:
            key = "audit.dir" if folder is None else "history.url"
            raise InvalidRequest(f"nothing would show how a drill went: {key} says none")
        self._audit = folder
        self._text = ""
        self._stepped = False
        self._began_s, self._workloads = 0.0, 0
        self._drained = False

    def tried(self, until_s: float, *, cancel: bool) -> Rule:
        """Leave, come back, and tell how the site stands by its rule then.

        Args:
            until_s: Unix time by which the federation's jobs have left.
            cancel: although some of them end with that.

        Raises:
            FederatorError: it was not tried, or broken off; the site is as before, or it is said
                what is not.
        """
        check_file(self._path)
        self._text = self._path.read_text()
        self._check_site()
        now_s, self._began_s = time.time(), time.monotonic()
        try:
            wrong = self._left(until_s, cancel=cancel)
            took_s = round(self._took_s, 3)
            done = LeaveDrill(took_s=took_s, workloads=self._workloads, wrong=wrong)
        except BaseException:
            self._come_back(None)
            raise
        self._come_back(done)
        return self._noted(now_s)

    @property
    def _took_s(self) -> float:
        return time.monotonic() - self._began_s

    # ---- what the daemon says ----

    def _check_site(self) -> None:
        row = self._row()
        if not row.up:
            raise InvalidRequest(f"site {self._site} is not connected: nobody sees it left")
        if any(not drain.nodes for drain in row.drains):
            raise InvalidRequest(
                f"{self._site} is drained or cordoned already, which a drill would end: "
                f"federator resume {self._site} first"
            )

    def _row(self) -> SiteRow:
        found = _asked(StatusCall(), StatusReply).sites
        row = next((row for row in found if row.name == self._site), None)
        if row is None:
            raise InvalidRequest(f"the daemon has no site {self._site}")
        return row

    def _is_up(self) -> bool:
        return self._row().up

    def _workloads_there(self) -> int:
        return sum(drain.left for drain in self._row().drains if not drain.nodes)

    # ---- there and back ----

    def _left(self, until_s: float, *, cancel: bool) -> str:
        """Leave; "" if all is gone, else what is not."""
        if self._mode is SiteMode.ENFORCED:  # which takes the limits out of its admission rules
            self._step(SiteMode.OPT_IN)
            if not _within(PATIENCE_S, self._is_up):
                raise SiteUnavailable(f"{self._site} did not come up again in mode opt-in")
        self._drain(until_s, cancel=cancel)
        patience_s = until_s + PATIENCE_S - time.time()
        if not _within(patience_s, lambda: not self._workloads_there()):
            return f"{counted(self._workloads_there(), 'workload')} were there still"
        self._say("no workload of the federation is there")
        self._step(SiteMode.SHADOW)
        if not _within(PATIENCE_S, self._is_up):
            return "the site did not come up again in mode shadow"
        seen_s = time.time() + SURE_S
        if not _within(PATIENCE_S, lambda: self._jobs_seen(seen_s) is not None):
            return "what is in its queue was not seen"
        if jobs := self._jobs_seen(seen_s):
            return f"jobs of the federation in its queue: {', '.join(jobs[:5])}"
        self._say("in mode shadow, and no job of the federation is in its queue")
        return ""

    def _step(self, mode: SiteMode) -> None:
        self._stepped = True
        change_mode(self._path, self._meant, mode)

    def _drain(self, until_s: float, *, cancel: bool) -> None:
        """Drain it; first without an end for what runs, as that may have to be cancelled."""
        cordon = DrainCall(site=self._site, reason=REASON, cordon=True)
        self._drained = True  # before the answer, which may be lost
        try:
            first = _asked(cordon, DrainReply)
        except FederatorError as error:
            self._drained = isinstance(error, NoAnswer)  # else it was refused, or not asked
            raise
        self._workloads = first.running + first.withdrawn
        if not self._workloads:
            raise InvalidRequest(
                f"no workload of the federation is at {self._site}: a drill would show nothing"
            )
        self._check_requeued(first, cancel=cancel)
        drain = DrainCall(site=self._site, reason=REASON, deadline_s=until_s)
        self._check_requeued(_asked(drain, DrainReply), cancel=cancel)
        self._say(
            f"drained, with {counted(first.running, 'workload')} running and {first.withdrawn} "
            "about to start"
        )

    def _check_requeued(self, reply: DrainReply, *, cancel: bool) -> None:
        if reply.not_requeued and not cancel:
            raise InvalidRequest(
                f"{counted(reply.not_requeued, 'workload')} at {self._site} may not be requeued, "
                "and would be cancelled: wait until they have ended, or say --cancel"
            )

    def _is_drained(self) -> bool:
        """Whether the drain of this drill stands; it may have been lost, or ended by others."""
        return any(not drain.nodes and drain.reason == REASON for drain in self._row().drains)

    def _jobs_seen(self, since_s: float) -> list[str] | None:
        """The federation's jobs in the site's queue, as its agent sees that; None: not yet."""
        from federator.history.database import open_reader  # noqa: PLC0415
        from federator.history.local_jobs import read  # noqa: PLC0415

        engine = open_reader(self._history)
        try:
            known = read(engine, since_s, inf)
        finally:
            engine.dispose()  # asked every second: else connections are left
        if not any(span.site == self._site for span in known.spans):
            return None
        return [
            kept.record.shown
            for kept in known.kept
            if kept.site == self._site and kept.record.federated and kept.record.is_open
        ]

    def _come_back(self, done: LeaveDrill | None) -> None:
        """Have the site as it was before; with the end of its drain the drill is in the log.

        Nothing is printed on the way: the terminal may be gone.
        """
        _ignore_ends()
        is_drained = False
        try:
            now = self._path.read_text()
            if self._stepped and now != self._text:
                replace_text(self._path, self._as_before(now))
                _asked(ReloadCall(), ReloadReply)
            is_drained = self._drained and self._is_drained()
            if is_drained:
                _asked(ResumeCall(site=self._site, drill=done), DrainReply)
        except (FederatorError, OSError) as error:
            raise FederatorError(
                f"{error}\n{self._site} is not as it was before: have {self._path} say mode: "
                f"{self._mode.value} there, then: federator reload; federator resume {self._site}"
            ) from error
        if done is not None and not is_drained:
            raise FederatorError(
                f"the drain of {self._site} was ended by others meanwhile: the drill is not noted"
            )

    def _as_before(self, now: str) -> str:
        """The file with the mode as it was; what others have changed in it meanwhile stays."""
        modes = (SiteMode.OPT_IN, SiteMode.SHADOW)
        if now in [with_mode(self._text, self._site, mode) for mode in modes]:
            return self._text
        return with_mode(now, self._site, self._mode)

    def _noted(self, since_s: float) -> Rule:
        """How the site stands by the rule, once the audit tells of the drill."""
        if not _within(NOTED_S, lambda: self._site in last_drills(self._audit, since_s)):
            raise AuditError(
                f"{self._audit} does not tell of the drill: the daemon is of an earlier release, "
                "or its log says audit_behind"
            )
        return leave_rule(last_drills(self._audit, since_s)[self._site])

    def _say(self, what: str) -> None:
        print(printable(f"{self._took_s:.0f} s: {what}"))


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Have SIGTERM, and SIGHUP from a terminal that is gone, end the drill as Ctrl-C does."""
    before = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    _ignore_ends()
    raise SystemExit(128 + number)


def _ignore_ends() -> None:
    """The way back is not broken off by a second signal."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)


def _within(most_s: float, is_so: Callable[[], bool]) -> bool:
    """Whether it is so within some seconds, looked at every ``LOOK_EVERY_S``."""
    until_s = time.monotonic() + most_s
    while not is_so():
        if time.monotonic() >= until_s:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _asked(question: DrainCall | ReloadCall | ResumeCall | StatusCall, kind: type[T]) -> T:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, kind):
        raise unexpected(reply)
    return reply
