"""federator explain: everything about one workload, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import click

from federator.cli.client import call
from federator.cli.colour import of_job, painted
from federator.cli.job_states import ENDED
from federator.cli.lending_text import decision_text
from federator.cli.node_lists import folded
from federator.cli.output_text import output_text
from federator.cli.pace_text import pace_text
from federator.cli.preemption_text import Line, preemption_lines
from federator.cli.queue_columns import Shown, job_id
from federator.cli.queue_json import iso, json_of
from federator.cli.rank_text import (
    counted,
    credit_text,
    duration,
    number,
    position_text,
    priority_text,
    standing_text,
)
from federator.cli.region_text import region_lines
from federator.cli.start_text import help_lines, start_lines
from federator.cli.text import listed, printable, reason_text, refusal_text, unexpected
from federator.errors import InvalidRequest
from federator.model.lifecycle import WorkloadState
from federator.model.score import TERMS, Score, with_cost
from federator.model.submission import NodeRange
from federator.wire.client_protocol import ErrorReply, QueueCall, QueueReply, QueueRow
from federator.wire.queue_rows import SetbackRow

_WAITS_APART = frozenset({WorkloadState.HELD.value, WorkloadState.INELIGIBLE.value})


@click.command()
@click.argument("workload", metavar="WORKLOAD")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def explain(workload: str, as_json: bool) -> None:
    """Why a workload is where it is: its place in the queue, what each site says, how it
    went, and what evictions cost it or others.

    WORKLOAD is an id, a task of an array (ID_INDEX), or an array's id for all of its tasks.

    Example: federator explain 4294967297
    """
    asked = QueueCall(
        ids=listed(workload), ended=True, why=True, files=True, starts=True, helps=not as_json
    )
    reply = call(asked)
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(printable(reply.message))
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    if not reply.rows:
        raise InvalidRequest(f"Invalid job id specified: {printable(workload)}")
    if as_json:
        print(json_of(reply.rows, reply.now_s))
        return
    print("\n\n".join(_in_colour(render(row, reply.now_s), row) for row in reply.rows))


def _in_colour(story: str, row: QueueRow) -> str:
    """The line with the state is the second."""
    head, state, *rest = story.split("\n")
    return "\n".join((head, painted(state, of_job(row)), *rest))


def render(row: QueueRow, now_s: float) -> str:
    """The story of one workload, safe for a terminal."""
    head = f"Workload {job_id(Shown(row))} {row.name!r} of {row.user}, tenant {row.tenant}"
    if row.array_id:
        head += f" (id {row.id})"
    evictions = preemption_lines(row.preemption, now_s)
    place = (*_at_site(row), *_files(row))
    lines = [
        *_state(row, now_s),
        *_rank(row),
        *place,
        *evictions,
        *_sites(row),
        *region_lines(row.regions),
        *start_lines(row.start, now_s),
        *help_lines(row.helps, now_s, untried=row.helps_untried),
        *_setbacks(row, now_s),
    ]
    width = max(len(label) for label, _ in lines) + 2
    return "\n".join(
        printable(line) for line in (head, *(f"  {label:<{width}}{text}" for label, text in lines))
    )


def _state(row: QueueRow, now_s: float) -> Iterator[Line]:
    times = {
        "submitted": row.submitted_at_s,
        "started": row.started_at_s,
        "ended": row.ended_at_s,
    }
    ages = [f"{what} {duration(now_s - at_s)} ago" for what, at_s in times.items() if at_s]
    yield "State", ", ".join([row.state, *ages])
    yield "Times", ", ".join(f"{what} {iso(at_s)}" for what, at_s in times.items() if at_s)
    if row.state in ENDED:
        yield "Ended", _ending(row)
    wants = [counted(row.nodes, "nodes")] if row.nodes else []
    wants += [counted(row.gpus, "GPUs")] if row.gpus else []
    wants += [f"{row.spare} of the nodes spare"] if row.spare else []
    wants += [counted(row.jobs, "het components")] if row.jobs > 1 else []
    wants += [f"time limit {duration(row.time_limit_s)}"] if 0 < row.time_limit_s < inf else []
    if wants:
        yield "Size", ", ".join(wants)
    said = [f"project {row.project}"] if row.project else []
    said += [f"data sets {', '.join(row.datasets)}"] if row.datasets else []
    if said:
        yield "Said", "; ".join(said)
    if row.output is not None:
        yield "Output", output_text(row.output)
    if row.elastic is not None:
        yield "Elastic", _sizes(row, row.elastic)


def _sizes(row: QueueRow, elastic: NodeRange) -> str:
    asked = f"; asked for {elastic.asked}" if elastic.asked else ""
    now = f"; has {row.nodes}" if row.site else f"; waits for {row.nodes} at least"
    return f"can run on {elastic} nodes{asked}{now if row.state not in ENDED else ''}"


def _ending(row: QueueRow) -> str:
    known = row.signal or row.exit_code is not None
    words = [row.site_state] if row.site_state and known else []
    if row.signal:
        words.append(f"signal {row.signal}")
    elif row.exit_code is not None:
        words.append(f"exit code {row.exit_code}")
    else:
        words.append("exit code not known" if row.started_at_s else "before it started")
    words += [reason_text(row.reason)] if row.reason is not None else []
    return ", ".join(words)


def _rank(row: QueueRow) -> Iterator[Line]:
    rank = row.rank
    if rank is None:
        if row.state == WorkloadState.PENDING.value:
            yield "Rank", "not known yet: it came to the queue a moment ago; ask again"
        return
    if rank.position:
        yield "Position", position_text(rank)
        yield "Priority", priority_text(rank, row.tenant).removeprefix("priority ")
        credit = credit_text(rank, row.tenant)
        if credit:
            yield "Credit", credit.removeprefix("credit ")
    else:
        yield "Standing", standing_text(rank)


def _files(row: QueueRow) -> Iterator[Line]:
    named = {
        "WorkDir": row.work_dir,
        "StdIn": row.stdin,
        "StdOut": row.stdout,
        "StdErr": row.stderr,
    }
    yield from ((label, path) for label, path in named.items() if path)


def _at_site(row: QueueRow) -> Iterator[Line]:
    if not row.attempt:
        return
    if not row.site:
        yield "Attempts", f"{row.attempt} so far"
        return
    job = f", job {row.site_job_id}" if row.site_job_id else ""
    nodes = f", on {folded(row.node_names)}" if row.node_names else ""
    yield "Attempt", f"{row.attempt}, at {row.site}{job}{nodes}"
    if row.unknown_since_s:
        yield "", "the site is not heard: what became of it is not known"
    if row.pace is not None:
        yield "Steps", pace_text(row.pace)
    if row.lending is not None:
        yield "Lending", decision_text(row.lending)
    for site, score in row.offers.items():
        taken = ", taken" if site == row.site else ""
        yield f"Bid of {site}", _score(score, row.costs.get(site, 0.0)) + taken


def _score(score: Score, cost: float) -> str:
    named = zip(TERMS, with_cost(score, cost), strict=True)
    terms = [f"{name} {number(v)}" for name, v in named if v]
    return ", ".join(terms) or "as good as can be (all terms 0)"


def _sites(row: QueueRow) -> Iterator[Line]:
    if row.state in _WAITS_APART and row.reason is not None:
        yield "Reason", reason_text(row.reason)
    if row.state != WorkloadState.PENDING.value:
        return
    for site, refusal in row.refusals.items():
        yield (f"Site {site}" if site else "Federation"), refusal_text(refusal)
    if not row.refusals and row.reason is not None:
        yield "Reason", reason_text(row.reason)


def _setbacks(row: QueueRow, now_s: float) -> Iterator[Line]:
    for site, setback in row.setbacks.items():
        yield f"Setback at {site}", _setback(setback, now_s)


def _setback(setback: SetbackRow, now_s: float) -> str:
    text = reason_text(setback.reason)
    if setback.failures > 1:
        text += f"; {setback.failures} times in a row"
    left_s = setback.avoid_until_s - now_s
    return f"{text}; asked again in {duration(left_s)}" if left_s >= 1 else text
