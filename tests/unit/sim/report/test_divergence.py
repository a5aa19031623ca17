"""A job that started otherwise than under the federation has a reason, by what both sides said."""

from __future__ import annotations

import pytest

from federator.config import FederationConfig, load_config
from federator.model.local_record import LocalRecord
from federator.model.reason import ReasonCode
from federator.model.site import Capacity
from federator.model.workload import SiteName
from federator.sim.importers.local_history import past_records, watched_period
from federator.sim.local_replay import LocalFate, LocalReplay, replay
from federator.sim.report.divergence import DivergenceReason, Divergences
from tests.fakes.local_jobs import capacity, local_history, stay

CONFIG = """\
federation: demo
store: "memory:"
regions: {west: {shared: /shared}}
gpus: {a100: {mem_gib: 80}}
sites:
  alpine: {region: west, partitions: [gpu], mode: shadow, command: ["true"]}
  birch: {region: west, partitions: [gpu], mode: shadow, command: ["true"]}
tenants:
  bio: {priority: 2, quota: {gpus: 8}}
  nlp: {priority: 3}
  few: {limit: {gpus: 8}}
  one: {max_submit_jobs: 1}
  each: {max_submit_jobs_per_user: 1}
"""
ALPINE = {"alpine": capacity("alpine", 1)}
BOTH = ALPINE | {"birch": capacity("birch", 1)}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> FederationConfig:
    path = tmp_path_factory.mktemp("config") / "federation.yaml"
    path.write_text(CONFIG)
    return load_config(path)


def replayed(
    records: list[tuple[str, LocalRecord]], sites: dict[str, Capacity], config: FederationConfig
) -> LocalReplay:
    history = local_history(records, sites)
    names = [SiteName(name) for name in sites]
    period = watched_period(history, names, 0.0, 1e12)
    assert period is not None
    past = past_records(history, names, period, any_gpu=False)
    return replay(past, history.capacities, config, period.begin_s)


def reasons(found: LocalReplay) -> dict[str, DivergenceReason | None]:
    seen = Divergences.of(found)
    return {fate.past.job_id: seen.reason(fate) for fate in found.fates}


def at_alpine(*records: LocalRecord) -> list[tuple[str, LocalRecord]]:
    return [("alpine", each) for each in records]


@pytest.mark.parametrize(
    ("came_s", "reason"),
    [(20.0, DivergenceReason.SITE_ORDER), (5.0, DivergenceReason.UNKNOWN)],
)
def test_without_a_word_of_slurm_others_that_came_before_and_waited_are_the_reason(
    came_s: float, reason: DivergenceReason, config: FederationConfig
) -> None:
    """A task of an array, or what came and started while nobody looked; there was room for both."""
    other = stay(1, submitted_at_s=10.0, started_at_s=300.0, ended_at_s=900.0, gpus=1)
    late = stay(2, submitted_at_s=came_s, started_at_s=200.0, ended_at_s=900.0, gpus=1)
    found = replayed(at_alpine(other, late), ALPINE, config)
    assert reasons(found)["2"] is reason


def test_a_site_that_starts_jobs_as_the_federation_would_has_no_divergence(
    config: FederationConfig,
) -> None:
    first = stay(1, started_at_s=0.0, ended_at_s=600.0)
    second = stay(2, submitted_at_s=60.0, started_at_s=600.0, ended_at_s=900.0, held_by="Priority")
    third = stay(3, submitted_at_s=70.0, started_at_s=930.0, ended_at_s=960.0)  # 30 s late
    found = replayed(at_alpine(first, second, third), ALPINE, config)
    assert reasons(found) == {"1": None, "2": None, "3": None}


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("Dependency", DivergenceReason.USER_HOLD),
        ("JobArrayTaskLimit", DivergenceReason.USER_HOLD),
        ("Reservation", DivergenceReason.OWN_WISH),
        ("ReqNodeNotAvail", DivergenceReason.NODES_OUT),
        ("Nodes", DivergenceReason.NODES_OUT),
        ("QOSMaxGRESPerUser", DivergenceReason.SITE_LIMIT),
        ("AssocGrpGRES", DivergenceReason.SITE_LIMIT),
        ("PartitionTimeLimit", DivergenceReason.SITE_LIMIT),
        ("PartitionDown", DivergenceReason.NODES_OUT),
        ("Priority", DivergenceReason.SITE_ORDER),
        ("Resources", DivergenceReason.SITE_LACKED),  # all its GPUs were free
        ("", DivergenceReason.UNKNOWN),
        ("SomethingNew", DivergenceReason.UNKNOWN),
    ],
)
def test_of_a_job_that_its_site_held_back_slurms_word_is_the_reason(
    config: FederationConfig, word: str, reason: DivergenceReason
) -> None:
    waited = stay(1, started_at_s=600.0, ended_at_s=900.0, held_by=word)
    assert reasons(replayed(at_alpine(waited), ALPINE, config)) == {"1": reason}


