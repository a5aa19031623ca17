"""What every store must promise, for each of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis as Client

from federator.errors import LeadershipLost, LogDiverged, NotCompacted, StaleState, StoreError
from federator.store.base import Store
from federator.store.memory import MemoryLog, MemoryStore
from federator.store.opening import open_store
from federator.store.redis import RedisStore
from tests.fakes.redis_server import LossyProxy, RedisSentinel, RedisServer, free_port

WRITER = """
import sys
from federator.store.opening import open_store
store = open_store(sys.argv[1])
store.lead(0)
for n in range(1_000_000):
    store.append([b"%d.%d" % (n, k) for k in range(3)])
    print(n, flush=True)
"""

Opener = Callable[[], Store]


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a log that outlives its process."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/state/queue.db"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.fixture(params=["memory", "sqlite", "redis"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same log again and again."""
    log, opened = MemoryLog(), list[Store]()
    kinds: dict[str, Opener] = {
        "memory": lambda: MemoryStore(log),
        "sqlite": lambda: open_store(f"sqlite://{tmp_path}/log.db"),
        "redis": lambda: open_store(request.getfixturevalue("redis_server").url),
    }

    def open_one() -> Store:
        opened.append(kinds[request.param]())
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(opener: Opener) -> Store:
    """A leading one."""
    opened = opener()
    opened.lead(0)
    return opened


def leading(url: str) -> Store:
    store = open_store(url)
    assert store.lead(0) is not None
    return store


def test_a_new_log_is_empty(opener: Opener, store: Store) -> None:
    assert list(store.records()) == []
    assert list(opener().records()) == []


def test_a_log_that_nobody_has_led_is_empty(opener: Opener) -> None:
    assert list(opener().records()) == []


def test_records_come_back_in_the_order_they_were_added(opener: Opener, store: Store) -> None:
    store.append([b"one", b"two"])
    store.append([])
    store.append([b"three", b"\x00\xff"])
    assert list(store.records()) == [b"one", b"two", b"three", b"\x00\xff"]
    assert list(opener().records()) == [b"one", b"two", b"three", b"\x00\xff"]  # beside the leader


def test_what_came_after_a_place_can_be_read_on_beside_the_leader(
    opener: Opener, store: Store
) -> None:
    store.append([b"one", b"two"])
    reader = opener()
    places, records = zip(*reader.read_on(None), strict=True)
    assert records == (b"one", b"two")
    assert list(reader.read_on(places[1])) == []
    store.append([b"three"])
    assert [record for _, record in reader.read_on(places[0])] == [b"two", b"three"]
    ((place, record),) = store.read_on(places[1])  # a place is the log's, not the reader's
    assert record == b"three"
    assert list(reader.read_on(place)) == []


def test_a_place_in_a_log_that_was_compacted_is_none_any_more(opener: Opener, store: Store) -> None:
    store.append([b"one", b"two"])
    places = [place for place, _ in store.read_on(None)]
    store.compact([b"both"])
    store.append([b"three"])
    for place in places:
        with pytest.raises(StaleState):
            list(opener().read_on(place))
    assert [record for _, record in opener().read_on(None)] == [b"both", b"three"]


def test_a_compacted_log_begins_at_the_place_where_it_ended_before(
    opener: Opener, store: Store
) -> None:
    """So who had read all of it knows that nothing was missed."""
    for _ in range(2):
        store.append([b"one", b"two"])
        *_, (last, _) = opener().read_on(None)
        store.compact([b"both"])
        (first, _), *_ = opener().read_on(None)
        assert first.first == last.end.next


def test_a_place_in_a_log_that_was_put_back_in_time_is_none_any_more(
    url: str, tmp_path: Path
) -> None:
    """As after a failover to a node that lacks the newest records."""
    store = leading(url)
    store.append([b"one"])
    ((place, _),) = store.read_on(None)
    store.close()
    other = {"sqlite": f"sqlite://{tmp_path}/other/queue.db", "redis": f"{url}?db=1"}
    with closing(leading(other[url.partition("+")[0].partition(":")[0]])) as another:
        with pytest.raises(StaleState):
            list(another.read_on(place))
        another.append([b"won"])
        with pytest.raises(StaleState):
            list(another.read_on(place))
        another.append([b"too"])
        with pytest.raises(StaleState):
            list(another.read_on(place))


def test_a_closed_store_takes_nothing(store: Store) -> None:
    store.append([b"one"])
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.append([b"two"])


