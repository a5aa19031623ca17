"""The store for two daemons: a log in Redis, led by a lease and guarded by epochs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from federator.errors import (
    DamagedLog,
    LeadershipLost,
    LogDiverged,
    NotCompacted,
    StaleState,
    StoreError,
)
from federator.store.chain import EndMark, LogEnd, LogPlace, this_process, what_is_lost
from federator.store.redis_scripts import APPEND, COMPACT, LEAD, RELEASE, RENEW
from federator.store.redis_url import RedisAddress

LEASE_S: Final = 3.0
_PAGE: Final = 1000  # records read or written at once
_RENEW_WAIT_MS: Final = 500  # for replicas: a lease must not end while it is renewed
_ANSWER_S: Final = 1.0  # patience with one call, beside what is waited for replicas
_ASIDE_S: Final = 3600  # what a crash left of a compaction is forgotten after
_CRC_BYTES: Final = 4
_SETTINGS: Final = (  # what makes that an answer means: it is on the disk
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory-policy", "noeviction"),
)
_REMEDIES: Final[tuple[tuple[type[redis.RedisError], str], ...]] = (
    (redis.AuthenticationError, "check user and ?password_file="),
    (redis.ReadOnlyError, "this is a replica: name its master, or the sentinels"),
    (redis.OutOfMemoryError, "Redis is full: raise its maxmemory"),
    (redis.BusyLoadingError, "it reads its log yet: try again"),
    (redis.ConnectionError, "does it run there, and may this host reach it?"),
    (redis.TimeoutError, "does it run there, and may this host reach it?"),
)


class RedisStore:
    """An event log in Redis.

    Args:
        address: see ``RedisAddress``.
        accept_loss: lead also where records are missing that were acknowledged.
    """

    def __init__(self, address: RedisAddress, *, accept_loss: bool = False) -> None:
        self._address = address
        self._accept_loss = accept_loss
        self._token = f"{this_process()} {secrets.token_hex(8)}"  # as the lease's value
        self._keys = tuple(map(address.key, ("log", "head", "lease")))
        self._reader = _client(address)
        self._writer = _client(address, redis_connect_func=self._greet)
        self._once = _client(address, tries=1, redis_connect_func=self._greet)
        self._keeper = _client(  # of the lease, which ends while it is patient
            address, tries=1, patient=False, redis_connect_func=self._greet
        )
        self._epoch: int | None = None
        self._end = LogEnd()
        self._seen = 1  # how far the log was acknowledged, as this process knows
        self._failed = False
        self._mark: EndMark | None = None

    # ---- leading ----

    def lead(self, at_least: int) -> int | None:
        word, *rest = self._call(LEAD, at_least, self._token, int(LEASE_S * 1000))
        if word == b"held":
            self._epoch, self._seen = None, max(self._seen, int(rest[2]))
            return None
        epoch, _, next_, crc, acked = map(int, rest)
        if word == b"broken":
            raise DamagedLog(f"{self._address}: the log is damaged: its length and head disagree")
        self._end = LogEnd(next_, crc)
        self._seen = max(self._seen, acked)
        try:
            self._check_whole()
        except StoreError:
            self._release()
            raise
        self._epoch, self._failed, self._seen = epoch, False, next_
        if self._mark is not None:
            self._mark.write(self._end)
        return epoch

    def _check_whole(self) -> None:
        """Raise StoreError where the log lacks what it once acknowledged, as after a failover."""
        file, lost = self._address.mark_file, self._seen - self._end.next
        if file is not None and self._mark is None:
            try:
                self._mark = EndMark(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise StoreError(f"mark_file {file}: {error.strerror}") from error
        if self._accept_loss:
            return
        if lost > 0:
            raise DamagedLog(f"{self._address}: {_lost(lost)}")
        if file is not None and self._mark is not None:
            found = what_is_lost(self._end, self._mark.read(), file)
            if found:
                raise DamagedLog(f"{self._address}: {found}")

    def renew(self) -> float:
        epoch, end = self._leading(), self._end
        words = (epoch, end.next, self._token, int(LEASE_S * 1000))
        self._settle(self._call(RENEW, *words, client=self._keeper), end)
        self._ask_settings()
        if self._mark is not None:
            self._mark.write(end)
        return LEASE_S

    def leader(self) -> str:
        try:
            found = self._keeper.get(self._keys[2])
        except (redis.RedisError, StoreError):
            return ""
        return found.decode(errors="replace").rpartition(" ")[0] if isinstance(found, bytes) else ""

    def append(self, records: Sequence[bytes]) -> None:
        epoch = self._leading()
        if not records:
            return
        before = self._end
        rows = before.chained(records)
        after = LogEnd(rows[-1][0] + 1, rows[-1][1])
        ends = (before.next, before.crc, after.next, after.crc)
        with self._all_or_the_end():
            self._settle(self._call(APPEND, epoch, *ends, *map(_packed, rows)), before)
            self._end = after

    def compact(self, records: Sequence[bytes]) -> None:
        epoch, before = self._leading(), self._end
        rows = LogEnd(before.next).chained(records)
        after = LogEnd(rows[-1][0] + 1, rows[-1][1]) if rows else LogEnd(before.next)
        aside = self._address.key(f"aside:{epoch}")
        self._put_aside(aside, rows)
        with self._all_or_the_end():
            found = self._call(COMPACT, epoch, before.next, after.next, after.crc, more=(aside,))
            is_whole = found[0] != b"aside"
            if is_whole:
                self._settle(found, before)
                self._end = after
        if not is_whole:
            self._drop(aside)
            raise NotCompacted(f"{self._address}: the new log did not arrive whole")

    def _put_aside(self, key: str, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Write the new log beside the old one, which stays as it is if that fails."""
        try:
            with self._explained():
                self._writer.unlink(key)
                for first in range(0, len(rows), _PAGE):
                    self._push(key, rows[first : first + _PAGE])
        except StoreError as error:
            self._drop(key)
            raise NotCompacted(str(error)) from error

    def _drop(self, key: str) -> None:
        with suppress(redis.RedisError, StoreError):  # else it goes by itself
            self._writer.unlink(key)

    def _push(self, key: str, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Not twice, whatever is lost on the way: a second try would make the list too long."""
        with self._once.pipeline(transaction=True) as pipe:
            pipe.rpush(key, *map(_packed, rows))
            pipe.expire(key, _ASIDE_S)
            pipe.execute()

    def _leading(self) -> int:
        if self._epoch is None:
            raise StoreError(f"{self._address}: this process does not lead; nothing may be written")
        if self._failed:
            raise StoreError(f"{self._address}: a write has failed; open the log anew")
        return self._epoch

    @contextmanager
    def _all_or_the_end(self) -> Iterator[None]:
        """After a failure nothing more is written: what is there is not known."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise

    def _settle(self, answer: list[Any], known: LogEnd) -> None:
        """Raise what a script's answer means, unless it did its work."""
        word, *rest = answer
        if word == b"ok":
            return
        epoch, _, next_, crc, _ = map(int, rest)
        self._check_epoch(epoch)
        if word == b"epoch" and LogEnd(next_, crc) == known:
            raise LeadershipLost(
                f"{self._address}: its last epoch is {epoch}, this was {self._epoch}: another "
                "server is in charge, which was not told; nothing was written"
            )
        lost = known.next - next_
        what = _lost(lost) if lost > 0 else "the log was changed by another program"
        raise DamagedLog(f"{self._address}: {what}")

    def _check_epoch(self, epoch: int) -> None:
        assert self._epoch is not None  # else nothing was asked
        if epoch > self._epoch:
            raise LeadershipLost(
                f"{self._address}: epoch {epoch} leads, this was {self._epoch}; nothing was written"
            )

    # ---- reading ----

    def records(self) -> Iterator[bytes]:
        return (record for _, record in self.read_on(None))

    def read_on(self, place: LogPlace | None) -> Generator[tuple[LogPlace, bytes]]:
        log, head, _ = self._keys
        client = self._reader if self._epoch is None else self._writer
        with self._explained():
            found = client.hmget(head, "epoch", "base", "next", "crc")
        epoch, base, next_, crc = (int(v or k) for v, k in zip(found, (0, 1, 1, 0), strict=True))
        self._check_led(epoch, LogEnd(next_, crc))
        end = LogEnd(base)
        if place is not None:
            self._check_place(client, place, base, LogEnd(next_, crc))
            end = place.end
        while end.next < next_:
            index = end.next - base
            with self._explained(), client.pipeline(transaction=True) as pipe:
                pipe.hget(head, "base")
                pipe.lrange(log, index, min(index + _PAGE, next_ - base) - 1)
                now, page = pipe.execute()
            if int(now or 1) != base:
                raise StoreError(f"{self._address}: compacted while it was read; read it again")
            for entry in page:
                end = self._checked(end, entry)
                yield LogPlace(base, end), entry[_CRC_BYTES:]
            if not page:
                raise DamagedLog(f"{self._address}: damaged: record {end.next} is missing")
        if end.crc != crc:
            raise DamagedLog(f"{self._address}: damaged: the last record is not the one written")

    def _check_led(self, epoch: int, end: LogEnd) -> None:
        """Raise StoreError unless this is all of the log that this process leads, if it does.

        Another server may answer: a former master that hung, and does not know yet that it is none.
        """
        if self._epoch is None or self._failed:
            return
        self._check_epoch(epoch)
        if (epoch, end) != (self._epoch, self._end):
            raise StoreError(
                f"{self._address}: the log read is not the one that is led: epoch {epoch} to "
                f"record {end.next - 1}, not {self._epoch} to {self._end.next - 1}; did another "
                "server answer?"
            )

    def _check_place(self, client: redis.Redis, place: LogPlace, base: int, end: LogEnd) -> None:
        """Raise StaleState unless the log still holds what was read up to ``place``."""
        if place.first != base:
            raise StaleState(f"{self._address}: this is not the log that was read before")
        same = place.end.next <= end.next
        if same and base < place.end.next < end.next:
            with self._explained():
                last = client.lindex(self._keys[0], place.end.next - 1 - base)
            same = (last or b"")[:_CRC_BYTES] == place.end.crc.to_bytes(_CRC_BYTES, "big")
        elif same and place.end.next == end.next:
            same = place.end.crc == end.crc
        if not same:
            raise LogDiverged(
                f"{self._address}: record {place.end.next - 1} is not the one that was read before"
            )

    def _checked(self, before: LogEnd, entry: bytes) -> LogEnd:
        after = before.after(entry[_CRC_BYTES:])
        if entry[:_CRC_BYTES] != after.crc.to_bytes(_CRC_BYTES, "big"):
            raise DamagedLog(f"{self._address}: damaged: record {before.next} is not as written")
        return after

    def close(self) -> None:
        if self._epoch is not None:
            self._epoch = None
            self._release()
        if self._mark is not None:
            os.close(self._mark.file)
            self._mark = None
        for client in (self._reader, self._writer, self._once, self._keeper):
            client.close()

    def _release(self) -> None:
        with suppress(redis.RedisError, StoreError):  # else the lease ends by itself
            self._writer.eval(RELEASE, len(self._keys), *self._keys, self._token)

    # ---- talking to Redis ----

    def _call(
        self,
        script: str,
        *words: object,
        more: tuple[str, ...] = (),
        client: redis.Redis | None = None,
    ) -> list[Any]:
        """Run a script; enough replicas have what it wrote.

        Repeated by the library after a lost reply: each script does its work once.
        """
        keys = (*self._keys, *more)
        wanted, client = self._address.replicas, client or self._writer
        wait_ms = self._address.wait_ms
        if client is self._keeper:
            wait_ms = min(wait_ms, _RENEW_WAIT_MS)
        with self._explained(), client.pipeline(transaction=False) as pipe:
            pipe.eval(script, len(keys), *keys, *words)  # type: ignore[arg-type]
            if wanted:
                pipe.wait(wanted, wait_ms)
            answer, *had = pipe.execute()
        if answer[0] == b"ok" and had and had[0] < wanted:
            raise StoreError(
                f"{self._address}: {had[0]} of {wanted} replicas answered within "
                f"{wait_ms} ms; nobody leads until {wanted} are connected: start the missing ones, "
                "or give it others"
            )
        return list(answer)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "")
            said = f"{error}; {remedy}" if remedy else str(error)
            raise StoreError(f"{self._address}: {said}") from error
        except OSError as error:  # of a password file
            raise StoreError(f"{self._address}: {error}") from error

    def _greet(self, connection: Any) -> None:
        """Each new connection may be to another server, as after a failover."""
        connection.on_connect()
        try:
            for name, wanted in () if self._address.assume_durable else _SETTINGS:
                connection.send_command("CONFIG", "GET", name)
                self._check_setting(name, wanted, connection.read_response())
        except redis.ResponseError as error:
            connection.disconnect()  # else the library would use it the next time
            raise StoreError(self._settings_unknown(error)) from error
        except StoreError:
            connection.disconnect()
            raise

    def _ask_settings(self) -> None:
        """They may be changed while it runs."""
        if self._address.assume_durable:
            return
        with self._explained(), self._keeper.pipeline(transaction=False) as pipe:
            for name, _ in _SETTINGS:
                pipe.config_get(name)
            for (name, wanted), found in zip(_SETTINGS, pipe.execute(), strict=True):
                self._check_setting(name, wanted, found)

    def _check_setting(self, name: str, wanted: str, found: Any) -> None:
        values = found.values() if isinstance(found, dict) else found[1:]
        value = next((v.decode() if isinstance(v, bytes) else v for v in values), "unknown")
        if value != wanted:
            raise StoreError(
                f"{self._address}: its setting is '{name} {value}', which can lose acknowledged "
                f"work; set '{name} {wanted}' in its redis.conf, and restart it"
            )

    def _settings_unknown(self, error: redis.ResponseError) -> str:
        wanted = ", ".join(map(" ".join, _SETTINGS))
        return (
            f"{self._address} does not say how it is set ({error}); if it surely has {wanted}, "
            "add ?assume_durable=yes to the URL"
        )


