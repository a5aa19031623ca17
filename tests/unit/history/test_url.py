"""``history.url``: what it may be, and what stands in for it."""

from __future__ import annotations

import pytest

from federator.history.url import check_history_url, history_url, history_warnings


@pytest.mark.parametrize(
    "url",
    [
        "none",
        "sqlite:////var/lib/federator/history.db",
        "postgresql://federator@db.example.org/history",
        "postgresql://db:5433/history?passfile=/etc/federator/pgpass&sslmode=verify-full",
        "postgresql:///?service=federator",
    ],
)
def test_a_history_is_a_file_a_database_or_none(url: str) -> None:
    check_history_url(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "expected sqlite"),
        ("sqlite://", "expected sqlite"),
        ("sqlite:///relative.db", "expected sqlite"),
        ("mysql://db/history", "found 'mysql'"),
        ("postgresql://db:x/history", "expected postgresql"),
        ("postgresql://db/history?user=eve", "unknown option 'user'"),
        ("postgresql://db/history?application_name=x", "options are gssencmode"),
    ],
)
def test_anything_else_is_refused(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        check_history_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://federator:hunter2@db/history",
        "postgresql://db/history?password=hunter2",
        "postgresql://db/history?sslpassword=hunter2",
        "postgres://federator:hunter2@db/history",
    ],
)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"passfile|postgresql") as found:
        check_history_url(url)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("url", "store", "meant"),
    [
        ("", "sqlite:////var/lib/queue.db", "sqlite:////var/lib/queue-history.db"),
        ("", "memory:", "none"),
        ("", "redis://host/0", "none"),
        ("none", "sqlite:////var/lib/queue.db", "none"),
        ("postgresql://db/history", "redis://host/0", "postgresql://db/history"),
    ],
)
def test_without_a_url_the_history_of_a_file_is_the_file_beside_it(
    url: str, store: str, meant: str
) -> None:
    assert history_url(url, store) == meant


@pytest.mark.parametrize(
    ("url", "store", "warnings"),
    [
        ("", "sqlite:////q.db", 0),
        ("", "redis://host/0", 1),
        ("sqlite:////h.db", "redis://host/0", 1),
        ("none", "redis://host/0", 0),
        ("postgresql://db/history", "redis://host/0", 0),
    ],
)
def test_two_daemons_without_a_shared_history_are_warned_of(
    url: str, store: str, warnings: int
) -> None:
    assert len(history_warnings(url, store)) == warnings