def test_who_does_not_lead_can_read_and_write_nothing(opener: Opener, store: Store) -> None:
    store.append([b"one"])
    other = opener()
    for write in (other.append, other.compact):
        with pytest.raises(StoreError, match="not lead"):
            write([b"two"])
    with pytest.raises(StoreError, match="not lead"):
        other.renew()
    assert list(other.records()) == [b"one"]


def test_one_leads_at_a_time_and_a_closed_one_does_not(opener: Opener, store: Store) -> None:
    store.append([b"one"])
    other = opener()
    assert other.lead(0) is None
    store.append([b"two"])
    store.close()
    assert other.lead(0) is not None
    other.append([b"three"])
    assert list(other.records()) == [b"one", b"two", b"three"]
    other.close()


def test_every_term_has_a_greater_epoch(opener: Opener) -> None:
    epochs = []
    for at_least in (0, 1000, 7):
        leader = opener()
        epochs += [leader.lead(at_least), leader.lead(0)]
        leader.close()
    assert epochs == [1, 2, 1000, 1001, 1002, 1003]


def test_a_leader_that_renews_leads_on(store: Store) -> None:
    assert store.renew() > 0.0
    store.append([b"one"])
    assert store.renew() > 0.0


def test_a_lease_is_renewed_while_another_thread_appends(store: Store) -> None:
    ended = threading.Event()

    def keep() -> int:
        renewals = 0
        while not ended.is_set():
            assert store.renew() > 0.0
            renewals += 1
        return renewals

    with ThreadPoolExecutor(1) as beside:
        kept = beside.submit(keep)
        for _ in range(50):
            store.append([b"one", b"two"])
        ended.set()
        assert kept.result() > 0
    assert len(list(store.records())) == 100


def test_a_compacted_log_holds_what_it_was_given_and_what_came_later(
    opener: Opener, store: Store
) -> None:
    store.append([b"one", b"two"])
    before = store.records()
    store.compact([b"both"])
    store.append([b"three"])
    assert list(store.records()) == list(opener().records()) == [b"both", b"three"]
    store.compact([])
    assert list(store.records()) == []
    store.append([b"four"])
    assert list(opener().records()) == [b"four"]
    assert list(before) in ([b"one", b"two"], [b"four"])  # never a mixture


# ---- leases that end by time ----


def test_a_leader_whose_lease_ended_is_refused_once_another_leads() -> None:
    now_s = 0.0
    log = MemoryLog(lease_s=3.0, clock=lambda: now_s)
    paused, standby = MemoryStore(log), MemoryStore(log)
    paused.lead(0)
    paused.append([b"one"])
    now_s = 2.9
    assert standby.lead(0) is None
    assert paused.renew() == 3.0
    now_s = 5.8
    assert standby.lead(0) is None
    now_s = 5.9
    assert standby.lead(0) == 2
    for act in (paused.append, paused.compact):
        with pytest.raises(LeadershipLost):
            act([b"two"])
    with pytest.raises(LeadershipLost):
        paused.renew()
    paused.close()  # is not the other's end
    standby.append([b"three"])
    assert list(standby.records()) == [b"one", b"three"]


# ---- stores that outlive their process ----


def test_records_survive_a_reopen(url: str) -> None:
    with closing(leading(url)) as first:
        first.append([b"one", b"two"])
    with closing(leading(url)) as second:
        second.append([b"three"])
        second.compact([b"all"])
    with closing(leading(url)) as third:
        third.append([b"four"])
        assert list(third.records()) == [b"all", b"four"]


