"""Puts reasons, refusals and errors into words: codes and numbers in, one short phrase out."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from federator.cli.preemption_text import gpu_time
from federator.errors import FederatorError, InvalidRequest, NotAllowed, SiteUnavailable
from federator.model.node_shape import UNITS as SHAPE_UNITS
from federator.model.reason import Alternative, Reason, ReasonCode, Refusal, RefusalKind
from federator.wire.client_protocol import ErrorKind, ErrorReply

_ERRORS: Final[Mapping[ErrorKind, type[FederatorError]]] = {
    ErrorKind.REQUEST: InvalidRequest,
    ErrorKind.UNAVAILABLE: SiteUnavailable,
    ErrorKind.BUSY: SiteUnavailable,
    ErrorKind.DENIED: NotAllowed,
}


_UNITS: Final = frozenset({"nodes", "GPUs", "CPUs", "MiB"})
_MOST_NAMED: Final = 3  # jobs of one workload, in one sentence


def _amount(number: int, unit: str) -> str:
    """``1 node``, ``16 h100 GPUs``, ``40 MiB``; a gres as Slurm spells it, ``nic:2``."""
    if _is_gres(unit):
        return f"{unit}:{number}"
    return f"{number} {unit.removesuffix('s') if number == 1 else unit}".rstrip()


def _is_gres(unit: str) -> bool:
    return unit not in ("", *SHAPE_UNITS) and unit.rsplit(maxsplit=1)[-1] not in _UNITS


def _needs(reason: Reason) -> str:
    """``needs 16 GPUs of a100|h100``, ``train+0 and train+2 need 5 nodes, none of them shared``."""
    amount = _amount(reason.needed, reason.unit)
    if len(reason.apart) == 1:
        return f"needs {amount} that no other of its components has"
    if reason.apart:
        return f"{_several(reason.apart)} need {amount}, none of them shared"
    of = f" {'with' if reason.unit == 'nodes' else 'of'} {reason.detail}" if reason.detail else ""
    return f"needs {amount}{of}"


def _several(names: Sequence[str]) -> str:
    """``a and b``, ``a, b and c``, ``a, b, c and 5 more``."""
    rest = len(names) - _MOST_NAMED
    first, last = (names[:-1], names[-1]) if rest <= 0 else (names[:_MOST_NAMED], f"{rest} more")
    return f"{', '.join(first)} and {last}"


def _for_now(reason: Reason) -> str:
    """``needs 16 GPUs of a100; free 12, in 3 nodes; largest rack 8; 4 more in 35 min``."""
    free = f"free {reason.free}"
    if reason.free_nodes:
        free += f", in {counted(reason.free_nodes, 'node')}"
    parts = [_needs(reason), free]
    if 0 < reason.largest_rack < reason.free:
        parts.append(f"largest rack {reason.largest_rack}")
    if reason.more:
        what = "" if reason.unit == "GPUs" else " GPUs"
        parts.append(f"{reason.more} more{what} in {span(reason.more_in_s)}")
    return "; ".join(parts)


def counted(number: int, noun: str, plural: str = "s") -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def span(seconds: float) -> str:
    """A time to come, e.g. ``40 s``, ``35 min``, ``3.5 h`` or ``2.1 days``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.1f} days"


def alternative_text(other: Alternative) -> str:
    """Say what would start instead, e.g. ``would start now: --nodes=2 --gpus-per-node=8``."""
    options = [f"--nodes={other.nodes}"] if other.nodes else []
    if other.gpus:
        options.append(f"--gpus-per-node={other.gpus}" if other.nodes else f"--gpus={other.gpus}")
    text = f"would start now: {' '.join(options) or 'the same'}"
    return printable(f"{text} on {'|'.join(other.gpu_types)}" if other.gpu_types else text)


def _reserved(reason: Reason) -> str:
    whom = f"job {reason.detail}" if reason.detail else "another job"
    return (
        f"would delay {whom}, which can start here in {span(reason.more_in_s)}; "
        "a shorter --time may start now"
    )


def _site_reservation(reason: Reason) -> str:
    """``Slurm reservation maint keeps 2 nodes from … until …, before it would be over``."""
    nodes = counted(reason.needed, "node") if reason.needed else "nodes"
    times = f"{clock(reason.from_s)} until {clock(reason.until_s)}"
    return f"Slurm reservation {reason.detail} keeps {nodes} from {times}, before it would be over"


