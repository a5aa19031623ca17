"""Has the site's helper act as a user: sbatch, scancel, signals, and files in users' folders.

The helper is ``site_exec``, installed at ``HELPER_PATH``: each act is one call of it through sudo,
one JSON request and one JSON answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Final, Protocol

import msgspec

from federator.agent.base import CheckpointStatus, Removal, SbatchRefused, SubmittedJob, Tidying
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.dataset import CopyPhase
from federator.model.reason import ReasonCode
from federator.slurm.options.file_names import no_files
from federator.slurm.refusals import cannot_be_asked, in_one_line, kind_of_refusal
from federator.slurm.runner import Completed, Runner
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)

HELPER: Final = ("/usr/bin/sudo", "-n", "-u")
HELPER_PATH: Final = "/opt/federator/libexec/fed-site-exec"
WRITE_TIMEOUT_S: Final = 100.0  # the helper ends its commands after 30 s each, itself after 90 s
# An sbatch that is not called within this time is not called at all; once called it ends within
# 30 s. The agent counts on both (lost_sbatch.INTENT_HORIZON_S).
START_WITHIN_S: Final = 12.0
USER_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")

_TOO_LATE: Final = "too late"  # as the helper says it
_NO_FILES: Final = 66  # site_exec: sbatch was not called, since files cannot be opened
_HELPER_FAILED: Final = (70, 124)  # site_exec: sbatch's answer is unreadable, or it did not end


class BatchCall(Protocol):
    """One submission as sbatch takes it; ``render.SbatchCall`` is one."""

    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def args(self) -> Sequence[str]: ...
    @property
    def script(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, str]: ...
    @property
    def work_dir(self) -> str: ...
    @property
    def umask(self) -> int: ...
    @property
    def checkpoint_dir(self) -> str: ...
    @property
    def files(self) -> Mapping[str, object]: ...


_COPY_WORDS: Final = (
    *("source", "root", "path", "digest", "size_bytes", "keep_free_bytes", "kib_per_s"),
    *("replace", "drop"),
)


class _CopySaid(msgspec.Struct):
    phase: CopyPhase
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    detail: str


class _OutputSaid(msgspec.Struct):
    phase: CopyPhase
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    files: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    digest: str
    detail: str


_MOST_SENT: Final = 300


def _sent(text: str) -> str:
    """A user's words as a message can hold them: JSON has halves of characters, and any length."""
    return text[:_MOST_SENT].encode("utf-8", "replace").decode()


