"""Saves a training's state when that is due, and ends it when it must leave.

The loop tells ``Checkpointer.step`` of each finished step. All is decided there, by all ranks
together, and never in a signal handler: save because it is time to, or save, acknowledge and end.
"""

from __future__ import annotations

import enum
import logging
import os
import pickle
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .job import FederatedJob
from .lease import ProgressLease, lease_s
from .phases import StepPhases
from .ranks import Ranks, rank_here, ranks_said
from .state_files import StateFiles
from .step_times import StepDurations
from .warning import LeaveSignals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .ranks import Agree
    from .state_files import SavedState

EXIT_STATUS = 85  # "checkpointed, start me again"; HTCondor's number, too
DEFAULT_INTERVAL_S = 1800.0  # where neither the caller nor the federation knows better
LEAVE_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
_POLL_S = 1.0  # between looks at the deadline file
_LOG = logging.getLogger("federator.checkpoint")


class Due(enum.IntEnum):
    """What is to be done at a step boundary; the largest of all ranks' holds."""

    NOTHING = 0
    SAVE = 1
    LEAVE = 2  # save, then end


def pickle_save(state: object, path: Path) -> None:
    """Pickle ``state`` into ``path``."""
    with path.open("wb") as file:
        pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)


def pickle_load(path: Path) -> Any:
    """Read back what ``pickle_save`` wrote. Who can write the file can run code here."""
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 - the user's own state, in their own folder