def clock(at_s: float) -> str:
    """A Unix time as Slurm prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def _named(text: str) -> Callable[[Reason], str]:
    """``text``, followed by the detail when there is one."""
    return lambda reason: f"{text}: {reason.detail}" if reason.detail else text


def _resources(reason: Reason) -> str:
    if not reason.needed:
        return _named("not enough is free now")(reason)
    return _for_now(reason)


def _node_size(reason: Reason) -> str:
    if not reason.needed:
        return _named("no node is large enough")(reason)
    most = _amount(reason.free, reason.unit) if _is_gres(reason.unit) else reason.free
    return f"{_needs(reason)} on one node, the largest has {most if reason.free else 'none'}"


def _too_few(reason: Reason) -> str:
    return f"{_needs(reason)}{';' if reason.apart else ','} the site has {reason.free or 'none'}"


def _array_limit(reason: Reason) -> str:
    return (
        f"the array may run {reason.needed} tasks at once"
        if reason.needed
        else ("the array's limit of running tasks is reached")
    )


def _limit(reason: Reason) -> str:
    of = f" of tenant {reason.detail}" if reason.detail else ""
    return f"needs {_amount(reason.needed, reason.unit)}, the limit{of} leaves {reason.free}"


def _budget(reason: Reason) -> str:
    return (
        f"{_amount(reason.needed, reason.unit)} would have to be evicted, {reason.free} may be now"
    )


def _saves(reason: Reason) -> str:
    return f"{reason.needed} victims would save at the same time, {reason.free} may now"


def _resized(reason: Reason) -> str:
    return f"saves on {reason.free} nodes, to go on with {reason.needed}"


def _stalled(reason: Reason) -> str:
    return f"finished no step for {span(reason.more_in_s)} ({reason.detail})"


def _slow_nodes(reason: Reason) -> str:
    if not reason.more_in_s:
        return f"jobs of several nodes are kept off slow nodes ({reason.detail})"
    lost = span(reason.more_in_s)
    return f"moves off slow nodes, which would cost it {lost} until its end ({reason.detail})"


def _claim(reason: Reason) -> str:
    left = _amount(reason.free, reason.unit)
    of_all = _amount(reason.needed, reason.unit)
    return f"{of_all} come free for it at {reason.detail}; jobs on {left} are still to be evicted"


def _no_progress(reason: Reason) -> str:
    return f"{reason.needed} attempts in a row saved nothing before their time limit"


def _in_reservation(reason: Reason) -> str:
    if not reason.from_s:
        return f"no node of reservation {reason.detail} can be had"
    return (
        f"its reservation {reason.detail} is from {clock(reason.from_s)} until "
        f"{clock(reason.until_s)}"
    )


def _switches(reason: Reason) -> str:
    wanted = counted(reason.needed, "leaf switch", "es")
    return f"waits for nodes under {wanted}; those that are free are under {reason.free}"


def _licenses(reason: Reason) -> str:
    return f"needs {counted(reason.needed, 'licence')} {reason.unit}, {reason.free} free"


def _deadline(reason: Reason) -> str:
    return f"cannot end by its deadline, {clock(reason.until_s)}, any more"


def _spot(reason: Reason) -> str:
    until = f" until {clock(reason.until_s)}" if reason.until_s else ""
    return f"was interrupted too often on spot; leaves such partitions alone{until}"


def _defragment(reason: Reason) -> str:
    jobs, lost = counted(reason.needed, "job"), gpu_time(reason.more)
    return (
        f"would start at {reason.detail} if {jobs} of {reason.free} GPUs moved to other nodes; "
        f"that would save about {span(reason.more_in_s)} of waiting for {lost} of lost work"
    )


def _not_lent(reason: Reason) -> str:
    of = f" of tenant {reason.detail}" if reason.detail else ""
    return f"may not be evicted, so it starts only within the quota{of}"


def _kept(reason: Reason) -> str:
    return (
        f"{_needs(reason)} that nobody gives back before it ends; owners are expected to leave "
        f"{reason.free or 'none'} free for {span(reason.more_in_s)}"
    )


def _beyond_forecast(reason: Reason) -> str:
    return (
        "is over quota, cannot be evicted, and may run longer than load is forecast "
        f"({span(reason.more_in_s)}); a shorter --time may start"
    )


def _jobs_at_once(whose: str) -> Callable[[Reason], str]:
    return lambda r: f"tenant {r.detail} may run {counted(r.needed, 'job')} {whose} at once"


def _jobs_left(whose: str) -> Callable[[Reason], str]:
    return lambda r: (
        f"{counted(r.needed, 'job')} more, the limit of {whose} in tenant {r.detail} leaves "
        f"{r.free}"
    )


_WORDS: Final[dict[ReasonCode, Callable[[Reason], str]]] = {
    ReasonCode.RESOURCES: _resources,
    ReasonCode.NO_PARTITION: _named("no such partition for federated jobs"),
    ReasonCode.NO_GPU_TYPE: _named("no GPUs of that type"),
    ReasonCode.NO_FEATURE: _named("no node has the features"),
    ReasonCode.NO_NODE: _named("no node of that name"),
    ReasonCode.NODES_ASKED: _named("nodes of --nodelist or --exclude leave none that is right"),
    ReasonCode.OLD_RELEASE: _named("the site's release of the federation cannot plan it"),
    ReasonCode.NODE_TOO_SMALL: _node_size,
    ReasonCode.TOO_FEW_NODES: _too_few,
    ReasonCode.LICENSES: _licenses,
    ReasonCode.SWITCHES: _switches,
    ReasonCode.UNKNOWN_USER: _named("the user has no account there"),
    ReasonCode.SITE_DOWN: _named("the site is down or not connected"),
    ReasonCode.DRAINED: _named("the site takes no new work"),
    ReasonCode.SHADOW: _named("the site is only watched (mode: shadow or advisory)"),
    ReasonCode.TENANT_MODE: _named("nothing is started for its tenant (mode: shadow or advisory)"),
    ReasonCode.WRITTEN_OFF: _named("the site was written off"),
    ReasonCode.NO_ANSWER: _named("the site did not answer in time"),
    ReasonCode.BAD_BID: _named("the site's offer was not believed"),
    ReasonCode.LAUNCH_REFUSED: _named("the site refused the launch"),
    ReasonCode.PLAN_REFUSED: _named("the site's Slurm refused the plan"),
    ReasonCode.SBATCH_REFUSED: _named("the site's sbatch refused it, and would again"),
    ReasonCode.HELD: _named("held, since no site takes it (tried hourly; or cancel, submit anew)"),
    ReasonCode.USER_HOLD: _named("held by its user; fscontrol release lets it start"),
    ReasonCode.ADMIN_HOLD: _named("held by an operator"),
    ReasonCode.DEPENDENCY: _named("waits for other jobs"),
    ReasonCode.NEVER_SATISFIED: _named("its dependency can never be satisfied"),
    ReasonCode.BEGIN_TIME: _named("its begin time has not come"),
    ReasonCode.DEADLINE: _deadline,
    ReasonCode.SPOT: _spot,
    ReasonCode.RESERVED: _reserved,
    ReasonCode.SITE_RESERVATION: _site_reservation,
    ReasonCode.NO_QOS: _named("no QOS of that name"),
    ReasonCode.NO_RESERVATION: _named("no reservation for it of that name"),
    ReasonCode.RESERVATION: _in_reservation,
    ReasonCode.LEASE_OVER: _named("did not start within the launch lease"),
    ReasonCode.NODE_FAILED: _named("a node failed"),
    ReasonCode.CHECKPOINT: _named("its checkpoint is out of reach from here, at"),
    ReasonCode.PREEMPTED: _named("evicted for another"),
    ReasonCode.SHRUNK: _named("its optional jobs were taken for another"),
    ReasonCode.RESIZED: _resized,
    ReasonCode.STALLED: _stalled,
    ReasonCode.SLOW_NODES: _slow_nodes,
    ReasonCode.MOVED: _named("moves to another node, so that a gang fits"),
    ReasonCode.DEFRAGMENT: _defragment,
    ReasonCode.REQUEUED: _named("was put back into the queue at its site"),
    ReasonCode.PREEMPT_BUDGET: _budget,
    ReasonCode.LOST_WORK: _named("its victims would lose more work than may be lost now"),
    ReasonCode.SAVES: _saves,
    ReasonCode.CLAIM: _claim,
    ReasonCode.DATA: _named("waits for data sets that are not here"),
    ReasonCode.UNKNOWN: _named("for a reason that this release does not know"),
    ReasonCode.TIME_LIMIT: _named("leaves at its time limit, to go on in another attempt"),
    ReasonCode.NO_PROGRESS: _no_progress,
    ReasonCode.NOT_LENT: _not_lent,
    ReasonCode.KEPT: _kept,
    ReasonCode.NO_PLAN: _named("is over quota, cannot be evicted, and no lending plan is in force"),
    ReasonCode.BEYOND_FORECAST: _beyond_forecast,
    ReasonCode.FILES: _named("its files could not be opened"),
    ReasonCode.SITE_CANCELLED: _named("was cancelled at its site"),
    ReasonCode.RECLAIMED: _named("ended by its site's watch, since it did not use its GPUs"),
    ReasonCode.LOST: _named("the site has no record of the job any more"),
    ReasonCode.ARRAY_LIMIT: _array_limit,
    ReasonCode.LIMIT: _limit,
    ReasonCode.USER_JOBS: _jobs_at_once("of a user"),
    ReasonCode.TENANT_JOBS: _jobs_at_once("of all its users"),
    ReasonCode.USER_SUBMIT: _jobs_left("each user"),
    ReasonCode.TENANT_SUBMIT: _jobs_left("all users"),
    ReasonCode.NOT_TRIED: _named("waits for the next scheduling pass"),
}


def reason_text(reason: Reason) -> str:
    """Say one reason, e.g. ``train+1: needs 16 GPUs of a100|h100, 12 free``."""
    words = _WORDS.get(reason.code, _named(reason.code.value))(reason)
    return printable(f"{reason.job}: {words}" if reason.job else words)


def printable(text: str) -> str:
    """Names come from users and sites: control characters must not reach a terminal."""
    if text.isprintable():  # as nearly all is
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def is_utf8(text: str) -> bool:
    """Tell whether a word from outside can travel; other bytes are surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def listed(text: str | None) -> tuple[str, ...]:
    """Read ids or names, separated by commas.

    Raises:
        InvalidRequest: it holds bytes that are not UTF-8.
    """
    if not is_utf8(text or ""):
        raise InvalidRequest(f"{printable(text or '')!r} holds bytes that are not UTF-8")
    return tuple(part for part in (text or "").split(",") if part)


