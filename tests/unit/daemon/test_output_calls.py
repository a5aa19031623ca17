"""Which submissions may write which data set, and who reads of it."""

from __future__ import annotations

import msgspec
import pytest

from federator.config import FederationConfig
from federator.daemon.output_calls import output_draft
from federator.errors import InvalidRequest
from federator.model.data_output import DataOutput, OutputWish
from federator.model.dataset import DataSharing
from federator.model.workload import TenantName
from federator.sched.state.ledger import Ledger
from tests.unit.daemon.test_api import Desk
from tests.unit.daemon.test_data_calls import WITH_STORAGE, add, desk, given, row_for

__all__ = ("desk",)
VISION = TenantName("vision")


def drafted(desk: Desk, text: str, user: str = "ada", jobs: int = 1) -> DataOutput | None:
    wish, ledger = OutputWish.of(text), desk.federation.federation.ledger
    return output_draft(wish, user, VISION, jobs, WITH_STORAGE, ledger)


def test_a_new_name_and_a_new_version_of_an_own_name_are_free(desk: Desk) -> None:
    add(desk, given("maps"))
    assert drafted(desk, "new@v1") == DataOutput(name="new", version="v1")
    assert drafted(desk, "maps@2") == DataOutput(name="maps", version="2")
    assert drafted(desk, "maps") == DataOutput(name="maps")


def test_a_version_that_exists_or_is_being_written_is_refused(desk: Desk) -> None:
    add(desk, given("maps"))
    with pytest.raises(InvalidRequest, match="--fed-output=maps@1: the catalogue has it"):
        drafted(desk, "maps@1")
    desk.submit(**{"fed-output": "maps@2"})
    with pytest.raises(InvalidRequest, match="another job is to write it"):
        drafted(desk, "maps@2")


def test_a_name_of_another_user_is_refused_however_it_is_shared(desk: Desk) -> None:
    add(desk, given("maps", sharing=DataSharing.ALL))
    with pytest.raises(InvalidRequest, match="the name is taken by another user"):
        drafted(desk, "maps@2", user="bob")


def test_no_more_are_written_than_a_user_may_have(desk: Desk) -> None:
    most = WITH_STORAGE.policy.max_data_sets_per_user
    assert drafted(desk, "maps", jobs=most) is not None
    desk.submit(**{"fed-output": "maps"})
    with pytest.raises(InvalidRequest, match="max_data_sets_per_user"):
        drafted(desk, "maps", jobs=most)


def test_home_needs_a_tenant_that_has_one(desk: Desk) -> None:
    with pytest.raises(InvalidRequest, match="tenant vision has no home"):
        drafted(desk, "maps:home")


def test_without_storage_domains_nothing_can_be_written() -> None:
    plain = WITH_STORAGE.model_dump(mode="json", exclude_unset=True) | {"storage": {}}
    config = FederationConfig.model_validate(plain)
    with pytest.raises(InvalidRequest, match="names no storage domain"):
        output_draft(OutputWish("maps"), "ada", VISION, 1, config, Ledger())


def test_what_a_job_writes_is_shown_to_its_user_alone(desk: Desk) -> None:
    id_ = desk.submit(**{"fed-output": "secret"})
    desk.federation.run_for(5.0)
    own = row_for(desk, "ada")
    assert own.output is not None
    assert (own.output.name, own.output.version, own.output.state) == (
        "secret",
        str(id_),
        "writing",
    )
    assert own.output.domain == "west"
    assert b"secret" not in msgspec.json.encode(row_for(desk, "eve"))
