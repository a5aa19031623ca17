"""When a workload that waits is estimated to start: an interval, or why there is none."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class NoEstimate(Enum):
    """Why there is none. A message has the value, so a value keeps its meaning for ever."""

    NOT_WAITING = "not waiting"  # it is at a site, or over
    MAY_NOT_START = "may not start"  # held, not eligible yet, or refused by every site
    NO_GPUS = "no GPUs"  # it asks for none, and the play knows GPUs alone
    LICENSES = "licenses"  # others hold those of the site, which only its Slurm counts
    NO_PLACE = "no place"  # no site that is there could hold it
    TOO_LATE = "too far"  # not within the time that is played
    TOO_WIDE = "too wide"  # the interval says nothing
    TOO_DEEP = "too deep"  # more wait before it than are played
    UNTRIED = "untried"  # too few estimates have been judged
    NOT_YET = "not yet"  # the next play will tell


class StartEstimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interval that is to hold the start with a probability; all are Unix times.

    Attributes:
        made_at_s: when it was made.
        earliest_s, latest_s: the ends of the interval.
        likely_s: sooner and later are as likely; within the interval.
        frac: the probability that is aimed at.
        none: the value of a ``NoEstimate``; "" where there is an estimate.
        hit_frac: of the latest estimates that were shown and have been judged, those that held.
        latest: how many these are; 0: ``hit_frac`` says nothing.
        judged: how many estimates have been judged, those that were kept back among them.
        hit_frac_alike, latest_alike: as ``hit_frac`` and ``latest``, of its size and quota class.
    """

    made_at_s: float = 0.0
    earliest_s: float = 0.0
    likely_s: float = 0.0
    latest_s: float = 0.0
    frac: float = 0.0
    none: str = ""
    hit_frac: float = 0.0
    latest: int = 0
    judged: int = 0
    hit_frac_alike: float = 0.0
    latest_alike: int = 0


class HelpKind(Enum):
    """A change to what a workload asks for. A message has the value, which keeps its meaning."""

    FEWER_NODES = "nodes"  # ``StartHelp.amount`` is their number
    FEWER_GPUS = "GPUs"  # in all
    ANY_GPU_TYPE = "any GPU type"
    ANY_PARTITION = "any partition"
    LESS_MEMORY = "memory"  # MiB on each node
    LESS_TIME = "time limit"  # minutes


class StartHelp(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change with which a workload is estimated to start sooner: surely, as intervals go.

    Attributes:
        kind: the value of a ``HelpKind``.
        amount: what is asked for then; 0 where that is no number.
        start: when it would start.
        sooner_s: by so much, as both are likely; 0: by more than can be told.
    """

    kind: str
    amount: int = 0
    start: StartEstimate
    sooner_s: float = 0.0