def test_a_job_that_waited_at_a_full_site_would_have_gone_to_another(
    config: FederationConfig,
) -> None:
    first = stay(1, started_at_s=0.0, ended_at_s=600.0)
    for word, reason in (
        ("Resources", DivergenceReason.OTHER_SITE),
        ("QOSMaxGRESPerUser", DivergenceReason.SITE_LIMIT),  # it would have held there as well
    ):
        second = stay(2, submitted_at_s=60.0, started_at_s=600.0, ended_at_s=900.0, held_by=word)
        found = replayed(at_alpine(first, second), BOTH, config)
        assert reasons(found) == {"1": None, "2": reason}


@pytest.mark.parametrize(
    ("word", "of_bio"),
    [
        ("Priority", DivergenceReason.SITE_ORDER),
        ("Resources", DivergenceReason.SITE_FULL),
        ("", DivergenceReason.SITE_FULL),
    ],
)
def test_one_that_would_have_gone_after_others_of_its_site(
    config: FederationConfig, word: str, of_bio: DivergenceReason
) -> None:
    """bio goes first by its quota, though nlp came before it."""
    first = stay(1, started_at_s=0.0, ended_at_s=600.0)
    nlp = stay(2, account="nlp", submitted_at_s=10.0, started_at_s=600.0, ended_at_s=1200.0)
    bio = stay(3, submitted_at_s=20.0, started_at_s=1200.0, ended_at_s=1800.0, held_by=word)
    found = replayed(at_alpine(first, nlp, bio), ALPINE, config)
    assert reasons(found) == {"1": None, "2": DivergenceReason.ORDER, "3": of_bio}
    assert [fate.federated_code for fate in found.fates] == [None, ReasonCode.RESOURCES, None]


def test_one_whose_gpus_a_job_of_another_site_would_have_had(config: FederationConfig) -> None:
    records = [
        ("birch", stay(1, account="nlp", started_at_s=0.0, ended_at_s=3600.0)),
        (
            "birch",
            stay(
                2, submitted_at_s=10.0, started_at_s=3600.0, ended_at_s=7200.0, held_by="Priority"
            ),
        ),
        ("alpine", stay(3, account="nlp", submitted_at_s=20.0, started_at_s=20.0, ended_at_s=90.0)),
    ]
    assert reasons(replayed(records, BOTH, config)) == {
        "1": DivergenceReason.OTHER_SITE,  # no later: both were free
        "2": DivergenceReason.SITE_ORDER,
        "3": DivergenceReason.GUESTS,
    }


def test_one_that_a_limit_of_its_tenant_would_have_held(config: FederationConfig) -> None:
    two = {"alpine": capacity("alpine", 2)}
    first = stay(1, account="few", started_at_s=0.0, ended_at_s=600.0)
    second = stay(2, account="few", submitted_at_s=5.0, started_at_s=5.0, ended_at_s=600.0)
    found = replayed(at_alpine(first, second), two, config)
    assert reasons(found) == {"1": None, "2": DivergenceReason.TENANT_LIMIT}


@pytest.mark.parametrize("account", ["one", "each"])
def test_one_that_would_have_been_refused_by_a_limit_of_its_tenant(
    config: FederationConfig, account: str
) -> None:
    two = {"alpine": capacity("alpine", 2)}
    first = stay(1, account=account, started_at_s=0.0, ended_at_s=600.0)
    second = stay(2, account=account, submitted_at_s=5.0, started_at_s=5.0, ended_at_s=600.0)
    found = replayed(at_alpine(first, second), two, config)
    assert reasons(found) == {"1": None, "2": DivergenceReason.TENANT_LIMIT}
    assert [fate.federated_start_s is None for fate in found.fates] == [False, True]


def test_one_that_would_never_have_started_has_a_reason_only_if_the_federation_said_it(
    config: FederationConfig,
) -> None:
    (fate,) = replayed(at_alpine(stay(1, started_at_s=0.0, ended_at_s=600.0)), ALPINE, config).fates
    for code, reason in (
        (ReasonCode.LIMIT, DivergenceReason.TENANT_LIMIT),
        (ReasonCode.NOT_TRIED, DivergenceReason.UNKNOWN),
        (None, DivergenceReason.UNKNOWN),
    ):
        never = _never(fate, code)
        seen = Divergences.of(
            LocalReplay(fates=(never,), left_out=(), gpus={SiteName("alpine"): 8})
        )
        assert seen.reason(never) is reason


def _never(fate: LocalFate, code: ReasonCode | None) -> LocalFate:
    return LocalFate(
        past=fate.past,
        tenant=fate.tenant,
        measured=True,
        federated_start_s=None,
        federated_stays=(),
        alone_start_s=fate.alone_start_s,
        federated_code=code,
    )