def _lost(count: int) -> str:
    return (
        f"{count} records that were acknowledged are missing at its end; put the node that has "
        "them in charge, or see 'federator recover'"
    )


def _packed(row: tuple[int, int, bytes]) -> bytes:
    _, crc, record = row
    return crc.to_bytes(_CRC_BYTES, "big") + record


def _client(
    address: RedisAddress, *, tries: int = 2, patient: bool = True, **more: Any
) -> redis.Redis:
    """Connects when it is used."""
    answer_s = _ANSWER_S + address.wait_ms / 1000 if patient else _ANSWER_S
    limits: dict[str, Any] = {
        "socket_timeout": answer_s,
        "socket_connect_timeout": _ANSWER_S,
        "retry": Retry(ConstantBackoff(0.1), tries - 1),
    }
    tls: dict[str, Any] = {}
    if address.tls:
        tls = {"ssl": True, "ssl_ca_certs": address.ca_file and str(address.ca_file)}
    login: dict[str, Any] = {
        "db": address.db,
        "protocol": 2,
        "username": address.user or None,
        "password": _password(address.password_file),
        **tls,
    }
    if address.service:
        asked = {**limits, "password": _password(address.sentinel_password_file)}
        sentinels = Sentinel(
            address.hosts, sentinel_kwargs={**asked, **(tls if address.tls else {})}
        )
        master: redis.Redis = sentinels.master_for(address.service, **limits, **login, **more)
        return master
    if address.socket:
        return redis.Redis(unix_socket_path=address.socket, **limits, **login, **more)
    ((host, port),) = address.hosts
    return redis.Redis(host=host, port=port, **limits, **login, **more)


def _password(file: Any) -> str | None:
    if file is None:
        return None
    try:
        found: str = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"password file {file}: cannot be read: {error}") from error
    return found
