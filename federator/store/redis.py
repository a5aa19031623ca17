"""The store for two daemons: a log in Redis, led by a lease and guarded by epochs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import redis

from federator.errors import (
    DamagedLog,
    LeadershipLost,
    LogDiverged,
    NotCompacted,
    StaleState,
    StoreError,
)
from federator.store.chain import EndMark, LogEnd, LogPlace, this_process, what_is_lost
from federator.store.redis_connections import RedisConnections
from federator.store.redis_scripts import APPEND, COMPACT, LEAD, RENEW
from federator.store.redis_url import RedisAddress

LEASE_S: Final = 3.0
_PAGE: Final = 1000  # records read at once
_CRC_BYTES: Final = 4


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
        self._redis = RedisConnections(address)
        self._epoch: int | None = None
        self._end = LogEnd()
        self._seen = 1  # how far the log was acknowledged, as this process knows
        self._failed = False
        self._mark: EndMark | None = None

    # ---- leading ----

    def lead(self, at_least: int) -> int | None:
        word, *rest = self._redis.call(LEAD, at_least, self._token, int(LEASE_S * 1000))
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
            self._redis.release(self._token)
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
        self._settle(self._redis.call(RENEW, *words, client=self._redis.keeper), end)
        self._redis.ask_settings()
        if self._mark is not None:
            self._mark.write(end)
        return LEASE_S

    def leader(self) -> str:
        try:
            found = self._redis.keeper.get(self._redis.keys[2])
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
            self._settle(self._redis.call(APPEND, epoch, *ends, *map(_packed, rows)), before)
            self._end = after

    def compact(self, records: Sequence[bytes]) -> None:
        epoch, before = self._leading(), self._end
        rows = LogEnd(before.next).chained(records)
        after = LogEnd(rows[-1][0] + 1, rows[-1][1]) if rows else LogEnd(before.next)
        aside = self._address.key(f"aside:{epoch}")
        self._redis.put_aside(aside, map(_packed, rows))
        with self._all_or_the_end():
            found = self._redis.call(
                COMPACT, epoch, before.next, after.next, after.crc, more=(aside,)
            )
            is_whole = found[0] != b"aside"
            if is_whole:
                self._settle(found, before)
                self._end = after
        if not is_whole:
            self._redis.drop(aside)
            raise NotCompacted(f"{self._address}: the new log did not arrive whole")

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
        log, head, _ = self._redis.keys
        client = self._redis.reader if self._epoch is None else self._redis.writer
        with self._redis.explained():
            found = client.hmget(head, "epoch", "base", "next", "crc")
        epoch, base, next_, crc = (int(v or k) for v, k in zip(found, (0, 1, 1, 0), strict=True))
        self._check_led(epoch, LogEnd(next_, crc))
        end = LogEnd(base)
        if place is not None:
            self._check_place(client, place, base, LogEnd(next_, crc))
            end = place.end
        while end.next < next_:
            index = end.next - base
            with self._redis.explained(), client.pipeline(transaction=True) as pipe:
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
            with self._redis.explained():
                last = client.lindex(self._redis.keys[0], place.end.next - 1 - base)
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
            self._redis.release(self._token)
        if self._mark is not None:
            os.close(self._mark.file)
            self._mark = None
        self._redis.close()


def _lost(count: int) -> str:
    return (
        f"{count} records that were acknowledged are missing at its end; put the node that has "
        "them in charge, or see 'federator recover'"
    )


def _packed(row: tuple[int, int, bytes]) -> bytes:
    _, crc, record = row
    return crc.to_bytes(_CRC_BYTES, "big") + record
