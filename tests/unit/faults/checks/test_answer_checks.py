"""Users' answers as the model sees them: one id for a key, and it is never lost."""

from __future__ import annotations

from federator.config import FederationConfig
from federator.daemon.own_config import new_federation
from federator.faults.checks.answer_checks import AnswerChecks
from federator.faults.checks.evidence import Evidence
from federator.faults.world import SITES, config_of
from federator.model.workload import SiteName, WorkloadId


def empty_config() -> FederationConfig:
    return config_of([SiteName(name) for name in SITES])


def test_one_key_has_one_id() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    answers = AnswerChecks(evidence)
    answers.acknowledged("ada:1", 7)
    answers.acknowledged("ada:1", 7)
    assert evidence.broken == []
    answers.acknowledged("ada:1", 8)
    assert evidence.broken == ["key ada:1 was 7, and is 8 now"]


def test_a_key_that_was_used_again_is_no_other_submission() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    answers = AnswerChecks(evidence)
    answers.acknowledged("ada:1", 7)
    answers.key_reused("ada:1", 7)
    assert evidence.broken == ["key ada:1 of 7 was used again, and answered with 7"]


def test_the_first_answer_to_a_cancel_is_when_it_was_acknowledged() -> None:
    now_s = [5.0]
    evidence = Evidence(lambda _: None, lambda: now_s[0])
    answers = AnswerChecks(evidence)
    answers.cancel_asked(7)
    answers.cancelled([7])
    now_s[0] = 9.0
    answers.cancelled([7])
    truth = evidence.truth(WorkloadId(7))
    assert (truth.cancel_asked, truth.cancel_acked_at_s) == (True, 5.0)


def test_what_was_acknowledged_is_known_to_every_later_daemon() -> None:
    evidence = Evidence(lambda _: None, lambda: 0.0)
    answers = AnswerChecks(evidence)
    answers.acknowledged("ada:1", 7)
    answers.check_acknowledged(new_federation(empty_config()).ledger)
    assert evidence.broken == ["key ada:1 was acknowledged as 7, and is lost"]
