"""Daemons for tests of the web page: one decides over simulated sites, one makes it all up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from federator.agent.services.user_questions import node_rows
from federator.config import FederationConfig
from federator.daemon.api import Api
from federator.daemon.effects import Effects
from federator.daemon.site_questions import SiteQuestions
from federator.model.message import Observation
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.wire.agent_protocol import NodesAsk, NodesTaken
from federator.wire.audit_messages import AuditCall, AuditReply, AuditRow
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    Call,
    ErrorReply,
    NodesCall,
    NodesReply,
    PassesCall,
    PassesReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SiteNodesRow,
    SiteRow,
    StatusCall,
    StatusReply,
    TenantRow,
    TenantsCall,
    TenantsReply,
)
from federator.wire.holdings_rows import HoldingsCall, HoldingsReply, NodeHoldings, SiteHoldings
from federator.wire.node_rows import NodeRow, SiteNodes, packed_nodes
from federator.wire.replies import Reply
from federator.wire.status_rows import BudgetRow, PassRow
from tests.fakes.build import rack, tenant
from tests.fakes.loopback import Loopback

NOW_S = 1_800_000_000.0
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "שלום \u202egpj.exe",
    "line\nbreak\ttab\x1b[31m",
    "x" * 5_000,
    "{{ 7 * 7 }} ${7*7} %s",
    "' or 1=1; --",
)


def config_of(sites: tuple[str, ...] = ("alpine", "baker"), **more: Any) -> FederationConfig:
    """A configuration; ``more`` are keys of the file."""
    keys: dict[str, Any] = {
        "federation": "demo",
        "store": "memory:",
        "regions": {"west": {"shared": "/shared"}},
        "sites": {
            name: {"region": "west", "partitions": ["gpu"], "command": ["agent"]} for name in sites
        },
        "tenants": {
            "vision": {"priority": 2, "quota": {"gpus": 16}, "users": ["ada", "bob"]},
            "nlp": {"priority": 5, "users": ["eve"]},
        },
    }
    return FederationConfig.model_validate(keys | more)


class DecidingDaemon:
    """The daemon's own API over simulated sites, asked by the account of the page.

    Args:
        federation: its sites and workloads.
        config: federation.yaml.
        account: as whom it is asked.
    """

    def __init__(
        self, federation: Loopback, config: FederationConfig, account: str = "federator-web"
    ) -> None:
        self.federation, self.account = federation, account
        self.api = Api(config, federation.federation, self._observe, federation.clock)
        self._effects = Effects("demo", {}, self.api.reply, lambda _: None, {})
        self.asked: Counter[str] = Counter()
        links: Any = {SiteName(name): _Link(federation, name) for name in config.sites}
        self.api.site_calls.links = links

    def _observe(self, observation: Observation) -> None:
        self.federation.observe(observation)
        self._pass_on()

    def _pass_on(self) -> None:
        answers, self.federation.answers = self.federation.answers, {}
        for answer in answers.values():
            self._effects.carry_out(answer)

    async def ask(self, call: Call) -> Reply:
        """As ``federator.web.daemon_client.ask``."""
        self.asked[type(call).__name__] += 1
        replies: list[Reply] = []
        self.api.take_here(self.account, call, replies.append)
        self._pass_on()
        if not replies:
            self.federation.run_for(1.0)
            self._pass_on()
        (reply,) = replies
        return reply


class _Link:
    """A site that lists the nodes of its simulated Slurm."""

    def __init__(self, federation: Loopback, name: str) -> None:
        self._federation, self._name = federation, SiteName(name)
        self.questions = SiteQuestions(self._name, self._send)
        self.questions.connected = True
        self.questions.answers = ("nodes", "signal")

    def _send(self, message: Message) -> None:
        assert isinstance(message, NodesAsk)
        nodes = self._federation.slurm(self._name).nodes()
        listed = SiteNodes(at_s=self._federation.clock(), nodes=node_rows(nodes, ("gpu",)))
        self.questions.take(NodesTaken(ask_id=message.ask_id, nodes=packed_nodes(listed)))


@dataclass
class MadeUpDaemon:
    """A daemon whose answers are made up: as many sites, nodes and workloads as are wanted."""

    sites: int = 3
    nodes: int = 40
    pending: int = 50
    running: int = 30
    names: tuple[str, ...] = ("train",)
    users: tuple[str, ...] = ("ada", "bob", "eve")
    fails: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    turn: int = 0  # changes what nodes do

    async def ask(self, call: Call) -> Reply:
        """As ``federator.web.daemon_client.ask``."""
        self.asked[type(call).__name__] += 1
        if self.fails:
            return ErrorReply(message=self.fails)
        answers: dict[type, Callable[[Any], Reply]] = {
            StatusCall: lambda _: self.status(),
            QueueCall: self.queue,
            TenantsCall: lambda _: self.tenants(),
            PassesCall: lambda _: self.passes(),
            AuditCall: lambda _: self.audit(),
            NodesCall: self.listed,
            HoldingsCall: self.held,
            AccountingCall: lambda _: AccountingReply(rows=(), now_s=NOW_S, federation="demo"),
        }
        answer = answers.get(type(call))
        return ErrorReply(message="it is made up") if answer is None else answer(call)

    def listed(self, call: NodesCall) -> NodesReply:
        return NodesReply(sites=tuple(map(self._listed, self._meant(call.clusters))))

    def held(self, call: HoldingsCall) -> HoldingsReply:
        return HoldingsReply(sites=tuple(map(self._held, self._meant(call.clusters))), now_s=NOW_S)

    def name(self, k: int) -> str:
        return f"site{k:03}"

    def _meant(self, clusters: tuple[str, ...]) -> tuple[str, ...]:
        return clusters or tuple(self.name(k) for k in range(self.sites))

    def status(self) -> StatusReply:
        return StatusReply(
            federation="demo",
            now_s=NOW_S,
            policy="mast",
            epoch=1,
            sites=tuple(
                SiteRow(name=self.name(k), region="west", up=k % 17 != 16, slurm_version="24.11.5")
                for k in range(self.sites)
            ),
            queue={"PENDING": self.pending, "RUNNING": self.running},
            gpus_held=8 * self.running,
            last_pass=PassRow(began_s=NOW_S - 3, ended_s=NOW_S - 2, rounds=2, awarded=3),
            budget=BudgetRow(window_s=600.0, gpus=16.0, left_gpus=8.0, evictions=1),
        )

    def queue(self, call: QueueCall) -> QueueReply:
        rows = tuple(self.row(k) for k in range(self.running + self.pending))
        if call.ids:
            rows = tuple(row for row in rows if str(row.id) in call.ids)
        return QueueReply(rows=rows, now_s=NOW_S)

    def row(self, k: int) -> QueueRow:
        runs = k < self.running
        wait = Reason(code=ReasonCode.RESOURCES, needed=16, free=3, unit="GPUs", detail="a100")
        refusal = Refusal(kind=RefusalKind.WAIT, reasons=(wait,), starts_in_s=1800.0)
        return QueueRow(
            id=4294967296 + k,
            name=self.names[k % len(self.names)],
            user=self.users[k % len(self.users)],
            tenant="vision" if k % 3 else "nlp",
            priority=2,
            state="RUNNING" if runs else "PENDING",
            attempt=int(runs),
            submitted_at_s=NOW_S - 3600 - k,
            nodes=1 + k % 4,
            gpus=8 * (1 + k % 4),
            time_limit_s=inf if k % 7 == 0 else 7200.0,
            site=self.name(k % self.sites) if runs else "",
            started_at_s=NOW_S - 600 if runs else 0.0,
            reason=None if runs else wait,
            refusals={} if runs else {self.name(j): refusal for j in range(min(3, self.sites))},
            offers={self.name(0): Score(), self.name(1): Score(locality_cost=2.5)} if runs else {},
        )

    def tenants(self) -> TenantsReply:
        rows = tuple(
            TenantRow(
                name=name,
                priority=2,
                users=("ada",),
                quota={"gpus": 64},
                limit={"gpus": None},
                used={"gpus": 40},
                used_own={"gpus": 40},
                borrowed={"gpus": 8},
                lent={"gpus": 3},
                pending=5,
                pending_within=2,
                pending_over=3,
                average_gpus=12.5,
                usage_share_frac=0.4,
                preempt_lost_gpu_s=lost_gpu_s,
                preempt_tax_gpu_s=45_000.0 - lost_gpu_s,
            )
            for name, lost_gpu_s in (("vision", 45_000.0), ("nlp", 0.0))
        )
        return TenantsReply(rows=rows, now_s=NOW_S, policy="mast")

    def passes(self) -> PassesReply:
        rows = tuple(
            PassRow(
                began_s=NOW_S - 600 + k * 6,
                ended_s=NOW_S - 600 + k * 6 + 0.2 + (k % 9) / 10,
                rounds=1 + k % 3,
                awarded=k % 5,
            )
            for k in range(100)
        )
        return PassesReply(passes=rows, now_s=NOW_S)

    def audit(self) -> AuditReply:
        rows = tuple(
            AuditRow(
                n=60 - k,
                at_s=NOW_S - 30.0 * k,
                act="cancel_asked" if k % 3 else "drain_site",
                by=self.users[k % len(self.users)],
                via="" if k % 2 else self.name(0),
                on=self.names[k % len(self.names)],
                why=f"reason={self.names[k % len(self.names)]}",
                effect="" if k % 3 == 0 else "workloads=[4294967296]",
                refused=f"{self.users[k % len(self.users)]} is no operator" if k % 3 == 0 else "",
            )
            for k in range(60)
        )
        return AuditReply(rows=rows, now_s=NOW_S)

    def _listed(self, site: str) -> SiteNodesRow:
        nodes = tuple(self._node(k) for k in range(self.nodes))
        return SiteNodesRow(site=site, nodes=packed_nodes(SiteNodes(at_s=NOW_S, nodes=nodes)))

    def _node(self, k: int) -> NodeRow:
        state = "down" if k % 41 == 40 else "drained" if k % 53 == 52 else "mixed"
        return NodeRow(
            name=f"n{k}",
            state=state,
            partitions=("gpu",),
            gpu_type="h100" if k % 3 else "a100",
            gpus=8,
            gpus_alloc=(k + self.turn) % 9,
            switch=f"rack{k // 20}",
            features=("fed_single_node",) if k % 97 == 96 else (),
            reason="fan <b>failed</b>" if state != "mixed" else "",
        )

    def _held(self, site: str) -> SiteHoldings:
        held = {
            f"n{k}": NodeHoldings(owner=k % 4, guest=k % 3, claimed=2 if k % 11 == 0 else 0)
            for k in range(0, self.nodes, 2)
        }
        return SiteHoldings(site=site, nodes=held)


def small_fleet() -> Loopback:
    """Two sites of two nodes each; users ada and bob of vision, eve of nlp."""
    tenants = (tenant("vision", 16), tenant("nlp", priority=5))
    return Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)}, Rules(), None, Mast(), tenants)