def test_a_killed_writer_loses_nothing_that_it_acknowledged(url: str) -> None:
    argv = [sys.executable, "-c", WRITER, url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            writer.stdout.readline()
        writer.kill()
        acknowledged = 40 + len(writer.stdout.readlines())
    found = list(open_store(url).records())
    whole = [b"%d.%d" % (n, k) for n in range(len(found) // 3) for k in range(3)]
    assert found == whole  # in order, and no append is there by halves
    assert len(found) // 3 >= acknowledged


def test_a_log_of_many_records_comes_back_whole(url: str) -> None:
    records = [b"%d" % n * 50 for n in range(5_000)]
    with closing(leading(url)) as store:
        store.append(records[:3_500])
        store.append(records[3_500:])
        assert list(store.records()) == records
        store.compact(records[1:])
        assert list(store.records()) == records[1:]


def test_a_log_that_lacks_acknowledged_records_is_not_led_by_who_remembers_them(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    urls = f"sqlite://{tmp_path}/queue.db", f"{redis_server.url}?mark_file={tmp_path}/mark"
    for url in urls:
        with closing(leading(url)) as store:
            store.append([b"one", b"two"])
            store.renew()
    (tmp_path / "queue.db").unlink()
    Client(unix_socket_path=redis_server.socket).flushall()
    for url in urls:
        with pytest.raises(StoreError, match=r"2 records .* missing at the end"):
            open_store(url).lead(0)
        with closing(open_store(url, accept_loss=True)) as rebuilt:
            assert rebuilt.lead(0) is not None
        leading(url).close()  # what is there now is what counts


# ---- Redis ----


def test_a_killed_redis_loses_nothing_that_it_acknowledged(redis_server: RedisServer) -> None:
    argv = [sys.executable, "-c", WRITER, redis_server.url]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            writer.stdout.readline()
        redis_server.kill()
        acknowledged = 40 + len(writer.stdout.readlines())
        assert writer.stderr is not None
        assert "StoreError: Redis at" in writer.stderr.read()
    redis_server.start()
    found = list(open_store(redis_server.url).records())
    assert found == [b"%d.%d" % (n, k) for n in range(len(found) // 3) for k in range(3)]
    assert len(found) // 3 >= acknowledged


def lose_the_lead(url: str) -> None:
    """As when the lease ran out, or when somebody removed the lock under a daemon that runs."""
    if url.startswith("sqlite:"):
        Path(f"{url.removeprefix('sqlite://')}.lock").unlink()
    else:
        path = url.removeprefix("redis+unix://").partition("?")[0]
        Client(unix_socket_path=path).delete("{federator:queue}:lease")


def test_a_paused_leader_can_add_nothing_once_another_leads(url: str) -> None:
    paused, standby = leading(url), open_store(url)
    paused.append([b"one"])
    assert standby.lead(0) is None
    lose_the_lead(url)
    assert standby.lead(0) == 2
    standby.append([b"two"])
    for act in (paused.append, paused.compact):
        with pytest.raises(LeadershipLost, match="epoch 2 leads, this was 1"):
            act([b"three"])
        paused._failed = False  # type: ignore[attr-defined]
    with pytest.raises(LeadershipLost):
        paused.renew()
    paused.close()  # is not the other's end
    assert open_store(url).lead(0) is None
    assert list(standby.records()) == [b"one", b"two"]
    standby.close()


def test_an_append_whose_reply_was_lost_is_there_once(redis_server: RedisServer) -> None:
    with closing(leading(redis_server.url)) as store:
        assert isinstance(store, RedisStore)
        store.append([b"one"])
        before = store._end
        for _ in range(2):  # the second does not know of the first
            store._end = before
            store.append([b"two", b"three"])
        assert list(store.records()) == [b"one", b"two", b"three"]
        before = store._end
        for _ in range(2):
            store._end = before
            store.compact([b"all"])
        store.append([b"four"])
        assert list(store.records()) == [b"all", b"four"]


@pytest.mark.parametrize("lost", ["put aside", "put in place"])
def test_a_compaction_whose_reply_was_lost_is_done_once_or_not_at_all(
    redis_server: RedisServer, lost: str
) -> None:
    word = {"put aside": b"RPUSH\r\n", "put in place": b"UNLINK', log"}[lost]
    with (
        closing(LossyProxy(redis_server, word)) as proxy,
        closing(leading(f"redis://127.0.0.1:{proxy.port}")) as store,
    ):
        store.append([b"one", b"two"])
        if lost == "put aside":
            with pytest.raises(NotCompacted):
                store.compact([b"both"])
            assert list(store.records()) == [b"one", b"two"]
        store.compact([b"both"])
        store.append([b"three"])
        assert list(store.records()) == [b"both", b"three"]


def test_a_new_log_that_is_not_whole_does_not_take_the_place_of_the_old_one(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(leading(redis_server.url)) as store:
        assert isinstance(store, RedisStore)
        store.append([b"one", b"two"])
        with monkeypatch.context() as patched:
            patched.setattr(store._redis, "put_aside", lambda *_: None)  # as if it went at once
            with pytest.raises(NotCompacted, match="not arrive whole"):
                store.compact([b"both"])
        store.append([b"three"])
        assert list(store.records()) == [b"one", b"two", b"three"]
        store.compact([b"all"])
        assert list(store.records()) == [b"all"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"appendonly": "no"}, "set 'appendonly yes'"),
        ({"appendfsync": "everysec"}, "'appendfsync everysec', which can lose"),
        ({"no-appendfsync-on-rewrite": "yes"}, "set 'no-appendfsync-on-rewrite no'"),
        ({"maxmemory-policy": "allkeys-lru"}, "set 'maxmemory-policy noeviction'"),
        ({"rename-command": "CONFIG hidden"}, "assume_durable=yes"),
    ],
)
def test_a_redis_that_can_lose_records_is_refused(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    server = RedisServer(tmp_path / "redis", settings=settings)
    try:
        store = open_store(server.url)
        for _ in range(2):  # a second try looks again
            with pytest.raises(StoreError, match=words):
                store.lead(0)
        if "rename-command" in settings:
            leading(f"{server.url}?assume_durable=yes").close()
    finally:
        server.kill()


def test_a_redis_that_is_made_careless_while_it_runs_is_noticed(redis_server: RedisServer) -> None:
    with closing(leading(redis_server.url)) as store:
        Client(unix_socket_path=redis_server.socket).config_set("appendfsync", "everysec")
        with pytest.raises(StoreError, match="appendfsync always"):
            store.renew()


def test_what_is_acknowledged_is_on_the_replica_and_survives_a_failover(tmp_path: Path) -> None:
    primary = RedisServer(tmp_path / "primary")
    replica = RedisServer(tmp_path / "replica", primary)
    try:
        store = leading(f"redis://127.0.0.1:{primary.port}?replicas=1&wait_ms=5000")
        store.append([b"one"])
        primary.kill()
        promoted = Client(unix_socket_path=replica.socket)
        promoted.replicaof("NO", "ONE")
        promoted.delete("{federator:queue}:lease")
        with closing(leading(f"redis://127.0.0.1:{replica.port}")) as successor:
            assert list(successor.records()) == [b"one"]
        store.close()
    finally:
        primary.kill()
        replica.kill()


def test_who_leads_reads_the_log_that_it_leads_whatever_another_server_holds(
    tmp_path: Path,
) -> None:
    """As when a master that hung goes on, and does not know yet that another was promoted."""
    old = RedisServer(tmp_path / "old")
    new = RedisServer(tmp_path / "new", old)
    try:
        with closing(leading(f"redis://127.0.0.1:{old.port}?replicas=1")) as store:
            store.append([b"one"])
        Client(port=new.port).replicaof("NO", "ONE")
        with closing(leading(new.url)) as store:
            store.append([b"two"])
        at_old, store = open_store(old.url), open_store(new.url)
        assert isinstance(store, RedisStore)
        assert isinstance(at_old, RedisStore)
        at_new, store._redis.reader = store._redis.writer, at_old._redis.reader
        ((place, _),) = store.read_on(None)
        assert store.lead(0) is not None
        assert [record for _, record in store.read_on(place)] == [b"two"]
        store._redis.writer = at_old._redis.writer  # a new connection, say
        with pytest.raises(StoreError, match=r"to record 1, not \d+ to 2; did another server"):
            list(store.read_on(place))
        store._redis.writer = at_new
        store.close()
    finally:
        old.kill()
        new.kill()


def test_a_server_that_lacks_nothing_but_the_lead_ends_the_term_not_the_log(
    redis_server: RedisServer,
) -> None:
    """As after a failover to a replica that heard all but of who leads."""
    client, head = Client(unix_socket_path=redis_server.socket), "{federator:queue}:head"
    with closing(leading(redis_server.url)) as store:
        store.append([b"one"])
        client.hset(head, "epoch", "0")
        for act in (store.renew, lambda: store.append([b"two"])):
            with pytest.raises(LeadershipLost, match="its last epoch is 0, this was 1"):
                act()
        assert list(open_store(redis_server.url).records()) == [b"one"]


def test_who_lost_the_lead_reads_the_log_along_again(redis_server: RedisServer) -> None:
    before, standby = leading(redis_server.url), open_store(redis_server.url)
    Client(unix_socket_path=redis_server.socket).delete("{federator:queue}:lease")  # it ran out
    with closing(standby):
        assert standby.lead(0) is not None
        standby.append([b"one"])
        with pytest.raises(LeadershipLost):
            list(before.records())
        assert before.lead(0) is None
        assert list(before.records()) == [b"one"]
    before.close()


def test_a_log_that_diverged_is_told_from_one_that_was_compacted(redis_server: RedisServer) -> None:
    other = f"{redis_server.url}?db=1"
    with closing(leading(redis_server.url)) as store, closing(leading(other)) as another:
        store.append([b"one"])
        another.append([b"won", b"too"])
        ((place, _),) = store.read_on(None)
        with pytest.raises(LogDiverged, match="record 1 is not the one"):
            list(another.read_on(place))
        store.compact([b"all"])
        with pytest.raises(StaleState) as caught:
            list(store.read_on(place))
        assert not isinstance(caught.value, LogDiverged)


def test_sentinels_tell_which_redis_has_the_log_now(tmp_path: Path) -> None:
    primary = RedisServer(tmp_path / "primary")
    replica = RedisServer(tmp_path / "replica", primary)
    sentinel = RedisSentinel(tmp_path / "sentinel", primary)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/queue/0"
    try:
        sentinel.await_line("+slave ")
        leader = leading(f"{url}?replicas=1")
        leader.append([b"one"])
        primary.kill()
        sentinel.await_line("+switch-master")
        Client(port=replica.port).delete("{federator:queue}:lease")  # it ran out meanwhile
        with closing(leading(url)) as successor:
            assert list(successor.records()) == [b"one"]
            successor.append([b"two"])
            with pytest.raises(LeadershipLost):
                leader.append([b"three"])
            assert list(successor.records()) == [b"one", b"two"]
        leader.close()
    finally:
        for server in (sentinel, primary, replica):
            server.kill()


def test_nothing_is_acknowledged_that_too_few_replicas_have(tmp_path: Path) -> None:
    primary = RedisServer(tmp_path / "primary")
    replica = RedisServer(tmp_path / "replica", primary)
    try:
        store = leading(f"redis://127.0.0.1:{primary.port}?replicas=1&wait_ms=50")
        store.append([b"one"])
        replica.kill()
        with pytest.raises(StoreError, match="0 of 1 replicas answered within 50 ms"):
            store.append([b"two"])
        with pytest.raises(StoreError, match="a write has failed"):
            store.append([b"three"])
        store.close()
    finally:
        primary.kill()
        replica.kill()


def test_a_promoted_redis_is_not_led_before_it_has_its_replicas(tmp_path: Path) -> None:
    primary = RedisServer(tmp_path / "primary")
    promoted = RedisServer(tmp_path / "promoted", primary)
    servers = [primary, promoted]
    try:
        store = leading(f"redis://127.0.0.1:{primary.port}?replicas=1&wait_ms=5000")
        store.append([b"one"])
        primary.kill()
        Client(port=promoted.port).replicaof("NO", "ONE")
        Client(port=promoted.port).delete("{federator:queue}:lease")
        successor = open_store(f"redis://127.0.0.1:{promoted.port}?replicas=1&wait_ms=2000")
        for _ in range(2):
            with pytest.raises(StoreError, match="nobody leads until 1 are connected"):
                successor.lead(0)
        servers.append(RedisServer(tmp_path / "new", promoted))
        assert successor.lead(0) is not None
        assert list(successor.records()) == [b"one"]
        successor.close()
        store.close()
    finally:
        for server in servers:
            server.kill()


def test_a_replica_that_lacks_acknowledged_records_is_not_led(tmp_path: Path) -> None:
    primary = RedisServer(tmp_path / "primary")
    url = f"redis://127.0.0.1:{primary.port}"
    try:
        leader, standby = leading(url), open_store(url)
        leader.append([b"one", b"two"])
        leader.renew()  # what it acknowledged is known to those who wait
        assert standby.lead(0) is None
        for key in ("lease", "log", "head"):  # as of a replica that was cut off before
            Client(port=primary.port).delete(f"{{federator:queue}}:{key}")
        with pytest.raises(StoreError, match="2 records that were acknowledged are missing"):
            leader.append([b"three"])
        with pytest.raises(StoreError, match="2 records that were acknowledged are missing"):
            standby.lead(0)
    finally:
        primary.kill()


def test_a_redis_that_is_not_there_is_named_with_what_to_do() -> None:
    store = open_store(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+.*does it run there"):
        store.lead(0)


def test_the_password_is_read_from_a_file(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", settings={"requirepass": "hidden"})
    try:
        (tmp_path / "password").write_text("hidden\n")
        leading(f"{server.url}?password_file={tmp_path}/password").close()
        with pytest.raises(StoreError, match="password_file"):
            open_store(server.url).lead(0)
    finally:
        server.kill()


@pytest.mark.parametrize("damage", ["changed", "missing", "swapped"])
def test_a_damaged_list_is_an_error_not_another_log(redis_server: RedisServer, damage: str) -> None:
    with closing(leading(redis_server.url)) as store:
        store.append([b"one", b"two", b"three"])
        client, log = Client(unix_socket_path=redis_server.socket), "{federator:queue}:log"
        first, second = cast(list[Any], client.lrange(log, 0, 1))
        if damage == "changed":
            client.lset(log, 1, second[:-1] + b"x")
        elif damage == "missing":
            client.lpop(log)
        else:
            client.lset(log, 0, second)
            client.lset(log, 1, first)
        with pytest.raises(StoreError, match="damaged"):
            list(store.records())
