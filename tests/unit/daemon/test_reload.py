"""``federator reload`` and SIGHUP: all of federation.yaml or nothing, while the rest goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from federator.config import load_config
from federator.config_changes import changes
from federator.daemon.daemon import Daemon
from federator.daemon.edges import CallDesk, DaemonEdges
from federator.daemon.loop import Term
from federator.daemon.metrics.catalogue import as_metrics
from federator.daemon.own_config import ConfigFile, OwnConfig
from federator.daemon.reload import changed_links
from federator.errors import ConfigError
from federator.faults.clock import VirtualClock, run_virtual
from federator.model.submission import Option, Submission
from federator.model.workload import SiteName, TenantName
from federator.store.memory import MemoryLog, MemoryStore
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    ErrorKind,
    ErrorReply,
    ReloadCall,
    ReloadReply,
    SubmitCall,
    SubmitReply,
)
from federator.wire.replies import Reply
from tests.fakes.build import draft, gang, rack
from tests.fakes.counted import values_of
from tests.fakes.loopback import Loopback
from tests.fakes.nowhere import Nowhere

CONFIG = """\
federation: demo
store: "memory:"
socket: daemon.sock
regions: {west: {shared: /shared}}
sites:
  alpine: {region: west, command: ["/bin/false"], partitions: [gpu]}
  baker: {region: west, command: ["/bin/false"], partitions: [gpu]}
tenants:
  nlp: {quota: {gpus: 8}, users: [ada]}
  vision: {quota: {gpus: 8}, users: [bob]}
