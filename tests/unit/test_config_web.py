"""The key ``web`` of federation.yaml: what it takes, and what it warns of."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from federator.config_web import WebConfig


def test_by_default_the_page_listens_on_loopback_and_believes_nobody() -> None:
    web = WebConfig()
    assert web.host_and_port == ("127.0.0.1", 8410)
    assert (web.account, web.operators, web.proxies, web.tokens) == ("", (), (), None)
    assert list(web.warnings()) == []


@pytest.mark.parametrize(
    ("listen", "found"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:8410", ("::1", 8410)),
        ("gpus.example:443", ("gpus.example", 443)),
    ],
)
def test_an_address_has_a_host_and_a_port(listen: str, found: tuple[str, int]) -> None:
    web = WebConfig(listen=listen)
    assert web.host_and_port == found
    assert web.unix_path is None


def test_a_unix_socket_has_a_path() -> None:
    web = WebConfig(listen="unix:/run/federator-web/web.sock")
    assert str(web.unix_path) == "/run/federator-web/web.sock"
    assert web.host_and_port == ("", 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen", "8410"),
        ("listen", "127.0.0.1:0"),
        ("listen", "127.0.0.1:99999"),
        ("listen", "unix:relative"),
        ("account", "a b"),
        ("operators", ["../x"]),
        ("proxies", ["proxy.example"]),
        ("user_header", "X-User: x"),
        ("hosts", ["gpus.example:443"]),
        ("secret", "x"),
    ],
)
def test_what_makes_no_sense_is_an_error(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        WebConfig.model_validate({key: value})


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"listen": "0.0.0.0:8410"}, "without TLS"),
        ({"proxies": ["unix"]}, "give both"),
        ({"user_header": "X-User"}, "give both"),
        ({"proxies": ["127.0.0.1"], "user_header": "X-User"}, "can forge the header"),
        ({"operators": ["ada"]}, "nobody may act"),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(keys: dict[str, object], says: str) -> None:
    (warning,) = WebConfig.model_validate(keys).warnings()
    assert says in warning
