"""The bids of ``fsbatch --test-only``, for people and as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import msgspec

from federator.cli.start_text import start_json, start_text
from federator.cli.text import alternative_text, printable, refusal_text, unexpected
from federator.model.reason import ReasonCode, RefusalKind
from federator.wire.replies import Reply, SiteBid, TestOnlyReply


def print_bids(reply: Reply, *, as_json: bool) -> int:
    """Show each site's answer on stderr (JSON: stdout); 1 when no site could ever run it."""
    if not isinstance(reply, TestOnlyReply):
        raise unexpected(reply)
    hopeful = [each for each in reply.bids if each.site and _may_run_it(each)]
    if as_json:
        answer = {
            "schema": 1,
            "winner": reply.winner or None,
            "advised": reply.advised,
            "bids": reply.bids,
            "start": start_json(reply.start),
        }
        print(msgspec.json.encode(answer).decode(), flush=True)
        return 0 if hopeful else 1
    width = max((len(each.site) for each in reply.bids), default=0)
    for each in reply.bids:
        mark = "*" if each.site == reply.winner else "-" if each.site in reply.advised else " "
        line = f"fsbatch: {mark} {each.site or 'federation':<{width}}  {_bid_text(each)}"
        print(printable(line), file=sys.stderr)
        for other in each.refusal.alternatives if each.refusal is not None else ():
            print(f"fsbatch:   {'':<{width}}  {alternative_text(other)}", file=sys.stderr)
    for site in reply.advised:
        print(
            printable(
                f"fsbatch: would start now by sbatch at {site}: the federation starts nothing "
                "there, or for this tenant (mode advisory)"
            ),
            file=sys.stderr,
        )
    _print_outcome(reply, hopeful)
    return 0 if hopeful else 1


def _print_outcome(reply: TestOnlyReply, hopeful: Sequence[SiteBid]) -> None:
    if reply.winner:
        print(printable(f"fsbatch: would start now at {reply.winner}"), file=sys.stderr)
    elif not hopeful:
        print("allocation failure: no site can ever run this job", file=sys.stderr)
    elif reply.for_watched_tenant:
        pass  # it would not wait either: the federation's own line says why
    elif all(map(_is_down, hopeful)):
        print(printable(f"fsbatch: {_would_wait_for(hopeful)}"), file=sys.stderr)
    else:
        print("fsbatch: would wait in the federation's queue", file=sys.stderr)
        if reply.start is not None:
            print(f"fsbatch: {start_text(reply.start, time.time())}", file=sys.stderr)


def _may_run_it(answer: SiteBid) -> bool:
    refusal = answer.refusal
    return answer.bid is not None or (refusal is not None and refusal.kind is RefusalKind.WAIT)


def _is_down(answer: SiteBid) -> bool:
    refusal = answer.refusal
    return refusal is not None and refusal.reasons[0].code is ReasonCode.SITE_DOWN


def _would_wait_for(down: Sequence[SiteBid]) -> str:
    names = ", ".join(each.site for each in down)
    are = "is" if len(down) == 1 else "are"
    return f"would wait: {names}, which may be able to run it, {are} down"


def _bid_text(answer: SiteBid) -> str:
    if answer.bid is None:
        return "no answer" if answer.refusal is None else refusal_text(answer.refusal)
    parts = [
        f"{sum(share.gpus for share in plan.nodes.values())} GPUs and "
        f"{sum(share.cpus for share in plan.nodes.values())} CPUs on {','.join(plan.nodes)} "
        f"in partition {plan.partition}"
        for plan in answer.bid.jobs
    ]
    going = len(answer.bid.victims) + len(answer.bid.shrinks)
    victims = f"; preempts {going}" if going else ""
    return f"can start now with {' : '.join(parts)}{victims}"