"""
LEASE_S = 3.0


class Socket:
    def close(self) -> None:
        pass


class Host:
    """A daemon with a federation.yaml that may change."""

    def __init__(self, folder: Path, clock: VirtualClock, log: MemoryLog) -> None:
        """Begin to run."""
        folder.mkdir(exist_ok=True)
        self.path = folder / "federation.yaml"
        self.path.write_text(CONFIG)
        edges = DaemonEdges(
            wall=clock,
            monotonic=clock,
            transport_of=lambda _site: Nowhere(),
            act=self._act,
            listen=self._listen,
        )
        source = ConfigFile(self.path)
        self.daemon = Daemon(source.load(), MemoryStore(log), edges=edges, source=source)
        self.run = asyncio.create_task(self.daemon.run())

    async def _act(self, call: Callable[..., Any], *arguments: object) -> Any:
        return call(*arguments)

    async def _listen(self, _desk: CallDesk, _path: Path) -> Socket:
        return Socket()

    def change(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))

    @property
    def term(self) -> Term:
        assert self.daemon.term is not None
        return self.daemon.term

    async def ask(self, call: Call, user: str = "root") -> Reply:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.term._api.take_here(user, call, answered.set_result)
        return await asyncio.wait_for(answered, 10.0)

    async def reload(self, *, dry_run: bool = False) -> ReloadReply:
        reply = await self.ask(ReloadCall(dry_run=dry_run))
        assert isinstance(reply, ReloadReply), reply
        return reply

    async def refused(self) -> str:
        reply = await self.ask(ReloadCall())
        assert isinstance(reply, ErrorReply)
        return reply.message.replace(str(self.path), "FILE")

    def quota(self, tenant: str) -> float:
        tenancy = self.term.federation.ledger.tenancy
        bounds = tenancy.quotas[tenancy.row(TenantName(tenant))]
        return -1.0 if bounds is None else bounds[0]


def submit(key: str = "a-key-of-ada", *more: Option) -> SubmitCall:
    options = (Option(name="job-name", value="t"), Option(name="gres", value="gpu:1"), *more)
    submission = Submission(components=(options,), script="#!/bin/sh\n", work_dir="/")
    return SubmitCall(submission=submission, key=key)


Story = Callable[[Host], Awaitable[None]]


def live(folder: Path, story: Story) -> None:
    """Let a story happen to a daemon that leads."""
    clock = VirtualClock()

    async def play() -> None:
        host = Host(folder, clock, MemoryLog(LEASE_S, clock))
        await asyncio.sleep(0.1)
        await story(host)
        host.daemon.stop()
        await host.run

    run_virtual(clock, play())


def told(reply: ReloadReply) -> list[tuple[str, str, str]]:
    return [(each.key, each.before, each.after) for each in reply.changes]


def test_a_quota_changes_at_once_and_the_change_is_told_and_logged(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: 16}")
        with capture_logs() as logs:
            reply = await host.reload()
        assert told(reply) == [("tenants.nlp.quota.gpus", "8", "16")]
        assert (reply.path, reply.dry_run) == (str(host.path), False)
        assert host.quota("nlp") == 16
        said = [each for each in logs if each["event"].startswith("reload")]
        assert [each["event"] for each in said] == ["reload_change", "reloaded"]
        assert said[0]["key"] == "tenants.nlp.quota.gpus"
        assert (said[1]["by"], said[1]["changes"]) == ("root", 1)

    live(tmp_path, story)


def test_who_may_not_reload_is_refused_and_counted(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        reply = await host.ask(ReloadCall(), "ada")
        assert isinstance(reply, ErrorReply)
        assert reply.kind is ErrorKind.DENIED
        found = as_metrics(host.term.metrics())
        assert values_of(found, "federator_denied_calls_total")[("",)] == 1

    live(tmp_path, story)


def test_a_reload_has_the_doctor_look_whether_anything_has_changed_or_not(tmp_path: Path) -> None:
    looks: list[str] = []

    async def story(host: Host) -> None:
        look = SimpleNamespace(look_now=lambda: looks.append("looked"))
        host.term._feeds = cast(Any, SimpleNamespace(look=look))
        await host.reload()
        assert looks == ["looked"]
        await host.reload(dry_run=True)
        assert looks == ["looked"]
        host.term._feeds = None

    live(tmp_path, story)


def test_a_reload_of_the_same_file_changes_nothing(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        links, tenancy = dict(host.term._links.by_site), host.term.federation.ledger.tenancy
        assert told(await host.reload()) == []
        assert host.term._links.by_site == links
        assert host.term.federation.ledger.tenancy is tenancy

    live(tmp_path, story)


def test_a_dry_run_tells_what_would_change(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: 16}, priority: 3")
        reply = await host.reload(dry_run=True)
        assert told(reply) == [
            ("tenants.nlp.quota.gpus", "8", "16"),
            ("tenants.nlp.priority", "7", "3"),
        ]
        assert reply.dry_run
        assert host.quota("nlp") == 8

    live(tmp_path, story)


def test_a_file_with_an_error_changes_nothing_and_the_error_has_its_line(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: many}")
        host.change("vision: {quota: {gpus: 8}", "vision: {quota: {gpus: 32}")
        with capture_logs() as logs:
            message = await host.refused()
        assert re.match(r"FILE:9: tenants\.nlp\.quota\.gpus: expected a whole number", message)
        assert [each["event"] for each in logs if "reload" in each["event"]] == ["reload_refused"]
        assert (host.quota("nlp"), host.quota("vision")) == (8, 8)

    live(tmp_path, story)


def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.path.unlink()
        assert "cannot be read" in await host.refused()
        assert host.quota("nlp") == 8

    live(tmp_path, story)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("federation: demo", "federation: other", "FILE:1: federation"),
        ('store: "memory:"', "store: sqlite:///tmp/queue.db", "FILE:2: store"),
        ("socket: daemon.sock", "socket: other.sock", "FILE:3: socket"),
        ("regions:", "history: {keep_days: 7}\nregions:", "FILE:4: history.keep_days"),
        ("regions:", "history: {url: none}\nregions:", "FILE:4: history.url"),
        ("regions:", 'metrics: {listen: "[::1]:9464"}\nregions:', "FILE:4: metrics.listen"),
    ],
)
def test_some_keys_change_only_by_a_restart(tmp_path: Path, old: str, new: str, says: str) -> None:
    async def story(host: Host) -> None:
        host.change(old, new)
        host.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: 16}")
        assert await host.refused() == f"{says}: changes only by a restart of the daemon"
        assert host.quota("nlp") == 8

    live(tmp_path, story)


def test_a_tenant_stays_in_as_long_as_it_has_live_work(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        taken = await host.ask(submit(), "ada")
        assert isinstance(taken, SubmitReply)
        host.change("  nlp: {quota: {gpus: 8}, users: [ada]}\n", "")
        assert "FILE:8: tenants: the log has live workloads of tenant 'nlp'" in await host.refused()
        await host.ask(CancelCall(ids=(str(taken.id),)), "ada")
        assert [key for key, *_ in told(await host.reload())] == [
            "tenants.nlp.quota.gpus",
            "tenants.nlp.users",
        ]
        assert isinstance(await host.ask(submit("another-key"), "ada"), ErrorReply)

    live(tmp_path, story)


def test_a_site_stays_in_as_long_as_something_lives_there(tmp_path: Path) -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)})
    f.submit(draft(gang(1, 8), tenant="nlp"))
    f.run_for(1.0)
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    own = OwnConfig(load_config(path), ConfigFile(path))
    path.write_text(re.sub(r"  alpine: .*\n", "", CONFIG))
    with pytest.raises(ConfigError, match=r"yaml:5: sites: the log has live .*'alpine'"):
        own.changes_to(load_config(path), f.federation.ledger)


def test_a_site_where_something_lives_does_not_go_into_shadow_mode(tmp_path: Path) -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)})
    f.submit(draft(gang(1, 8), tenant="nlp"))
    f.run_for(1.0)
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    own = OwnConfig(load_config(path), ConfigFile(path))
    path.write_text(CONFIG.replace("alpine: {", "alpine: {mode: shadow, "))
    with pytest.raises(ConfigError, match=r"yaml:6: sites.alpine.mode: .*drain the site first"):
        own.changes_to(load_config(path), f.federation.ledger)
    path.write_text(CONFIG.replace("baker: {", "baker: {mode: shadow, "))
    (change,) = own.changes_to(load_config(path), f.federation.ledger)
    assert (change.key, change.before, change.after) == (
        "sites.baker.mode",
        '"enforced"',
        '"shadow"',
    )


def test_only_the_channels_of_changed_sites_are_made_anew(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        before = dict(host.term._links.by_site)
        host.change(
            'baker: {region: west, command: ["/bin/false"]', 'baker: {region: west, command: ["x"]'
        )
        host.change(
            "tenants:\n",
            '  crest: {region: west, command: ["/bin/false"], partitions: [gpu]}\ntenants:\n',
        )
        await host.reload()
        after = dict(host.term._links.by_site)
        assert after[SiteName("alpine")] is before[SiteName("alpine")]
        assert after[SiteName("baker")] is not before[SiteName("baker")]
        assert set(after) == {"alpine", "baker", "crest"}
        assert list(host.term.federation.sites) == ["alpine", "baker", "crest"]
        await asyncio.sleep(1.0)

    live(tmp_path, story)


def test_the_channel_of_a_site_that_is_taken_out_ends(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        task = host.term._links._tasks[SiteName("baker")]
        host.change('  baker: {region: west, command: ["/bin/false"], partitions: [gpu]}\n', "")
        await host.reload()
        await asyncio.sleep(1.0)
        assert task.done()
        assert list(host.term._links.by_site) == ["alpine"]
        assert list(host.term.federation.sites) == ["alpine"]

    live(tmp_path, story)


def test_a_site_that_a_reload_brings_is_counted_from_zero(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.change(
            "tenants:\n",
            '  crest: {region: west, command: ["/bin/false"], partitions: [gpu]}\ntenants:\n',
        )
        await host.reload()
        found = values_of(as_metrics(host.daemon.metrics()), "federator_site_up")
        assert found == {("alpine",): 0, ("baker",): 0, ("crest",): 0}
        starts = values_of(as_metrics(host.daemon.metrics()), "federator_starts_total")
        assert starts == {("alpine",): 0, ("baker",): 0, ("crest",): 0}

    live(tmp_path, story)


def test_users_may_not_reload(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        reply = await host.ask(ReloadCall(), "ada")
        assert isinstance(reply, ErrorReply)
        assert reply.kind is ErrorKind.DENIED

    live(tmp_path, story)


def test_users_and_privacy_count_at_once(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        assert isinstance(await host.ask(submit(), "carol"), ErrorReply)
        host.change("users: [ada]", "users: [ada, carol]")
        await host.reload()
        assert isinstance(await host.ask(submit(), "carol"), SubmitReply)

    live(tmp_path, story)


def test_a_signal_reloads_too(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: 16}")
        host.daemon.reload()
        await asyncio.sleep(0.1)
        assert host.quota("nlp") == 16

    live(tmp_path, story)


def test_a_standby_goes_by_what_it_has_read_last(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def story() -> None:
        log = MemoryLog(LEASE_S, clock)
        first = Host(tmp_path / "one", clock, log)
        await asyncio.sleep(0.1)
        second = Host(tmp_path / "two", clock, log)
        await asyncio.sleep(1.0)
        second.change("nlp: {quota: {gpus: 8}", "nlp: {quota: {gpus: broken}")
        with capture_logs() as logs:
            second.daemon.reload()
            await asyncio.sleep(2.0)
        assert [each["event"] for each in logs] == ["reload_refused"]
        second.change("gpus: broken", "gpus: 16")
        with capture_logs() as logs:
            second.daemon.reload()
            await asyncio.sleep(2.0)
        assert "reloaded_standby" in [each["event"] for each in logs]
        first.daemon.stop()
        await first.run
        await asyncio.sleep(2 * LEASE_S)
        assert second.quota("nlp") == 16
        second.daemon.stop()
        await second.run

    run_virtual(clock, story())


def test_the_order_of_sites_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    before = load_config(path)
    lines = CONFIG.splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    path.write_text("".join(lines))
    (change,) = changes(before, load_config(path))
    assert (change.key, change.after) == ("sites", '["baker", "alpine"]')


def test_a_value_that_is_written_out_and_is_the_default_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG)
    before = load_config(path)
    path.write_text(CONFIG + "policy: {pass_interval_s: 300}\n")
    assert changes(before, load_config(path)) == ()


@pytest.fixture(autouse=True)
def _logs() -> None:
    structlog.reset_defaults()


def test_mail_is_turned_on_by_a_reload_and_sent_of_what_happens_then(tmp_path: Path) -> None:
    got = tmp_path / "got"
    program = tmp_path / "mail"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$3" "$2" >> {got}\n')
    program.chmod(0o755)

    async def story(host: Host) -> None:
        mails = Option(name="mail-type", value="END")
        first = await host.ask(submit("first-of-ada", mails), "ada")
        second = await host.ask(submit("second-of-ada", mails), "ada")
        assert isinstance(first, SubmitReply)
        assert isinstance(second, SubmitReply)
        await host.ask(CancelCall(ids=(str(first.id),)), "ada")
        host.change("tenants:", f"mail: {{command: [{program}]}}\ntenants:")
        await host.reload()
        await host.ask(CancelCall(ids=(str(second.id),)), "ada")
        await asyncio.sleep(1.0)
        (to, subject) = got.read_text().splitlines()
        assert to == "ada"
        assert subject.startswith(f"Slurm Job_id={second.id} Name=t Ended")

    live(tmp_path / "daemon", story)


def test_a_site_that_is_to_dial_from_now_on_finds_a_door(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        door = tmp_path / "daemon.sock.sites"
        assert not door.exists()
        host.change(
            'alpine: {region: west, command: ["/bin/false"]',
            "alpine: {connect: outbound, region: west",
        )
        await host.reload()
        await asyncio.sleep(1.0)
        assert door.is_socket()

    live(tmp_path, story)


def test_a_tenants_first_step_down_has_every_site_recorded_and_its_last_step_up_none(
    tmp_path: Path,
) -> None:
    """The agents are told when their channels begin, so those begin anew."""
    path = tmp_path / "federation.yaml"
    loaded = []
    for old, new in (
        ("", ""),
        ("nlp: {", "nlp: {mode: shadow, "),
        ("nlp: {", "nlp: {mode: opt-in, "),
    ):
        path.write_text(CONFIG.replace(old, new) if old else CONFIG)
        loaded.append(load_config(path))
    plain, watched, higher = loaded
    both = ["alpine", "baker"]
    assert changed_links(plain, watched, has_history=True) == (both, both)
    assert changed_links(watched, plain, has_history=True) == (both, both)
    assert changed_links(watched, higher, has_history=True) == ([], [])


def test_a_tenants_first_step_down_ends_no_channel_where_no_history_is_kept(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        links = dict(host.term._links.by_site)
        host.change("nlp: {", "nlp: {mode: shadow, ")
        reply = await host.reload()
        assert [each.key for each in reply.changes] == ["tenants.nlp.mode"]
        assert host.term._links.by_site == links

    live(tmp_path, story)
