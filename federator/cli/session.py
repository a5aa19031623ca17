"""One interactive job from its command line to its end: queued, awaited, used, given back.

The daemon is asked about it until it is over, which also says that somebody still waits for it
(``federator.daemon.interactive_jobs``). Whatever ends the command here, a signal too, ends the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Final, NoReturn

from federator.cli.asked import named, timed, travelling, umask, with_node_file, work_dir
from federator.cli.client import ask, call
from federator.cli.flags import Program, help_text, usage_text
from federator.cli.session_shell import HOLD, CommandPlace, argv_of, step_script
from federator.cli.session_words import FSALLOC, SessionWords, job_name
from federator.cli.text import printable, reason_text, refusal_text, refused, span, unexpected
from federator.errors import FederatorError, InvalidRequest, SiteUnavailable
from federator.model.submission import Option, Submission
from federator.slurm.options.options import Options, UsageError, resolve, split_client
from federator.wire.client_protocol import (
    CancelCall,
    CancelReply,
    ErrorReply,
    SessionCall,
    SessionReply,
    SubmitCall,
    SubmitReply,
)

DEFAULT_TIME: Final = "60"  # minutes
FIRST_POLLS_S: Final = 0.1
POLL_S: Final = 1.0  # while it waits longer
QUICK_S: Final = 5.0  # within which it usually starts
EXPLAINED_S: Final = 2.0  # who waits longer is told why, or after QUICK_S that nobody knows
RENEW_S: Final = 15.0  # between two questions while it runs, or less by ``silence_s``
ANSWER_S: Final = 10.0  # that a question may take; the command may have ended meanwhile
SETTLES_S: Final = 1.0  # a job that was told to end does so
FAILED_SETTLES_S: Final = 15.0  # if its end may have ended the command; the site tells it later
ENDING_S: Final = 3.0  # for the command, once its job is over
SSH_FAILED: Final = 255
_WAITS: Final = frozenset({"PENDING", "HELD", "INELIGIBLE", "AWARDED", "LAUNCHING"})
_RUNS: Final = frozenset({"RUNNING", "PREEMPTING"})


class Ended(Exception):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(program: Program, body: Callable[[], int]) -> int:
    """Carry out one call of fsalloc or fsrun and return its exit status, 1 for errors."""
    try:
        return body()
    except FederatorError as error:
        print(printable(f"{program.name}: error: {error}"), file=sys.stderr)
        if isinstance(error, UsageError):
            print(f'Try "{program.name} --help" for more information', file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except Ended as ended:
        return 128 + ended.number
    return 1


def answered(program: Program, options: Options) -> bool:
    """Print the help, the usage or the version, if any was asked for."""
    names = {option.name for option in options}
    if "help" in names:
        print(help_text(program))
    elif "usage" in names:
        print(usage_text(program))
    elif "version" in names:
        from federator import __version__  # noqa: PLC0415  # seldom needed

        print(f"federator {__version__}")
    return bool(names & {"help", "usage", "version"})


# ---- the job ----


def submission_of(wanted: SessionWords, environment: Mapping[str, str]) -> Submission:
    """The job that holds the nodes.

    Raises:
        InvalidRequest: as of fsbatch.
    """
    (component,) = resolve((wanted.options,), (), ((),))
    component = timed(with_node_file(component))
    _, (component,) = split_client((component,))
    given = {option.name for option in component}
    more = [Option(name="output", value="/dev/null")]
    if "time" not in given:
        more.append(Option(name="time", value=DEFAULT_TIME))
    if "requeue" not in given and "no-requeue" not in given:
        more.append(Option(name="no-requeue"))
    kept = tuple(o for o in component if o.name not in ("output", "error", "input"))
    return Submission(
        components=(named((*kept, *more), job_name(wanted.command)),),
        script=HOLD,
        environment=travelling(environment),
        work_dir=work_dir(),
        umask=umask(),
    )


class Session:
    """A job of one fsalloc or fsrun.

    Args:
        program: which of both.
        wanted: its command line.
        watched: whether the job is to end when this process does.
    """

    def __init__(self, program: Program, wanted: SessionWords, *, watched: bool = True) -> None:
        self.program = program
        self._wanted = wanted
        self._watched = watched
        self._immediate_s = wanted.immediate_s  # read before anything is queued
        self._is_quiet = any(option.name == "quiet" for option in wanted.options)
        self.id = 0
        self._settles_s = SETTLES_S
        self._is_over = False  # and that has been said
        self._lost_node = False

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a line to stderr; the terminal may be in raw mode."""
        if always or not self._is_quiet:
            end = "\r\n" if sys.stderr.isatty() else "\n"
            print(printable(f"{self.program.name}: {text}"), end=end, file=sys.stderr, flush=True)

    def queue(self, environment: Mapping[str, str]) -> None:
        """Queue the job.

        Raises:
            FederatorError: it was refused, or nobody answers.
        """
        message = SubmitCall(
            submission=submission_of(self._wanted, environment),
            key=os.urandom(16).hex(),
            federation=next(
                (o.value or "" for o in self._wanted.options if o.name == "clusters"), ""
            ),
            interactive=True,
            watched=self._watched,
        )
        reply = ask(message, self.say)
        if isinstance(reply, ErrorReply):
            sites = [f"{s or 'federation'}: {refusal_text(r)}" for s, r in reply.reasons.items()]
            error = refused(reply)
            raise type(error)("; ".join([str(error), *sites]))
        if not isinstance(reply, SubmitReply):
            raise unexpected(reply)
        self.id = reply.id

    def look(self, *, attach: bool = False) -> SessionReply:
        """Ask how it stands.

        Raises:
            FederatorError: it is refused, or nobody answers.
        """
        return session_of(self.id, attach=attach)

    def await_start(self) -> SessionReply:
        """Wait until it runs.

        Raises:
            InvalidRequest: it has ended, or has not started in the time given.
        """
        began_s, limit_s = time.monotonic(), self._immediate_s
        if self.program is FSALLOC:
            self.say(f"Pending job allocation {self.id}")
        said = False
        while True:
            reply = self._looked()
            waited_s = time.monotonic() - began_s
            if reply is not None and reply.state in _RUNS:
                return reply
            if reply is not None and reply.state not in _WAITS:
                raise InvalidRequest(f"job {self.id} does not start: {over_text(reply)}")
            if limit_s is not None and waited_s >= limit_s:
                self.cancel()
                why = "" if reply is None else f"; {waiting_text(reply)}"
                raise InvalidRequest(
                    f"Unable to allocate resources: not started within {limit_s:g} s{why}"
                )
            if reply is not None and not said and waited_s >= _explained_after_s(reply):
                said = True
                self.say(f"job {self.id} queued and waiting for resources: {waiting_text(reply)}")
            time.sleep(FIRST_POLLS_S if waited_s < QUICK_S else POLL_S)

    def _looked(self) -> SessionReply | None:
        with contextlib.suppress(SiteUnavailable):  # it stays queued while nobody answers
            return self.look()
        return None

    def cancel(self) -> None:
        """Have the job end; what cannot be reached now ends as a silent session does."""
        with contextlib.suppress(FederatorError):
            reply = call(CancelCall(ids=(str(self.id),)))
            if not isinstance(reply, CancelReply):
                raise unexpected(reply)

    def give_back(self, status: int) -> int:
        """Let the job end: it has been told so at its site, or else it is cancelled.

        Returns:
            The command's exit status; 1 for 0 where the daemon says that a node died. Where it has
            not heard of that yet, the job's site has been asked (``session_shell``).
        """
        try:
            self._see_it_end()
        except KeyboardInterrupt:
            self.cancel()
            raise
        return 1 if self._lost_node and not status else status

    def _see_it_end(self) -> None:
        began_s = time.monotonic()
        until_s = began_s + self._settles_s
        while time.monotonic() < until_s and not self._is_over:
            reply = self._looked()
            if reply is None:
                until_s = began_s + SETTLES_S
            elif reply.state in _WAITS:  # it was evicted, and would start again
                self._say_over(reply)
            elif reply.state not in _RUNS:
                if reply.state != "COMPLETED":
                    self._say_over(reply)
                return
            elif reply.left_s <= 0:  # Slurm is ending it
                self.say(f"job {self.id} is over: its time limit", always=True)
                return
            time.sleep(FIRST_POLLS_S)
        self.cancel()

    def _say_over(self, reply: SessionReply) -> None:
        """Say once that the job ended otherwise than by its command."""
        self._is_over = True
        self._lost_node = "NODE_FAIL" in (reply.state, reply.site_state)
        self.say(f"job {self.id} is over: {over_text(reply)}", always=True)

    # ---- its use ----

    def use(
        self, reply: SessionReply, place: CommandPlace, *, terminal: bool, ends: bool = True
    ) -> int:
        """Run the command, and return its exit status; the job is asked about meanwhile."""
        script = step_script(
            reply,
            place,
            self._wanted.command,
            (*self._wanted.step_options, *(("--pty",) if "pty" in self._wanted.own else ())),
            ends=ends,
        )
        argv = argv_of(reply, script, terminal=terminal)
        try:
            process = subprocess.Popen(argv)
        except OSError as error:
            raise SiteUnavailable(f"cannot run {argv[0]}: {error.strerror}") from error

        numbers: list[int] = []

        def pass_on(number: int, _frame: FrameType | None) -> None:
            numbers.append(number)
            if not sys.stdin.isatty():  # from a terminal the command has it already
                process.send_signal(number)

        signal.signal(signal.SIGINT, pass_on)
        try:
            status = self._attend(process, reply)
        finally:
            _end(process)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if status not in (0, SSH_FAILED) and not numbers:  # it may have died of its job's end
            self._settles_s = FAILED_SETTLES_S
        if status == SSH_FAILED and argv[0] == "ssh":
            if numbers:  # ssh takes a signal for an error of its own
                return 128 + numbers[-1]
            self.say(f"ssh to {reply.login} ended with 255: the command did, or the way broke")
        return 128 - status if status < 0 else status

    def _attend(self, process: subprocess.Popen[bytes], was: SessionReply) -> int:
        """Wait for the end of the command, or of its job: then it has a moment left."""
        silence_s = was.silence_s
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(RENEW_S, silence_s / 4) if silence_s else RENEW_S)
            now = self._seen(attach=not self._watched)
            silence_s = silence_s if now is None else now.silence_s
            if now is None or (now.state in _RUNS and now.attempt == was.attempt):
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(ENDING_S)
                self._say_over(now)
                return status
            self._say_over(now)
            return 1

    def _seen(self, *, attach: bool) -> SessionReply | None:
        with contextlib.suppress(FederatorError):
            return self.look(attach=attach)
        return None