def users_named(text: str | None) -> tuple[str, ...]:
    """Read users, separated by commas; a number is the uid of one on this host.

    Raises:
        InvalidRequest: it holds bytes that are not UTF-8.
    """
    return tuple(_user(name) for name in listed(text))


def _user(name: str) -> str:
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        return name
    try:
        return pwd.getpwuid(int(name)).pw_name
    except (KeyError, OverflowError):
        return name


def my_name() -> str:
    """The name of the user who runs the command; "#UID" when there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"#{os.getuid()}"


def me_by(caller: str) -> str:
    """My name by the federation, where an answer has said it; else by this host."""
    return caller or my_name()


def with_me(users: tuple[str, ...], caller: str) -> tuple[str, ...]:
    """Users as typed, myself by the federation's name: this host may have another for me."""
    mine = my_name()
    return tuple(me_by(caller) if user == mine else user for user in users)


def unexpected(reply: object) -> SiteUnavailable:
    """The error for an answer that is none to the question."""
    return SiteUnavailable(
        f"the daemon gave an unexpected answer, {type(reply).__name__}; is it of another release?"
    )


def refused(reply: ErrorReply) -> FederatorError:
    """The error for a refusal, of the kind that gives the right exit status."""
    return _ERRORS[reply.kind](printable(reply.message))