class HelperClient:
    """Acts at one site in the names of its users.

    Every method raises ``SiteUnavailable`` when the helper or Slurm cannot be asked or answers
    nonsense.

    Args:
        runner: carries the commands out.
        environment: of the helper, complete.
        clock: Unix time at the site.
    """

    def __init__(
        self, runner: Runner, environment: Mapping[str, str], clock: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._environment = environment
        self._clock = clock
        self.may_submit: Callable[[], None] = lambda: None
        """Raises ``StaleState`` if another agent of this site acts."""

    async def submit(self, user: str, call: BatchCall) -> SubmittedJob:
        """Submit as ``user``; ``work_dir`` is where the helper called sbatch.

        Raises:
            SbatchRefused: Slurm, sudo or the helper said no; there is no job.
            SiteUnavailable: it is not known whether there is one; look the attempt up.
            StaleState: another agent of this site acts; sbatch was not called.
        """
        # In this order: an agent that is stopped here and wakes up later comes too late for the
        # helper, and one that is stopped earlier finds out that another one acts.
        start_by_s = float(self._clock() + START_WITHIN_S)
        self.may_submit()
        try:
            answer = await self._help(
                user,
                op="sbatch",
                argv=list(call.argv),
                args=list(call.args),
                script=call.script,
                environment=dict(call.environment),
                work_dir=call.work_dir,
                umask=call.umask,
                checkpoint_dir=call.checkpoint_dir,
                files=dict(call.files),
                start_by_s=start_by_s,
            )
        except SbatchRefused:
            raise
        except SiteRefused as error:
            words = str(error)
            raise SbatchRefused(in_one_line(words), kind_of_refusal(words)) from error
        job_id, work_dir = answer.get("job_id"), answer.get("work_dir", "")
        if not isinstance(job_id, int):
            raise SiteUnavailable(f"the site's helper named no job: {answer}")
        if not isinstance(work_dir, str) or not work_dir.isprintable():  # cannot be told
            work_dir = None
        return SubmittedJob(job_id, work_dir)

    async def cancel(self, user: str, job_id: int, *, pending_only: bool = False) -> bool:
        """End a job (all components, given the leader); False if Slurm has none (any more).

        With ``pending_only`` a job that has started is left alone; only a later sweep can tell.

        Raises:
            SiteRefused: the job is another's, or not of the federation.
        """
        answer = await self._help(user, op="scancel", job_id=job_id, pending_only=pending_only)
        return not answer.get("absent", False)

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:
        """Send a signal, e.g. ``USR1``.

        Raises:
            SiteRefused: as ``cancel``; or the job has not started.
        """
        await self._help(user, op="signal", job_id=job_id, signal=name, to=to.value)

    async def limit(self, user: str, job_id: int, minutes: int) -> None:
        """Set the time limit of a job.

        Raises:
            SiteRefused: as ``cancel``; or it is not there any more, or would have a higher limit.
        """
        answer = await self._help(user, op="limit", job_id=job_id, minutes=minutes)
        if answer.get("absent", False):
            raise SiteRefused(f"job {job_id} is not there any more")

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        """Publish a job's deadline in its checkpoint folder, and send its signal.

        Raises:
            SiteRefused: as ``signal``.
        """
        await self._help(
            order.user,
            op="tell",
            job_id=order.site_job_id,
            signal=order.signal,
            to=order.signal_to.value,
            folder=order.checkpoint_dir,
            attempt=order.attempt.attempt,
            deadline_s=float(deadline_s),
        )

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        """The files that jobs have left in their checkpoint folders since they were notified.

        Raises:
            SiteRefused: the site does not let us act for ``user``.
        """
        folders = [[order.checkpoint_dir, order.attempt.attempt] for order in orders]
        answer = await self._help(user, op="look", folders=folders)
        try:
            return msgspec.convert(answer.get("seen"), list[CheckpointStatus])
        except msgspec.ValidationError as error:
            raise SiteUnavailable(f"the site's helper answered {answer}: {error}") from error

    async def inspect(
        self, user: str, jobs: Sequence[tuple[Mapping[str, object], str]]
    ) -> list[str]:
        """Say which files of each job cannot be opened, as seen from here; "": none is known.

        Args:
            user: whose jobs they are.
            jobs: files and working directory of each.

        Raises:
            SiteRefused: the site does not let us act for ``user``.
        """
        answer = await self._help(user, op="inspect", jobs=jobs)
        wrong = answer.get("wrong")
        if not isinstance(wrong, list) or len(wrong) != len(jobs):
            raise SiteUnavailable(f"the site's helper answered {answer}")
        return [str(words) for words in wrong]

    async def tidy(self, user: str, order: Tidying) -> Removal:
        """Remove checkpoint folders of the user's workloads that have ended.

        Raises:
            SiteRefused: the site does not let us act for ``user``.
        """
        answer = await self._help(user, op="tidy", **asdict(order))
        try:
            return msgspec.convert(answer, Removal)
        except msgspec.ValidationError as error:
            raise SiteUnavailable(f"the site's helper answered {answer}: {error}") from error

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        """Have a data set's copy go on; see ``SiteDriver.copy``.

        Raises:
            SiteRefused: the site does not let us act for the data set's owner.
        """
        host, colon, port = order.host.rpartition(":")
        if not colon or order.host.endswith("]"):
            host, port = order.host, ""
        words = {each: getattr(order, each) for each in _COPY_WORDS}
        if order.remove:
            words = {each: words[each] for each in ("root", "path", "digest")}
            answer = await self._help(order.user, op="remove", order=words)
        else:
            words |= {"host": host, "port": port}
            answer = await self._copy(order, words)
        try:
            said = msgspec.convert(answer, _CopySaid)
        except msgspec.ValidationError as error:
            raise SiteUnavailable(f"the site's helper answered {answer}: {error}") from error
        return said.phase, said.bytes, _sent(said.detail)

    async def _copy(self, order: CopyOrder, words: dict[str, object]) -> dict[str, object]:
        """One stream, where the helper is of an earlier release."""
        if order.streams > 1:
            try:
                many = {**words, "streams": order.streams}
                return await self._help(order.user, op="copy", order=many)
            except SiteRefused as refused:
                if "other fields" not in str(refused):
                    raise
        return await self._help(order.user, op="copy", order=words)

    async def output(self, order: OutputOrder) -> OutputStatus:
        """Have what a job wrote be sealed, or removed; see ``SiteDriver.output``.

        Raises:
            SiteRefused: the site does not let us act for the job's user.
        """
        request = order.place.for_helper(drop=order.drop)
        answer = await self._help(order.user, op="output", order=request)
        try:
            said = msgspec.convert(answer, _OutputSaid)
        except msgspec.ValidationError as error:
            raise SiteUnavailable(f"the site's helper answered {answer}: {error}") from error
        return OutputStatus(
            workload=order.place.id,
            attempt=order.attempt,
            domain=order.place.domain,
            phase=said.phase,
            size_bytes=said.bytes,
            files=said.files,
            digest=_sent(said.digest),
            detail=_sent(said.detail),
        )

    async def is_loose(self, user: str) -> bool:
        """Tell whether the helper takes an option that it must refuse, or sudo lets us be root."""
        loose = {
            "op": "sbatch",
            "argv": ["--comment=fed:0:0", "--uid=root"],
            "args": [],
            "script": "#!",
            "environment": {},
            "work_dir": "/",
            "umask": 0,
            "checkpoint_dir": "",
            "files": no_files(),
            "start_by_s": 0.0,
        }
        for who, request in ((user, loose), ("root", {"op": "look", "folders": []})):
            try:
                await self._help(who, **request)
            except SiteRefused as error:
                if _TOO_LATE in str(error):  # it was to be refused for its option
                    return True
            else:
                return True
        return False

    async def _help(self, user: str, **request: object) -> dict[str, object]:
        """Have the site's helper do one thing as ``user``."""
        if not USER_NAME.fullmatch(user):
            raise SiteRefused(f"{user[:60]!r} is no name of a user")
        done = await self._runner.run(
            [*HELPER, user, HELPER_PATH],
            stdin=json.dumps(request).encode(),
            timeout_s=WRITE_TIMEOUT_S,
            env=self._environment,
        )
        answer = _answer(done, user)
        if "error" in answer:
            text = str(answer["error"])
            if answer.get("exit_status") == _NO_FILES:
                raise SbatchRefused(text, ReasonCode.FILES)
            own_failure = answer.get("exit_status") in _HELPER_FAILED
            raise (SiteUnavailable if own_failure or cannot_be_asked(text) else SiteRefused)(text)
        return answer


def _answer(done: Completed, user: str) -> dict[str, object]:
    """Read the helper's answer; without one, sudo said no or the helper died."""
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_status != 0 and not done.stdout:
        if re.search(r"^sudo: ", said, re.MULTILINE):
            raise SiteRefused(f"the site does not let us act for {user}: {said}")
        raise SiteUnavailable(f"the site's helper failed: exit {done.exit_status}: {said}")
    try:
        answer = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise SiteUnavailable(f"the site's helper answered {done.stdout[:200]!r}") from error
    if not isinstance(answer, dict):
        raise SiteUnavailable(f"the site's helper answered {done.stdout[:200]!r}")
    return answer
