"""A site that calls things otherwise is told its own names, and heard by the federation's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest

from federator.agent.admission_names import caps_there, gpus_there
from federator.agent.base import Holder, KnownJobs, Launched, Missing, Sweep
from federator.errors import SiteRefused
from federator.model.local_record import LocalRecord
from federator.model.site import AttemptReport, GpuModel, SiteJobState
from federator.model.site_names import SiteNames
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm import renaming_driver
from federator.slurm.accounting_names import AccountingNames
from federator.slurm.client import SlurmClient
from federator.slurm.driver import SlurmDriver
from federator.slurm.pyslurm_reader import PyslurmRunner
from federator.slurm.renamed_accounts import RenamedAccounts
from federator.slurm.renaming_driver import RenamingDriver, open_driver, renamed
from federator.slurm.render import render
from federator.slurm.runner import Completed, Runner
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, PreemptOrder, SignalTo, TenantCap
from tests.fakes.build import rack
from tests.unit.slurm.test_render import order, plan

ATTEMPT = AttemptId(workload=WorkloadId(7), attempt=1)
NAMES = SiteNames(
    accounts={"vision": "vis-grp"},
    qos={"normal": "fed-normal"},
    partitions={"gpu": "gpu-a"},
    gpu_types={"a100": "nvidia_a100_80gb_pcie"},
    features={"ib": "infiniband", "big": "m2"},
    users={"ada": "a.one", "eve": "gone"},
)


KEPT = SiteWindow(
    name="training",
    starts_at_s=0.0,
    ends_at_s=9e9,
    nodes=("n1",),
    accounts=("vis-grp", "nlp", "vision", "-bio"),
    users=("-a.one", "-ada", "-bob"),
)


RECORD = LocalRecord(
    job_id=7,
    shown="7",
    user="a.one",
    account="vis-grp",
    partition="gpu-a",
    state="RUNNING",
    submitted_at_s=1.0,
    gpu_type="nvidia_a100_80gb_pcie",
    ran_on="nvidia_a100_80gb_pcie",
)


def told(*words: str) -> list[str]:
    return list(render(renamed(order(list(words), plan("n1")), NAMES), "boreal").argv)


def test_an_attempt_is_submitted_by_the_names_of_its_site() -> None:
    argv = told("--qos=normal")
    assert {"--account=vis-grp", "--partition=gpu-a", "--qos=fed-normal"} <= set(argv)


def test_a_qos_has_its_site_s_name_in_any_case_and_in_a_list() -> None:
    assert "--qos=urgent,fed-normal" in told("--qos=urgent,NORMAL")


def test_of_two_qos_that_differ_in_case_alone_each_has_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NAMES.qos, "NORMAL", "other")
    assert "--qos=fed-normal" in told("--qos=normal")
    assert "--qos=other" in told("--qos=NORMAL")


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ("--gres=gpu:a100:8", "--gres=gpu:nvidia_a100_80gb_pcie:8"),
        ("--gres=gpu:a100", "--gres=gpu:nvidia_a100_80gb_pcie"),
        ("--gres=gpu:8", "--gres=gpu:8"),
        ("--gres=gres:gpu:a100:2", "--gres=gres:gpu:nvidia_a100_80gb_pcie:2"),
        ("--gres=gres/gpu:a100:2", "--gres=gres/gpu:nvidia_a100_80gb_pcie:2"),
        ("--gres=a100:1,gpu:a100:1", "--gres=a100:1,gpu:nvidia_a100_80gb_pcie:1"),
        ("--gpus-per-node=a100:4", "--gpus-per-node=nvidia_a100_80gb_pcie:4"),
        ("--gpus=h100:2", "--gpus=h100:2"),
        ("--gpus=4", "--gpus=4"),
        ("--constraint=ib&big", "--constraint=infiniband&m2"),
        ("--constraint=ibx|ib", "--constraint=ibx|infiniband"),
    ],
)
def test_types_and_features_are_named_wherever_they_stand(given: str, there: str) -> None:
    renamed_ = renamed(order([given], plan("n1")), NAMES).submission.components[0]
    assert there in [f"--{option.name}={option.value}" for option in renamed_]


class Client:
    """What a site's Slurm shows, by its own names."""

    helper = None
    accounts = None

    def __init__(self) -> None:
        (node, *_) = rack("n", 1)
        self.node = replace(
            node,
            partitions=("gpu-a", "long"),
            closed_partitions=("gpu-a",),
            gpu_type="nvidia_a100_80gb_pcie",
            features=("infiniband", "x86"),
        )