def session_of(id_: int, *, attach: bool) -> SessionReply:
    """How a job stands, and the way to it.

    Raises:
        FederatorError: it is another's, or nobody answers.
    """
    reply = call(SessionCall(id=id_, attach=attach), ANSWER_S)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, SessionReply):
        raise unexpected(reply)
    return reply


@contextlib.contextmanager
def ending_with(session: Session) -> Iterator[None]:
    """Have the job end with this process, by whatever it ends but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_ended)
    try:
        yield
    except BaseException:
        if session.id:
            session.cancel()
        raise


def attach(program: Program, wanted: SessionWords, place: CommandPlace, *, terminal: bool) -> int:
    """Run a command in a job that was started before, and that goes on."""
    text = wanted.own["jobid"]
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise InvalidRequest(f"Invalid job id specified: {text[:60]}")
    session = Session(program, wanted, watched=False)
    session.id = int(text)
    reply = session.look(attach=True)
    if reply.state not in _RUNS:
        raise InvalidRequest(f"job {text} does not run: it is {reply.state}")
    return session.use(reply, place, terminal=terminal, ends=False)


def _explained_after_s(reply: SessionReply) -> float:
    """When to tell why it waits: what is told once is not to be that no site has answered yet."""
    is_known = reply.refusals or reply.reason is not None
    return EXPLAINED_S if is_known else QUICK_S


def waiting_text(reply: SessionReply) -> str:
    """Why it waits, and when it could start by the word of a site."""
    known = [r for r in reply.refusals.values() if r.starts_in_s is not None]
    if known:
        soonest = min(known, key=lambda refusal: refusal.starts_in_s or 0.0)
        (site,) = [s for s, refusal in reply.refusals.items() if refusal is soonest][:1]
        when = span(soonest.starts_in_s or 0.0)
        sure = "predicted" if soonest.predicted else "at the latest"
        return f"could start at {site} in {when} ({sure})"
    if reply.reason is not None:
        return reason_text(reply.reason)
    texts = [f"{site}: {refusal_text(refusal)}" for site, refusal in reply.refusals.items()]
    return "; ".join(texts) or f"it is {reply.state}, and no site has said when it could start"


def over_text(reply: SessionReply) -> str:
    """What became of it."""
    why = f" ({reason_text(reply.reason)})" if reply.reason is not None else ""
    has_ended = reply.state not in _RUNS | _WAITS | {"CANCELLING"}
    return f"{(reply.site_state if has_ended else '') or reply.state}{why}"


def inside_a_job(environment: Mapping[str, str]) -> bool:
    """Whether this process belongs to a job of the site."""
    return environment.get("SLURM_JOB_ID", "").isdecimal()


def become_srun(argv: Sequence[str]) -> NoReturn:
    """Be the site's srun.

    Raises:
        SiteUnavailable: there is none.
    """
    try:
        os.execvp("srun", ["srun", *argv])  # noqa: S606, S607  # the user's own PATH is meant
    except OSError as error:
        raise SiteUnavailable(f"cannot run srun: {error.strerror}") from error


def _raise_ended(number: int, _frame: FrameType | None) -> None:
    raise Ended(number)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
