"""What is known of a site without asking it, and until when."""

from __future__ import annotations

import pytest
from msgspec import structs

from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import Job, SiteName
from federator.sched.passes import known_refusals
from federator.sched.passes.known_refusals import KnownRefusals, later
from tests.fakes.build import gang

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
ONE, TWO, FOUR = ((gang(n),) for n in (1, 2, 4))
FULL = Refusal(
    kind=RefusalKind.WAIT,
    reasons=(Reason(code=ReasonCode.RESOURCES, job="train", needed=16, free=8, unit="GPUs"),),
    no_end_in_sight=True,
)
FREE_IN_60_S = structs.replace(FULL, starts_in_s=60.0, no_end_in_sight=False)


def knowing(refusal: Refusal = FULL, jobs: tuple[Job, ...] = TWO, number: int = 2) -> KnownRefusals:
    """At 100 s alpine, where something has come free 5 times, has refused two nodes."""
    known = KnownRefusals((ALPINE, BAKER))
    known.heard(ALPINE, 5)
    known.learn(ALPINE, number, jobs, refusal, 100.0)
    return known


def refuses(known: KnownRefusals, number: int, jobs: tuple[Job, ...], *sites: SiteName) -> bool:
    return known.is_refused(number, jobs, known.bits(sites or (ALPINE,)))


def test_a_refusal_holds_until_something_comes_free_at_the_site() -> None:
    known = knowing()
    assert refuses(known, 2, TWO)
    assert not known.heard(ALPINE, 5)
    assert refuses(known, 2, TWO)
    assert known.heard(ALPINE, 6)
    assert not refuses(known, 2, TWO)


def test_it_holds_for_more_and_not_for_less() -> None:
    known = knowing()
    assert refuses(known, 4, FOUR)
    assert not refuses(known, 1, ONE)
    assert known.refusal(ALPINE, 1, ONE, 100.0) is None


def test_what_follows_from_a_later_refusal_is_seen_though_it_was_looked_for_before() -> None:
    known = knowing()
    assert not refuses(known, 1, ONE)
    known.learn(ALPINE, 7, (gang(1, 1),), FULL, 100.0)
    assert refuses(known, 1, ONE)


def test_of_a_site_that_may_not_be_asked_there_is_nothing_to_forget() -> None:
    known = knowing()
    known.forget(SiteName("gone"))
    assert refuses(known, 2, TWO)


def test_sites_know_nothing_of_each_other() -> None:
    known = knowing()
    assert not refuses(known, 2, TWO, ALPINE, BAKER)
    known.heard(BAKER, 1)
    known.learn(BAKER, 2, TWO, FULL, 100.0)
    assert refuses(known, 2, TWO, ALPINE, BAKER)
    known.heard(BAKER, 2)
    assert refuses(known, 2, TWO, ALPINE)
    assert not refuses(known, 2, TWO, ALPINE, BAKER)


def test_a_site_that_does_not_say_what_came_free_is_asked_anew_in_each_pass() -> None:
    known = KnownRefusals((ALPINE,))
    known.learn(ALPINE, 2, TWO, FULL, 100.0)
    assert refuses(known, 2, TWO)
    known.begin_pass()
    assert not refuses(known, 2, TWO)
    known = knowing()
    known.begin_pass()
    assert refuses(known, 2, TWO)


def test_who_is_not_known_or_must_not_delay_another_is_asked_again() -> None:
    for code in (ReasonCode.UNKNOWN_USER, ReasonCode.RESERVED, ReasonCode.LAUNCH_REFUSED):
        said = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=code),))
        assert not refuses(knowing(said), 2, TWO)


def test_a_prediction_ends_with_the_next_award_and_the_refusal_does_not() -> None:
    known = knowing(FREE_IN_60_S)
    assert known.prediction(ALPINE, 2, 110.0) == 50.0
    known.forget_predictions(ALPINE)
    assert known.prediction(ALPINE, 2, 110.0) is None
    assert known.lacks_prediction(ALPINE, 2, 110.0)
    assert refuses(known, 2, TWO)


def test_a_site_that_predicts_is_asked_again_what_it_has_not_predicted() -> None:
    known = knowing(FREE_IN_60_S)
    assert not known.lacks_prediction(ALPINE, 2, 110.0)
    assert known.lacks_prediction(ALPINE, 2, 160.0)  # whoever was to end by then still runs
    assert known.lacks_prediction(ALPINE, 4, 110.0)  # it follows, and nobody has looked
    assert not knowing().lacks_prediction(ALPINE, 4, 110.0)  # no job there has a time limit


def test_it_is_told_in_the_words_of_who_asks_and_as_of_now() -> None:
    known = knowing(FREE_IN_60_S)
    own = known.refusal(ALPINE, 2, TWO, 130.0)
    assert own is not None
    assert own.starts_in_s == 30.0
    follows = known.refusal(ALPINE, 4, FOUR, 130.0)
    assert follows is not None
    assert (follows.starts_in_s, follows.reasons[0].needed) == (None, 32)


def test_times_of_a_refusal_do_not_go_below_now() -> None:
    more = structs.replace(FULL.reasons[0], more=8, more_in_s=20.0)
    said = Refusal(kind=RefusalKind.WAIT, reasons=(more,), starts_in_s=60.0, sooner_in_s=10.0)
    read = later(said, 30.0)
    assert (read.starts_in_s, read.sooner_in_s, read.reasons[0].more_in_s) == (30.0, 0.0, 0.0)
    assert later(said, 0.0) is said


def test_no_more_than_so_many_shapes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_refusals, "SHAPES_KEPT", 3)
    known = knowing()
    for number in (3, 4, 5):
        known.learn(ALPINE, number, (gang(number),), FULL, 100.0)
    known.begin_pass()
    assert not refuses(known, 2, TWO)
