"""The plain table of fsqueue, and with ``--why`` the reasons below each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from federator.cli.job_states import WAITS, state_code
from federator.cli.node_lists import folded
from federator.cli.preemption_text import preemption_lines
from federator.cli.queue_columns import Shown, elapsed_s, job_id, reason_word, seconds_text
from federator.cli.rank_text import rank_text
from federator.cli.text import printable, reason_text, refusal_text
from federator.model.lifecycle import WorkloadState
from federator.model.reason import ReasonCode
from federator.wire.client_protocol import QueueRow

_S = WorkloadState
_SAYS_WHY: Final = frozenset({_S.PREEMPTING.value, _S.TIMEOUT.value, _S.CANCELLED.value})
_HEADER: Final = (
    f"{'NAME':<12} {'USER':<8} {'ACCOUNT':<8} {'ST':<2} {'TIME':>10} "
    f"{'NODES':>5} {'GPUS':>5} {'SITE':<8} {'SITE_JOBID':>10} NODELIST(REASON)"
)
_ID_WIDTH: Final = 14  # at least


def render(
    rows: Sequence[QueueRow],
    now_s: float,
    *,
    header: bool,
    why: bool,
    paint: Callable[[str, QueueRow], str] | None = None,
) -> str:
    """The table as text, safe for a terminal.

    Args:
        rows: the jobs, in the order of the lines.
        now_s: the daemon's clock.
        header: whether there is a first line with headings.
        why: whether reasons stand below each job.
        paint: gives a line of a job a colour; None: none has one.
    """
    ids = [_fit(job_id(Shown(row))) if row.array_id else str(row.id) for row in rows]
    width = max(max(map(len, ids), default=0), _ID_WIDTH)
    lines = [f"{'JOBID':>{width}} {_HEADER}"] if header else []
    alike: dict[tuple[object, ...], str] = {}
    for id_, row in zip(ids, rows, strict=True):
        name = row.name[:12]
        if not name.isprintable():
            name = printable(name)
        line = f"{id_:>{width}} {name:<12} {_behind_name(row, now_s, alike)}"
        lines.append(line if paint is None else paint(line, row))
        if why:
            lines += [_fit(f"{'':>{_ID_WIDTH}}   {line}") for line in _why(row, now_s)]
    return "\n".join(lines)


def _behind_name(row: QueueRow, now_s: float, alike: dict[tuple[object, ...], str]) -> str:
    """The rest of a line. Of thousands that wait most are alike: theirs is made once."""
    reason = row.reason
    if reason is None or row.started_at_s or row.state not in WAITS or row.unknown_since_s:
        return _fit(_rest(Shown(row, now_s)))
    key = (
        row.user,
        row.tenant,
        row.state,
        row.site_state,
        row.nodes,
        row.gpus,
        row.site,
        row.site_job_id,
        id(reason.code),  # there is one object of each: its own hash is no fast one
    )
    found = alike.get(key)
    if found is None:
        found = alike[key] = _fit(_rest(Shown(row, now_s)))
    return found


def _fit(line: str) -> str:
    return line if line.isprintable() else printable(line)


def _rest(shown: Shown) -> str:
    row = shown.row
    state = state_code(row)
    elapsed = seconds_text(elapsed_s(shown)) if row.started_at_s else "0:00"
    time_width = 10 if len(state) <= 2 else 12 - len(state)  # "OOM" takes a column of the next one
    return (
        f"{row.user[:8]:<8} {row.tenant[:8]:<8} "
        f"{state:<2} {elapsed:>{time_width}} "
        f"{row.nodes or '-':>5} {row.gpus:>5} "
        f"{row.site:<8} {row.site_job_id or '':>10} {_where(shown)}"
    )


def _where(shown: Shown) -> str:
    row, now_s = shown.row, shown.now_s
    if row.state in WAITS and row.reason is not None and not row.unknown_since_s:
        return f"({reason_word(shown)})"
    nodes = folded(row.node_names)
    if row.unknown_since_s:
        return f"{nodes} (unknown for {int(now_s - row.unknown_since_s)} s: site not heard)"
    if row.state == _S.FAILED.value:
        detail = row.reason.code.value if row.reason else row.site_state
        if row.exit_code is None:
            return f"{nodes} ({detail})"
        ending = f"signal {row.signal}" if row.signal else f"exit {row.exit_code}"
        return f"{nodes} ({detail}: {ending})"
    if row.state in _SAYS_WHY and row.reason is not None:
        return f"{nodes} ({row.reason.code.value})"
    return nodes


def _why(row: QueueRow, now_s: float) -> list[str]:
    lines: list[str] = []
    if row.state != _S.PENDING.value:
        lines += [reason_text(row.reason)] if row.reason is not None else []
    else:
        lines += [rank_text(row.rank, row.tenant)] if row.rank is not None else []
        lines += [f"{site or 'federation'}: {refusal_text(r)}" for site, r in row.refusals.items()]
        if not row.refusals and row.reason is not None:
            lines.append(reason_text(row.reason))
    lines += [
        f"setback at {site}: {reason_text(setback.reason)}"
        for site, setback in row.setbacks.items()
        if setback.reason.code is ReasonCode.NODE_FAILED and setback.reason != row.reason
    ]
    evictions = preemption_lines(row.preemption, now_s)
    return [*lines, *(f"{label.lower()}: {text}" for label, text in evictions)]
