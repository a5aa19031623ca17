"""At most one incarnation, in long histories of one attempt whose happenings hypothesis draws."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fakes.one_attempt import OneAttempt


class AgentOfOneAttempt(RuleBasedStateMachine):
    """Whatever can happen next happens; in the end nothing bad does any more."""

    def __init__(self) -> None:
        super().__init__()
        self.site = OneAttempt()

    @initialize(accounts=st.booleans())
    def begin(self, accounts: bool) -> None:
        self.site = OneAttempt(accounts=accounts)
        self.site.first_sweep()

    @rule(data=st.data())
    def happen(self, data: st.DataObject) -> None:
        options = self.site.options()
        options[data.draw(st.sampled_from(sorted(options)))]()

    @rule()
    def time_passes_and_nothing_fails(self) -> None:
        self.site.settle_down(turns=50)

    @invariant()
    def no_promise_is_broken(self) -> None:
        assert not self.site.broken

    def teardown(self) -> None:
        self.site.settle_down()
        assert not self.site.broken
        assert not self.site.core.unfinished  # whatever was ordered has been answered


AgentOfOneAttempt.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestAgentOfOneAttempt = AgentOfOneAttempt.TestCase
