"""fscontrol show prints records as scontrol does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from msgspec import structs

from federator.cli import client, fscontrol
from federator.model.node_shape import NodeShape
from federator.model.partition import PartitionSummary
from federator.model.reason import Reason, ReasonCode
from federator.model.window import SiteWindow
from federator.wire.client_protocol import (
    Call,
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteNodesRow,
    SiteRow,
    SitesReply,
    StatusCall,
    StatusReply,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, packed_nodes
from federator.wire.queue_rows import JobDetails
from federator.wire.replies import Reply
from federator.wire.status_rows import BudgetRow, LicenseRow

Run = Callable[..., tuple[int, str, str]]
DETAILS = JobDetails(
    partitions=("gpu",), cpus=4, nice=3, dependency="afterok:7(unfulfilled)", options={"qos": "q"}
)
JOB = QueueRow(
    id=2**32,
    name="train",
    user="ada",
    tenant="vision",
    priority=2,
    state="INELIGIBLE",
    attempt=0,
    submitted_at_s=1.0,
    time_limit_s=3_600.0,
    reason=Reason(code=ReasonCode.DEPENDENCY),
    details=DETAILS,
    stdout="/o",
)
NODES = SiteNodes(
    at_s=0.0,
    nodes=(
        NodeRow(
            name="n1",
            state="idle",
            partitions=("gpu",),
            cpus=8,
            gpus=4,
            gpu_type="a100",
            shape=NodeShape(900, 2, 4, 1),
            weight=7,
        ),
        NodeRow(name="n2", state="drained", partitions=("gpu",), cpus=8, reason="bad fan"),
    ),
    partitions=(PartitionRow(name="gpu", max_time_s=3_600.0),),
)
PART = PartitionSummary(partition="gpu", gpu_type="a100", nodes_idle=1, nodes_drained=1, gpus=4)

WINDOW = SiteWindow(
    name="weekend",
    starts_at_s=1_795_000_000.0,
    ends_at_s=1_795_086_400.0,
    nodes=("n1", "n2"),
    maintenance=True,
)
STATUS = StatusReply(
    federation="demo",
    now_s=9.0,
    policy="mast",
    epoch=1,
    sites=(
        SiteRow(name="alpine", region="west", up=True),
        SiteRow(name="cedar", region="east", up=False),
    ),
    queue={},
    budget=BudgetRow(
        window_s=600.0, gpus=0.0, left_gpus=0.0, evicted_gpus=0, evictions=0, beyond_gpus=0
    ),
    keep_ended_s=3600.0,
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(
        *words: str, licenses: tuple[LicenseRow, ...] = (), job: QueueRow = JOB
    ) -> tuple[int, str, str]:
        def call(message: Call) -> Reply:
            if isinstance(message, QueueCall):
                unknown = tuple(id_ for id_ in message.ids if id_ != str(2**32))
                return QueueReply(rows=(job,), now_s=9.0, unknown=unknown)
            if isinstance(message, NodesCall):
                known = SiteNodesRow(site="alpine", nodes=packed_nodes(NODES))
                return NodesReply(sites=(known, SiteNodesRow(site="cedar", detail="is down")))
            if isinstance(message, StatusCall):
                return STATUS
            row = SiteRow(
                name="alpine", region="west", up=True, partitions=(PART,), windows=(WINDOW,)
            )
            return SitesReply(sites=(row,), licenses=licenses)

        monkeypatch.setattr(client, "call", call)
        monkeypatch.setattr(sys, "argv", ["fscontrol", *words])
        with pytest.raises(SystemExit) as ended:
            fscontrol.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return command


def test_a_job_is_shown_with_scontrols_fields(run: Run) -> None:
    status, out, err = run("show", "job", str(2**32))
    assert (status, err) == (0, "")
    assert out.startswith(f"JobId={2**32} JobName=train\n   UserId=ada(N/A) GroupId=N/A(N/A) ")
    assert "Account=vision QOS=q" in out
    assert "ReqTRES=cpu=4,billing=4" in out
    assert "JobState=PENDING Reason=Dependency Dependency=afterok:7(unfulfilled)" in out
    assert "\n   SubmitTime=" in out
    assert "TimeLimit=01:00:00" in out
    own = "Site=(null) SiteJobId=(null) GPUs=0 Project=(null)"
    assert out.endswith(f"\n   StdOut=/o\n   {own}\n\n")
    one = run("-o", "show", f"jobid={2**32}")[1]
    assert one.count("\n") == 1
    assert one.split()[0] == f"JobId={2**32}"


def test_the_throttle_of_an_array_has_a_field_of_its_own(run: Run) -> None:
    array = structs.replace(JOB, array_id=2**32, array_tasks="[1-5%2]")
    shown = run("-o", "show", "job", str(2**32), job=array)[1]
    assert "ArrayTaskId=1-5%2 ArrayTaskThrottle=2 JobName=" in shown


def test_an_unknown_job_is_scontrols_error(run: Run) -> None:
    status, _, err = run("show", "job", "99")
    assert (status, err) == (1, "slurm_load_jobs error: Invalid job id specified\n")


def test_nodes_are_shown_with_their_site(run: Run) -> None:
    status, out, err = run("-o", "show", "node", "n[1-2]", "alpine:n2")
    assert (status, err) == (1, "fscontrol: cedar: is down\n")
    first, second = out.splitlines()
    assert first.startswith("NodeName=n1 Site=alpine CPUAlloc=0 CPUTot=8")
    assert " CoresPerSocket=4 Sockets=2 ThreadsPerCore=1 TmpDisk=900 Weight=7 State=IDLE " in first
    assert " Gres=(null) GresUsed=(null) " in second
    assert " RealMemory=0 AllocMem=0 State=IDLE+DRAIN Partitions=gpu Reason=bad fan" in second
    assert run("show", "node", "n9")[2].endswith("Node n9 not found\n")


def test_partitions_and_sites_are_shown(run: Run) -> None:
    out = run("-o", "show", "partition=gpu")[1]
    assert out == (
        "PartitionName=gpu Site=alpine State=UP Default=NO DefaultTime=NONE MaxTime=01:00:00 "
        "MinNodes=1 MaxNodes=UNLIMITED PriorityTier=1 PreemptMode=OFF TotalCPUs=16 TotalNodes=2 "
        "Nodes=n[1-2]\n"
    )
    out = run("-o", "show", "sites")[1]
    assert "SiteName=alpine Region=west State=UP" in out
    assert "TotalNodes=2 TotalGPUs=4 AllocGPUs=0" in out


def test_host_names_are_written_out_without_a_daemon(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("show", "hostnames", "n[9-11],a1")[1] == "n9\nn10\nn11\na1\n"
    assert run("show", "hostlist", "n1,n2,n3")[1] == "n[1-3]\n"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert run("show", "hostnames")[1] == "n1\nn2\n"


def test_reservations_are_shown_with_their_site(run: Run) -> None:
    status, out, err = run("-o", "show", "reservation")
    assert (status, err) == (0, "")
    assert out.startswith("ReservationName=weekend Site=alpine StartTime=2026-11-")
    assert "Duration=1-00:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT State=INACTIVE\n" in out
    assert run("-o", "show", "res=alpine:weekend")[1] == out
    assert run("show", "reservation", "nosuch")[::2] == (1, "Reservation nosuch not found\n")


def test_what_is_not_shown_here_is_refused(run: Run) -> None:
    status, out, err = run("show", "topology")
    assert (status, out) == (1, "")
    assert err == "fscontrol: error: show topology: it is each site's own; use scontrol there\n"


def test_settings_that_programs_ask_for_are_shown_as_scontrol_shows_them(run: Run) -> None:
    out = run("show", "config")[1]
    lines = [line.partition("= ") for line in out.splitlines()[1:]]
    settings = {name.strip(): value for name, _, value in lines}
    assert settings["ClusterName"] == "demo"
    assert settings["MinJobAge"] == "3600 sec"
    assert settings["MaxArraySize"] == "4000001"
    assert run("show", "config", "minjobage")[1].count("\n") == 2


def test_ping_says_which_sites_answer(run: Run) -> None:
    assert run("ping")[1].splitlines() == [
        "Slurmctld(primary) at demo is UP",
        "Site alpine is UP",
        "Site cedar is DOWN",
    ]


def test_json_of_a_job_is_slurms(run: Run) -> None:
    status, out, _ = run("--json", "show", "job", str(2**32))
    (job,) = json.loads(out)["jobs"]
    assert (status, job["job_id"], job["job_state"]) == (0, 2**32, ["PENDING"])
    assert job["standard_output"] == "/o"
    assert run("--json", "show", "job", "99")[0] == 1
    assert "show node has no JSON" in run("--json", "show", "node")[2]


def test_a_component_of_a_het_job_is_shown_as_the_job(run: Run) -> None:
    assert run("show", "job", f"{2**32}+1")[1].startswith(f"JobId={2**32} ")


def test_a_list_of_hosts_is_sorted_once(run: Run) -> None:
    assert run("show", "hostlistsorted", "n3,n1,n3,n2")[1] == "n[1-3]\n"


def test_licences_that_all_sites_share_are_shown_as_scontrol_shows_a_sites(run: Run) -> None:
    pools = (
        LicenseRow(name="flexlm", total=4, used=3),
        LicenseRow(name="solver@lm", total=1, used=2),  # it was made smaller
    )
    flexlm = "LicenseName=flexlm\n    Total=4 Used=3 Free=1 Reserved=0 Remote=no\n"
    solver = "LicenseName=solver@lm\n    Total=1 Used=2 Free=0 Reserved=0 Remote=no\n"
    assert run("show", "licenses", licenses=pools) == (0, flexlm + solver, "")
    assert run("show", "lic", "flexlm", licenses=pools) == (0, flexlm, "")
    one = run("-o", "show", "license", "solver@lm", licenses=pools)[1]
    assert one == solver.replace("\n   ", "", 1)
    assert run("show", "licenses", "abaqus", licenses=pools)[2] == "License abaqus not found\n"
    assert run("show", "licenses") == (0, "No licenses configured in Slurm.\n", "")
