"""``federator bid``: shows offline, from two files, what a site would bid or why it refuses."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from federator.cli.bid_files import read_request, read_snapshot
from federator.cli.node_lists import folded
from federator.cli.text import alternative_text, printable, reason_text, refusal_text
from federator.model.plan import Bid, BidRequest
from federator.model.reason import Reason, Refusal
from federator.model.site import NodeShare, Snapshot
from federator.model.site_message import SiteAnswer
from federator.sched.bid.site_scheduler import SiteScheduler

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--snapshot", type=_FILE, required=True, help="The site (snapshot.json).")
@click.option("--request", type=_FILE, required=True, help="The workload (request.json).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def bid(snapshot: Path, request: Path, as_json: bool) -> None:
    """What a site would bid for a workload: plan, score and victims; or why it refuses.

    A refusal is an answer: the exit status is 0 then, too.

    Example: federator bid --snapshot alpine.json --request train.json
    """
    site = read_snapshot(snapshot)
    knows_memory = any(node.gpu_mem_gib for node in site.nodes)
    answer = answer_of(site, read_request(request, knows_memory=knows_memory))
    if as_json:
        print(msgspec.json.encode(_as_json(answer)).decode())
        return
    for line in _lines(answer):
        print(printable(line))


def answer_of(snapshot: Snapshot, request: BidRequest) -> SiteAnswer:
    """The answer of a site that looks like this; its partitions in order of appearance."""
    names = dict.fromkeys(p for n in snapshot.nodes for p in n.partitions + n.closed_partitions)
    scheduler = SiteScheduler(tuple(names))
    scheduler.update(
        snapshot.nodes,
        (),
        switches=snapshot.switches,
        running=snapshot.running,
        local=snapshot.local,
        windows=snapshot.windows,
    )
    scheduler.count_licenses(snapshot.licenses)
    (answer,) = scheduler.bid([request], snapshot.now_s)
    return answer


def _as_json(answer: SiteAnswer) -> dict[str, object]:
    if answer.refusal is not None:
        return {"refusal": refusal_as_json(answer.refusal)}
    made = answer.bid
    assert made is not None
    jobs = [
        {
            "name": p.name,
            "partition": p.partition,
            "nodes": {name: _share(share) for name, share in p.nodes.items()},
        }
        for p in made.jobs
    ]
    going = {"victims": made.victims, "shrinks": made.shrinks}
    return {"bid": {"score": tuple(made.score), "jobs": jobs, **going}}


def _share(share: NodeShare) -> dict[str, object]:
    gres = {"gres": share.gres} if share.gres else {}
    return {"gpus": share.gpus, "cpus": share.cpus, "mem_mib": share.mem_mib, **gres}


def refusal_as_json(refusal: Refusal) -> dict[str, object]:
    """As in ``bid --json``, docs/formats.md."""
    return {
        "kind": refusal.kind.value,
        "reasons": [_reason(reason) for reason in refusal.reasons],
        "starts_in_s": refusal.starts_in_s,
        "predicted": refusal.predicted,
        "sooner_in_s": refusal.sooner_in_s,
        "no_end_in_sight": refusal.no_end_in_sight,
        "alternatives": refusal.alternatives,
    }


def _reason(reason: Reason) -> dict[str, object]:
    return {
        "code": reason.code.value,
        "message": reason_text(reason),
        "job": reason.job,
        "needed": reason.needed,
        "free": reason.free,
        "unit": reason.unit,
        "detail": reason.detail,
        "free_nodes": reason.free_nodes,
        "largest_rack": reason.largest_rack,
        "more": reason.more,
        "more_in_s": reason.more_in_s,
        "apart": reason.apart,
    }


def _lines(answer: SiteAnswer) -> list[str]:
    if answer.bid is None:
        refusal = answer.refusal
        assert isinstance(refusal, Refusal)
        return [refusal_text(refusal), *map(alternative_text, refusal.alternatives)]
    return _bid_lines(answer.bid)


def _bid_lines(made: Bid) -> list[str]:
    lines = []
    for plan in made.jobs:
        gpus = sum(s.gpus for s in plan.nodes.values())
        cpus = sum(s.cpus for s in plan.nodes.values())
        where = f"{folded(tuple(plan.nodes))} in partition {plan.partition}"
        lines.append(f"{plan.name}: {gpus} GPUs and {cpus} CPUs on {where}")
    terms = [
        f"{name} {value:g}"
        for name, value in zip(made.score._fields, made.score, strict=True)
        if value
    ]
    lines.append(f"score: {', '.join(terms) or 'all terms 0'}")
    taken = (f"job {number} of {id_}" for id_, number in made.shrinks)
    victims = ", ".join([*map(str, made.victims), *taken])
    lines.append(f"evicts: {victims}" if victims else "nobody is evicted")
    return lines
