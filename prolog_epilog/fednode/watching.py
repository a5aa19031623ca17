"""Decides on a job that wastes its GPUs: samples in, the next step out.

Pure: no clock, no files. Times are seconds of the node's boot clock, which never jumps. A minute
of which nothing is known is a minute without a sample, in which no step is taken; after
``max_gap_s`` without one, what was seen before counts no more. So every step rests on its whole
window of data.
"""

from typing import NamedTuple, Optional, Sequence

BUSY = "busy"  # some GPU of the job computes
ZOMBIE = "zombie"  # memory is held and nothing computes
IDLE = "idle"  # neither

NOTHING = "nothing"
WARN = "warn"
WARN_AGAIN = "warn again"
RECLAIM = "reclaim"


class Reading(NamedTuple):
    """One GPU at one moment; None: the driver did not say (MIG, an old driver)."""

    memory_mib: "Optional[float]"
    busy_frac: "Optional[float]"  # 0 to 1: how much of the last moments a kernel ran
    total_mib: "Optional[float]" = None  # the memory that it has
    power_frac: "Optional[float]" = None  # of the power that it may draw
    engine_frac: "Optional[float]" = None  # 0 to 1: busy by DCGM, a mean over half a minute or so

    @property
    def use_frac(self) -> "Optional[float]":
        """How busy it was, by DCGM if that says so: moments are a poor sample of a minute."""
        return self.busy_frac if self.engine_frac is None else self.engine_frac


class Policy(NamedTuple):
    """When to do what; docs/node-hooks.md says what each means."""

    zombie_s: float = 600.0
    idle_s: float = 7200.0
    busy_frac: float = 0.05
    held_mib: float = 1024.0
    max_gap_s: float = 180.0
    warn_again_s: float = 900.0
    reclaim_after_s: float = 1800.0
    reclaim: bool = False


class Quiet(NamedTuple):
    """A time without a break in which the job's GPUs computed nothing."""

    since_s: float
    zombie_since_s: "Optional[float]"  # memory has been held ever since; None: is not held
    last_s: float  # the sample that was added last


class Finding(NamedTuple):
    """A condition that has held for its whole window, until ``at_s``."""

    condition: str  # ZOMBIE or IDLE
    since_s: float
    at_s: float


class Story(NamedTuple):
    """The notices that the user has had of a finding. It ends when the job computes again."""

    condition: str
    warned_at_s: float
    warned_again: bool = False


def doing(readings: "Sequence[Optional[Reading]]", policy: Policy) -> "Optional[str]":
    """Return what a job does by its GPUs, one of which suffices to be busy; None: not known.

    Less than ``held_mib`` beside a few kernels is use, too: only what does nothing at all is idle.
    """
    found = [_doing_of(reading, policy) for reading in readings]
    if BUSY in found:
        return BUSY
    if not found or None in found:
        return None
    return ZOMBIE if ZOMBIE in found else IDLE


def _doing_of(reading: "Optional[Reading]", policy: Policy) -> "Optional[str]":
    if reading is None or reading.busy_frac is None or reading.memory_mib is None:
        return None
    if not (0 <= reading.busy_frac <= 1 and reading.memory_mib >= 0):  # NaN fails too
        return None
    most_frac = max(reading.busy_frac, reading.engine_frac or 0.0)  # either acquits
    if most_frac >= policy.busy_frac:
        return BUSY
    if reading.memory_mib >= policy.held_mib:
        return ZOMBIE
    return BUSY if most_frac > 0 else IDLE


def extended(
    quiet: "Optional[Quiet]", now_doing: str, at_s: float, policy: Policy
) -> "Optional[Quiet]":
    """Return the quiet time up to and with a new sample; None: it is busy."""
    if now_doing == BUSY:
        return None
    zombie = at_s if now_doing == ZOMBIE else None
    if quiet is None or not 0 < at_s - quiet.last_s <= policy.max_gap_s:
        return Quiet(at_s, zombie, at_s)
    if zombie is not None and quiet.zombie_since_s is not None:
        zombie = quiet.zombie_since_s
    return Quiet(quiet.since_s, zombie, at_s)


def judge(quiet: "Optional[Quiet]", policy: Policy) -> "Optional[Finding]":
    """Return the condition that has held for its window until the last sample, if any has.

    Memory held and no use at all may take turns: both together count as idle, but only memory
    held without a break counts as zombie.
    """
    if quiet is None:
        return None
    zombie_s = quiet.zombie_since_s
    if zombie_s is not None and quiet.last_s - zombie_s >= policy.zombie_s:
        return Finding(ZOMBIE, zombie_s, quiet.last_s)
    if quiet.last_s - quiet.since_s >= policy.idle_s:
        return Finding(IDLE, quiet.since_s, quiet.last_s)
    return None


def step(finding: "Optional[Finding]", story: "Optional[Story]", policy: Policy) -> str:
    """Return what is to be done now: NOTHING, WARN, WARN_AGAIN or RECLAIM."""
    if finding is None:
        return NOTHING
    if story is None or not belongs(story, finding):
        return WARN
    since_warned_s = finding.at_s - story.warned_at_s
    if policy.reclaim and since_warned_s >= policy.reclaim_after_s:
        return RECLAIM
    if not story.warned_again and since_warned_s >= policy.warn_again_s:
        return WARN_AGAIN
    return NOTHING


def belongs(story: Story, finding: Finding) -> bool:
    """Tell whether the user was warned of this very finding, not of one before it."""
    return story.condition == finding.condition and story.warned_at_s >= finding.since_s


def after_notice(
    story: "Optional[Story]", finding: "Optional[Finding]", done: str
) -> "Optional[Story]":
    """Return the story once ``done`` has succeeded (NOTHING: nothing was done, or it failed)."""
    if finding is None:
        return None
    if done == WARN:
        return Story(finding.condition, finding.at_s)
    if story is None or not belongs(story, finding):
        return None
    return story._replace(warned_again=True) if done == WARN_AGAIN else story
