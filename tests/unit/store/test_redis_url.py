"""Which URLs name a log in Redis, and what is said of those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.store.opening import check_url, open_store
from federator.store.redis_url import RedisAddress, parse_redis_url


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("redis://queue.example", RedisAddress(hosts=(("queue.example", 6379),))),
        ("redis://[::1]:7000/2", RedisAddress(hosts=(("::1", 7000),), db=2)),
        (
            "rediss://fed@queue.example:1?ca_file=/etc/ca.pem&password_file=/etc/p&replicas=2",
            RedisAddress(
                hosts=(("queue.example", 1),),
                tls=True,
                user="fed",
                replicas=2,
                ca_file=Path("/etc/ca.pem"),
                password_file=Path("/etc/p"),
            ),
        ),
        (
            "redis+sentinel://a,b:1/queue/3?replicas=1",
            RedisAddress(hosts=(("a", 26379), ("b", 1)), service="queue", db=3, replicas=1),
        ),
        (
            "redis+unix:///run/redis.sock?db=1&name=demo",
            RedisAddress(socket="/run/redis.sock", db=1, name="demo"),
        ),
    ],
)
def test_a_url_is_read(url: str, meant: RedisAddress) -> None:
    assert parse_redis_url(url) == meant


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://", "expected redis://HOST"),
        ("redis://a:port/0", "expected redis://HOST"),
        ("redis://a:99999", "expected redis://HOST"),
        ("redis://a,b/0", "redis+sentinel"),
        ("redis://a/zero", "the database: expected a number"),
        ("redis://a/0/1", "nothing may follow"),
        ("redis://a/1?db=1", "given twice"),
        ("redis://a?replicas=-1", "replicas: expected a number"),
        ("redis://a?fsync=no", "unknown option"),
        ("redis://a?ca_file=/ca.pem", "ca_file has a meaning with rediss:// alone"),
        ("rediss://a?cert_file=/a.pem", "cert_file and key_file: expected both"),
        ("redis://a?name=x}y", "name: expected"),
        ("redis://a?password_file=secret", "absolute path"),
        ("redis://a?assume_durable=no", "expected yes"),
        ("redis+sentinel://a", "SERVICE"),
        ("redis+unix://host/run/redis.sock", "SOCKET"),
        ("mysql://a", "expected sqlite:///PATH, or redis://"),
        ("sqlite://queue.db", "expected sqlite:///PATH"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        check_url(url)
    with pytest.raises(InvalidRequest):
        open_store(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="password_file") as refused:
        check_url("redis://fed:hidden@queue.example/0")
    assert "hidden" not in str(refused.value)


def test_all_keys_of_a_log_are_in_one_slot() -> None:
    address = RedisAddress(name="demo")
    assert {address.key(k).partition("}")[0] for k in ("log", "head")} == {"{federator:demo"}
