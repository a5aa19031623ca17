"""What is other than in the product while a history is played is the same again afterwards."""

from __future__ import annotations

import gc

from federator.faults import history
from federator.sched.passes import held
from federator.sched.state import backoff


def test_what_sites_refuse_is_not_tried_again_before_the_faults_are_over() -> None:
    with history._in_a_hurry():
        assert backoff.REFUSING_SITE_S > history.FAULTS_S
        assert backoff.REFUSING_SITE_S > held.TRIED_EVERY_S


def test_after_a_history_all_is_as_it_was() -> None:
    before = [getattr(module, name) for module, name, _ in history._HURRIED]
    assert gc.isenabled()
    with history._one_collection(), history._in_a_hurry():
        assert not gc.isenabled()
        assert [getattr(module, name) for module, name, _ in history._HURRIED] != before
    assert [getattr(module, name) for module, name, _ in history._HURRIED] == before
    assert gc.isenabled()