def refusal_text(refusal: Refusal) -> str:
    """Say a site's refusal, e.g. ``not now: needs 2 nodes, 1 free``; reasons joined by ``; ``."""
    kind = "not now" if refusal.kind is RefusalKind.WAIT else "never"
    reasons = "; ".join(reason_text(reason) for reason in refusal.reasons)
    text = f"{kind}: {reasons}" if reasons else kind
    if refusal.starts_in_s is not None:
        when = span(refusal.starts_in_s)
        if refusal.predicted:
            text += f"; predicted to start in {when}, by how long such jobs have run"
        else:
            text += f"; could start in {when} at the latest"
            if refusal.sooner_in_s is not None:
                text += f", predicted in {span(refusal.sooner_in_s)}"
    elif refusal.no_end_in_sight:
        text += "; start time unknown: not everything in its way ends by a time limit"
    return text


def slurm_span(time_s: float) -> str:
    """``[days-]hours:minutes:seconds``, as Slurm prints times."""
    minutes, seconds = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' * bool(days)}{hours:02}:{minutes:02}:{seconds:02}"


def clock_text(seconds: float) -> str:
    """A time as scontrol and sacct write it: ``00:01:05``, ``2-01:00:00``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def size_shown(number: int) -> str:
    """``412.0 GiB``; ``-`` where it is not known."""
    if not number:
        return "-"
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