def driver(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str | None]) -> RenamingDriver:
    client = Client()

    async def sweep(_self: SlurmDriver, _own: object = None) -> Sweep:
        held = Holder(job_id=7, nodes={}, ends_by_s=0.0, account="vis-grp")
        qos = frozenset({"normal", "fed-normal", "urgent"})
        return Sweep(
            nodes=(client.node,),
            attempts=(),
            holders=(held,),
            windows=(KEPT,),
            qos=qos,
            local=(RECORD,),
        )

    async def nodes(_self: SlurmDriver) -> Sequence[object]:
        return [client.node]

    async def partitions(_self: SlurmDriver) -> Sequence[object]:
        return []

    monkeypatch.setattr(SlurmDriver, "sweep", sweep)
    monkeypatch.setattr(SlurmDriver, "nodes", nodes)
    monkeypatch.setattr(SlurmDriver, "partitions", partitions)
    return RenamingDriver(
        "boreal",
        cast("SlurmClient", client),
        NAMES,
        AccountingNames(Dbd(answers)),
        {"a.one"}.__contains__,
    )


class Dbd:
    """Sacctmgr; None: it cannot be asked."""

    def __init__(self, answers: Mapping[str, str | None]) -> None:
        self.answers = answers

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        said = self.answers[argv[5]]
        status, out = (1, "") if said is None else (0, said)
        return Completed(exit_status=status, stdout=out.encode(), stderr=b"")


def test_a_sweep_shows_the_federation_s_names(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asyncio.run(driver(monkeypatch, {}).sweep())
    (node,) = found.nodes
    assert node.partitions == ("gpu", "long")
    assert node.closed_partitions == ("gpu",)
    assert (node.gpu_type, node.features) == ("a100", ("ib", "x86"))
    assert [holder.account for holder in found.holders] == ["vision"]
    assert found.qos == frozenset({"normal", "fed-normal", "urgent"})
    (record,) = found.local or ()
    assert (record.user, record.account, record.partition) == ("ada", "vision", "gpu")
    assert (record.gpu_type, record.ran_on) == ("a100", "a100")


def test_a_reservation_admits_tenants_by_their_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    (window,) = asyncio.run(driver(monkeypatch, {}).sweep()).windows
    assert window.accounts == ("vision", "vis-grp", "nlp", "=vision", "-bio")
    assert window.admits("joe", "vision")  # whose account is vis-grp; not by the account vision
    assert not window.admits("joe", "bio")
    assert window.users == ("-ada", "-=ada", "-bob")
    assert not window.admits("ada", "vision")


def test_names_that_slurm_does_not_know_are_told_with_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = driver(monkeypatch, {"account": "root\nproj007\n", "qos": "normal\nfed-normal\n"})
    assert asyncio.run(asked.missing_names()) == [
        "names.accounts.vision: vis-grp",
        "names.partitions.gpu: gpu-a",
        "names.features.big: m2",
        "names.users.eve: gone",
    ]


def test_accounts_and_qos_are_found_in_small_letters_as_sacctmgr_shows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NAMES.qos, "normal", "Fed-Normal")
    monkeypatch.setitem(NAMES.accounts, "vision", "Vis-Grp")
    asked = driver(monkeypatch, {"account": "vis-grp\n", "qos": "fed-normal\n"})
    missing = asyncio.run(asked.missing_names()) or ()
    assert not [name for name in missing if name.startswith(("names.accounts.vision", "names.qos"))]
    found = asyncio.run(asked.sweep())
    assert "normal" in (found.qos or ())


def test_what_slurmdbd_does_not_tell_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = driver(monkeypatch, {"account": None, "qos": None})
    missing = asyncio.run(asked.missing_names())
    assert missing is not None
    assert not [name for name in missing if "accounts" in name or "qos" in name]


def test_a_site_without_names_of_its_own_has_an_ordinary_driver() -> None:
    assert (
        type(open_driver("boreal", ("gpu",), SiteNames(), may_submit=lambda: None)) is SlurmDriver
    )
    assert type(open_driver("boreal", ("gpu",), NAMES, may_submit=lambda: None)) is RenamingDriver


