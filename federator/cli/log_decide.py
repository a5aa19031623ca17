"""Shows one award: what was offered, which term decided, and whether it comes out the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from federator.audit.decisions import kept_decisions
from federator.audit.service import audit_folder
from federator.cli.text import clock, printable, refusal_text
from federator.errors import InvalidRequest
from federator.model.decision import SeenDecision, SeenOffer
from federator.model.event import Awarded, decode_event, encode_event
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId
from federator.sched.passes.decision import (
    CHECKPOINT,
    ONLY_OFFER,
    OTHERS_REFUSED,
    PREFERENCE,
    SITE_ORDER,
    Decisive,
    award_of,
    decisive,
    sorted_offers,
)
from federator.store.base import Store

DIFFERS: Final = 65
_NUMBER: Final = re.compile(r"(?:fed:)?(\d{1,18})(?:[.:](\d{1,9}))?", re.ASCII)
_WORDS: Final = {
    ONLY_OFFER: "no other site made an offer",
    OTHERS_REFUSED: "the tenant may take none of the others",
    SITE_ORDER: "the scores are equal; it stands first in federation.yaml",
}


class Found(NamedTuple):
    """An award, as it was decided and as the log has it."""

    seen: SeenDecision
    again: Awarded | None
    record: int  # position in the log; 0: it is not there any more
    logged: Awarded | None
    differs: tuple[str, ...]  # fields of the award that come out otherwise


def show_decision(award: str, store: Store, folder: str, url: str, *, as_json: bool) -> None:
    """Print it; the process ends with status 65 if it comes out otherwise.

    Args:
        award: as the user named it.
        store: the log.
        folder: ``audit.dir``.
        url: of the log.
    """
    where = audit_folder(folder, url)
    if where is None:
        raise InvalidRequest("no audit is kept, and so no decisions; see the key audit.dir")
    found = _found(award, store, where)
    if as_json:
        print(msgspec.json.encode(_as_json(found)).decode())
    else:
        for line in _lines(found):
            print(printable(line))
    if found.differs:
        click.get_current_context().exit(DIFFERS)


def _found(award: str, store: Store, folder: Path) -> Found:
    match = _NUMBER.fullmatch(award)
    if match is None:
        raise InvalidRequest(
            f"{award[:40]!r}: expected a workload, an attempt, or a record's number"
        )
    number, attempt = int(match[1]), int(match[2] or 0)
    workload, record, logged = number, 0, None
    if number < FIRST_WORKLOAD_ID:
        record, logged = number, _record(store, number)
        workload, attempt = int(logged.attempt.workload), logged.attempt.attempt
    seen = _kept(folder, workload, attempt)
    if logged is None:
        record, logged = _logged(store, seen.attempt)
    again = award_of(seen)
    return Found(seen, again, record, logged, tuple(_differences(again, logged)))


def _kept(folder: Path, workload: int, attempt: int) -> SeenDecision:
    found = None
    for seen in kept_decisions(folder):
        if seen.attempt.workload == workload and attempt in (0, seen.attempt.attempt):
            found = seen
    if found is None:
        name = f"{workload}.{attempt}" if attempt else str(workload)
        raise InvalidRequest(f"what an award of {name} was decided on is not kept (any more)")
    return found


def _record(store: Store, number: int) -> Awarded:
    for place, record in store.read_on(None):
        if place.end.next - 1 == number:
            event = decode_event(record)
            if isinstance(event, Awarded):
                return event
            raise InvalidRequest(f"record {number} is no award: {type(event).__name__}")
    raise InvalidRequest(f"the log has no record {number} (any more)")


def _logged(store: Store, attempt: AttemptId) -> tuple[int, Awarded | None]:
    for place, record in store.read_on(None):
        if b"awarded" in record[:200]:
            event = decode_event(record)
            if isinstance(event, Awarded) and event.attempt == attempt:
                return place.end.next - 1, event
    return 0, None


def _differences(again: Awarded | None, logged: Awarded | None) -> Iterator[str]:
    if logged is None:
        return
    if again is None:
        yield "nothing would be taken"
        return
    if encode_event(again) == encode_event(logged):
        return
    differ = [
        name for name in logged.__struct_fields__ if getattr(again, name) != getattr(logged, name)
    ]
    yield from differ or ["the order of fields"]


# ---- words ----


def _lines(found: Found) -> Iterator[str]:
    seen = found.seen
    yield f"award {seen.attempt} of {clock(seen.at_s)}: {seen.chosen}"
    decided = decisive(seen)
    yield f"decided by {_said(decided, str(seen.chosen)) if decided is not None else 'nothing'}"
    ranked = "within" if seen.within_quota else "over"
    yield f"ranked at priority {seen.priority}, {ranked} quota, credit {seen.credit:g}"
    for offer in sorted_offers(seen.offers, seen.sites):
        yield f"{offer.site}: {_offer(offer, taken=offer.site == seen.chosen)}"
    for site, refusal in seen.refusals.items():
        yield f"{site}: {refusal_text(refusal)}"
    for victim, terms in seen.terms.items():
        yield f"victim {victim}: evicted at priority {terms.priority} or above"
    yield _compared(found)


def _said(decided: Decisive, chosen: str) -> str:
    if decided.term in _WORDS:
        return _WORDS[decided.term]
    if decided.term == PREFERENCE:
        return (
            f"quota: at {chosen} it stands better within its tenant's than at {decided.other_site}"
        )
    if decided.term == CHECKPOINT:
        return (
            f"checkpoint: one of its last run can be read at {chosen}, not at {decided.other_site}"
        )
    return f"{decided.term}: {decided.taken:g}, against {decided.other:g} of {decided.other_site}"


def _offer(offer: SeenOffer, *, taken: bool) -> str:
    words = ["taken;"] if taken else []
    if offer.standing is None:
        words.append("not looked at, none could be better;")
    elif offer.standing.refusal is not None:
        words.append(f"{refusal_text(offer.standing.refusal)};")
    nodes = sum(len(plan.nodes) for plan in offer.bid.jobs)
    gpus = sum(share.gpus for plan in offer.bid.jobs for share in plan.nodes.values())
    terms = ", ".join(f"{name} {value:g}" for name, value in offer.bid.named().items())
    victims = f", victims {','.join(map(str, offer.bid.victims))}" if offer.bid.victims else ""
    return f"{' '.join(words)} {nodes} nodes, {gpus} GPUs{victims}; {terms or 'score 0'}".strip()


def _compared(found: Found) -> str:
    if found.logged is None:
        return "the log does not have it any more"
    if not found.differs:
        return f"made again: the same as record {found.record} of the log, bit for bit"
    return (
        f"made again: differs from record {found.record} of the log in {', '.join(found.differs)}"
    )


def _as_json(found: Found) -> dict[str, object]:
    decided = decisive(found.seen)
    return {
        "schema": 1,
        "seen": msgspec.to_builtins(found.seen, str_keys=True),
        "decided_by": None if decided is None else decided._asdict(),
        "record": found.record,
        "again": None if found.again is None else msgspec.to_builtins(found.again, str_keys=True),
        "differs": list(found.differs),
    }