class Checkpointer:
    """Saves a training's state from time to time, and before it must leave.

    Signals and the deadline file only set a flag. Every method but the properties is for all
    ranks, at the same step; only rank 0 writes, the others wait for it.
    """

    def __init__(  # noqa: PLR0913 - keywords with defaults, for scripts that use one or two
        self,
        save: Callable[[Any, Path], object] = pickle_save,
        load: Callable[[Path], Any] = pickle_load,
        *,
        directory: os.PathLike[str] | str | None = None,
        keep: int = 3,
        interval_s: float | None = None,
        check_every: int = 1,
        all_ranks_write: bool = False,
        checksum: bool = True,
        agree: Agree | None = None,
        rank: int | None = None,
        signals: Sequence[signal.Signals] = LEAVE_SIGNALS,
        progress_s: float | None = None,
        job: FederatedJob | None = None,
    ) -> None:
        """Begin to listen for the signal to leave.

        Args:
            save: writes a state to a path, as a file or a folder; ``torch.save`` does. While it
                runs, the umask lets the permission bits of the directory through.
            load: reads it back; ``torch.load`` does. The default, pickle, runs what it loads.
            directory: where checkpoints are; default $FED_CHECKPOINT_DIR.
            keep: how many complete checkpoints stay, >= 1.
            interval_s: between periodic checkpoints; ``math.inf`` for none but the last. Default
                $FED_CHECKPOINT_INTERVAL_S, but at most half an hour.
            check_every: look and decide only at steps that it divides, as deciding together
                takes an all-reduce.
            all_ranks_write: every rank saves a part of its own (sharded state).
            checksum: note a CRC-32 of each file; costs one more reading of it.
            agree: takes an int and returns the largest of all ranks'; default torch.distributed
                where it is initialised.
            rank: this process's; default as torch.distributed, torchrun or srun has it.
            signals: those that mean "leave".
            progress_s: the longest time that a step may take; a rank that takes longer tells what
                it does. Default $FED_PROGRESS, also where it is not above 0.
            job: the federation's side, for tests; default as the environment says.

        Raises:
            ValueError: no directory is known, or a number makes no sense.
        """
        self._job = FederatedJob.from_environment() if job is None else job
        chosen = self._job.directory if directory is None else Path(directory)
        if chosen is None:
            why = self._job.why_no_directory
            because = f" ({why})" if why else ""
            raise ValueError(f"FED_CHECKPOINT_DIR is not set{because}: say where with directory=")
        if keep < 1 or check_every < 1:
            raise ValueError(f"keep={keep} and check_every={check_every} must be at least 1")
        self.directory = chosen
        self.interval_s = self._interval_s(interval_s)
        self._files = StateFiles(
            chosen,
            save,
            load,
            keep=keep,
            all_ranks_write=all_ranks_write,
            checksum=checksum,
        )
        self._check_every, self._agree, self._rank = check_every, agree, rank
        self._saved_step: int | None = None
        self._last_save_s = self._last_look_s = time.monotonic()
        self._ready_at_s, self._save_s = 0.0, 0.0
        self._closed = False
        self._lease = ProgressLease(
            self._job,
            progress_s,
            rank_here(rank),
            ranks_said(os.environ),
            given_s=lease_s(os.environ),
        )
        self._steps, self._phases = StepDurations(), StepPhases()
        if rank_here(rank) == 0:
            self._job.forget_earlier_run()
        self._seen = self._job.told_to_leave()
        self._flag = LeaveSignals(signals)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.close()
        else:  # the other ranks may wait for this one: the lease of progress stays in force
            self._stop()

    def close(self) -> None:
        """No steps are to come: the handlers of before are back, and the lease of progress ends."""
        self._stop()
        if not self._closed:
            self._closed = True
            self._tell_progress()

    def _stop(self) -> None:
        self._flag.restore()
        self._lease.close()

    @property
    def told_to_leave(self) -> bool:
        """Whether this process knows that the job must leave. Another rank may know earlier."""
        now = time.monotonic()
        if not self._seen and now - self._last_look_s >= _POLL_S:
            self._last_look_s = now
            self._seen = self._job.told_to_leave()
        return self._seen or self._flag.received

    @property
    def deadline_s(self) -> float | None:
        """Unix time at which the job is killed; None while it is not told, or nobody says."""
        return self._job.deadline_s()

    def loaded(self) -> None:
        """Tell that the batch of the next step is there. Optional; on all ranks or on none.

        GPUs work behind the script's back: synchronise before the batch is fetched. Of several
        calls in a step the first counts.
        """
        self._phases.loaded(time.monotonic(), self._save_s)

    def computed(self) -> None:
        """Tell that this rank's own part of a step is done, and it waits for others, if at all.

        Optional; on all ranks or on none. GPUs work behind the script's back: synchronise before.
        """
        self._phases.computed(time.monotonic(), self._save_s)

    def step(self, step: int, state: Callable[[], Any]) -> bool:
        """Tell that ``step`` is finished; saves when it is time to, and ends when told to leave.

        Args:
            step: number of the finished step, >= 0 and the same on all ranks.
            state: returns what to save; called only when something is saved, and then on every
                rank, so that it may gather what all have (a full state dict of FSDP). What
                ranks that write nothing return is dropped: give None there to save memory.

        Returns:
            Whether a checkpoint was written.

        Raises:
            SystemExit: 85, after the last checkpoint was saved and acknowledged.
            RuntimeError: another rank could not save.
        """
        due = self.due(step)
        if due is not Due.NOTHING:
            self.save(step, state)
        if due is Due.LEAVE:
            self.leave()
        return due is not Due.NOTHING

    def due(self, step: int) -> Due:
        """Decide, all ranks together, what is to be done after ``step``.

        For frameworks that save in their own way: they do, then call ``saved`` or ``leave``.
        """
        is_first = not self._ready_at_s
        if is_first:
            self._ready_at_s = self._job.now_s()
            self._flag.rearm()  # by now all that the training needs is loaded
        now_s = time.monotonic()
        self._steps.finished(step, now_s, self._save_s)
        self._phases.finished(step, now_s, self._save_s)
        if self._lease.renew(step):
            self._tell_progress()
            self._tell_steps()
        elif is_first:
            self._tell_progress()
        if step % self._check_every:
            return Due.NOTHING
        mine = Due.NOTHING
        if time.monotonic() - self._last_save_s >= self.interval_s:
            mine = Due.SAVE
        if self.told_to_leave:
            mine = Due.LEAVE
        return Due(self._ranks().agree(mine))

    def save(self, step: int, state: Callable[[], Any]) -> None:
        """Save now; returns when the checkpoint is complete. A step is saved once.

        Raises:
            ValueError: ``step`` is below 0.
            RuntimeError: another rank could not save; this rank's own error is raised as it is.
        """
        if step < 0:
            raise ValueError(f"step={step} must be at least 0")
        ranks = self._ranks()
        if step == self._saved_step:
            return
        began_s = time.monotonic()
        self._files.write(ranks, self._job.attempt, step, state)
        self._saved_step, self._last_save_s = step, time.monotonic()
        self._save_s += self._last_save_s - began_s
        phases = self._phases.line(ranks)
        if ranks.rank == 0:
            self._tell_progress()
            if phases:
                self._answer(partial(self._job.tell_phases, phases))
            _LOG.info("saved step %d in %.1f s", step, self._last_save_s - began_s)
            self._answer(self._job.checkpointed)
            self._files.prune()

    def saved(self) -> None:
        """Tell that the framework's own checkpoint is complete."""
        self._last_save_s = time.monotonic()
        if self._ranks().rank == 0:
            self._answer(self._job.checkpointed)

    def leave(self) -> None:
        """Acknowledge that the state is saved, and end.

        Raises:
            SystemExit: 85, always.
        """
        ranks = self._ranks()
        if ranks.rank == 0:
            self._answer(self._job.acknowledge)
        ranks.agree(0)  # nobody ends, and has a launcher end all, before that
        raise SystemExit(EXIT_STATUS)

    def latest(self) -> SavedState | None:
        """Load the newest whole checkpoint; torn ones are skipped. None to begin from nothing.

        All ranks load the same one, the newest that is whole for all of them. What ``load``
        raises on a whole checkpoint is raised: that is no torn file, and starting again from
        nothing would lose the work.

        Raises:
            OSError: the directory cannot be read.
            ValueError: every rank writes, and there were more or fewer of them.
            RuntimeError: another rank could not read; this rank's own error is raised as it is.
        """
        return self._files.latest(self._ranks())

    def _ranks(self) -> Ranks:
        return Ranks.find(self._rank, self._agree)

    def _interval_s(self, given: float | None) -> float:
        suggested_s = self._job.interval_s
        interval_s = min(suggested_s, DEFAULT_INTERVAL_S) if suggested_s else None
        interval_s = interval_s if given is None else given
        if interval_s is None:
            return DEFAULT_INTERVAL_S
        if not interval_s > 0:
            raise ValueError(f"interval_s={interval_s} must be above 0")
        return interval_s

    def _tell_progress(self) -> None:
        """Tell the federation's accounts; of a save outside any step nothing is told."""
        if self._ready_at_s and rank_here(self._rank) == 0:
            tell, goes_on = self._job.tell_progress, not self._closed
            self._answer(partial(tell, self._ready_at_s, self._save_s, goes_on=goes_on))

    def _tell_steps(self) -> None:
        """Tell how long its steps take: of one rank, as all wait for the slowest."""
        if rank_here(self._rank) == 0 and (window := self._steps.window()):
            self._answer(partial(self._job.tell_steps, window))

    def _answer(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:  # the checkpoint is there all the same
            _LOG.warning("the federation cannot be told of it: %s", error)