def test_pyslurm_is_asked_only_where_the_site_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def client(runner: Runner, **_more: object) -> SlurmClient:
        asked.append(isinstance(runner, PyslurmRunner))
        return SlurmClient(runner)

    monkeypatch.setattr(renaming_driver, "SlurmClient", client)
    open_driver("boreal", ("gpu",), SiteNames(), may_submit=lambda: None)
    note = lambda _event, _detail: None  # noqa: E731
    open_driver("boreal", ("gpu",), SiteNames(), may_submit=lambda: None, note_pyslurm=note)
    assert asked == [False, True]


def test_the_site_s_own_rules_get_figures_by_its_names() -> None:
    caps = [TenantCap(name=name, limit_gpus=8, used_gpus=1) for name in ("vision", "nlp")]
    assert [cap.name for cap in caps_there(caps, NAMES)] == ["vis-grp", "nlp"]
    shared = SiteNames(accounts={"vision": "fed", "nlp": "fed"})
    assert caps_there(caps, shared) == []  # nobody's limit is that of all together
    model = GpuModel(mem_gib=80, nvlink=True, weight=1.0)
    assert gpus_there({"a100": model, "h100": model}, NAMES) == {
        "nvidia_a100_80gb_pcie": model,
        "h100": model,
    }


class Helper:
    """Notes in whose name it is asked to act."""

    def __init__(self) -> None:
        self.users: list[str] = []

    def __getattr__(self, _name: str) -> Callable[..., Coroutine[None, None, Any]]:
        async def act(who: Any, *_: Any, **__: Any) -> Any:
            self.users.append(who if isinstance(who, str) else who.user)
            return []

        return act


def acting() -> tuple[RenamingDriver, Helper]:
    client, helper = Client(), Helper()
    client.helper = helper  # type: ignore[assignment]
    names = SiteNames(users={"ada": "a.one"})
    made = RenamingDriver("boreal", cast("SlurmClient", client), names, AccountingNames(Dbd({})))
    return made, helper


def test_whatever_is_done_is_done_in_the_name_that_the_site_has_for_its_user() -> None:
    made, helper = acting()
    leave = PreemptOrder(attempt=ATTEMPT, user="ada", site_job_id=7, grace_s=1.0)
    acts: list[Coroutine[None, None, Any]] = [
        made.cancel("ada", 7, pending_only=False),
        made.signal("ada", 7, "TERM", SignalTo.ALL),
        made.limit("ada", 7, 90),
        made.read_checkpoint_status("ada", [leave]),
        made.inspect("ada", []),
        made.notify(leave, 1.0),
        made.is_loose("ada"),
        made.cancel("bob", 8, pending_only=False),
    ]
    for act in acts:
        asyncio.run(act)
    assert helper.users == [*["a.one"] * 7, "bob"]


def test_nothing_is_done_in_the_name_of_an_account_that_is_anothers() -> None:
    made, helper = acting()
    with pytest.raises(SiteRefused, match=r"a\.one has no account here"):
        asyncio.run(made.cancel("a.one", 7, pending_only=False))
    assert helper.users == []


def test_the_federation_s_jobs_are_looked_for_by_the_site_s_names_of_their_users() -> None:
    made, _ = acting()
    known = KnownJobs(launched={7: Launched(attempt=ATTEMPT, user="ada", at_s=0.0)})
    assert made._known_there(known).launched[7].user == "a.one"


def test_accounts_are_asked_by_the_names_of_the_site() -> None:
    class Kept:
        asked: ClassVar[list[str]] = []

        async def ends_of(self, missing: Collection[Missing]) -> dict[AttemptId, AttemptReport]:
            self.asked.extend(each.user for each in missing)
            (each,) = missing
            state = SiteJobState.COMPLETED
            report = AttemptReport(attempt=each.attempt, user=each.user, site_job_id=7, state=state)
            return {each.attempt: report}

        async def use_of(self, jobs: Sequence[EndedJob]) -> list[MeasuredUse | None]:
            self.asked.extend(job.user for job in jobs)
            return [None] * len(jobs)

    accounts = RenamedAccounts(Kept(), SiteNames(users={"ada": "a.one"}))
    missing = Missing(attempt=ATTEMPT, user="ada", submitted_at_s=0.0)
    assert asyncio.run(accounts.ends_of([missing]))[ATTEMPT].user == "ada"
    ended = EndedJob(attempt=ATTEMPT, user="ada", site_job_id=7, started_at_s=0.0)
    asyncio.run(accounts.use_of([ended]))
    assert Kept.asked == ["a.one", "a.one"]
