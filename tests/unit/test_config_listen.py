"""Addresses to listen at: read, or refused in one message; warned of where others reach them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.config_listen import ListenAddress, MetricsConfig, listen_address
from federator.errors import ConfigError
from tests.unit.test_config import load


@pytest.mark.parametrize(
    ("text", "address", "is_local"),
    [
        ("127.0.0.1:9464", ListenAddress(host="127.0.0.1", port=9464), True),
        ("localhost:1", ListenAddress(host="localhost", port=1), True),
        ("[::1]:65535", ListenAddress(host="::1", port=65535), True),
        ("0.0.0.0:9464", ListenAddress(host="0.0.0.0", port=9464), False),
        ("[::]:9464", ListenAddress(host="::", port=9464), False),
        ("head.example:80", ListenAddress(host="head.example", port=80), False),
        ("unix:/run/f/m.sock", ListenAddress(path=Path("/run/f/m.sock")), True),
    ],
)
def test_an_address_is_read(text: str, address: ListenAddress, is_local: bool) -> None:
    assert listen_address(text) == address
    assert address.is_local == is_local


@pytest.mark.parametrize(
    "text",
    [
        "9464",
        ":9464",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:9464/metrics",
        "http://127.0.0.1:9464",
        "::1:9464x",
        "unix:m.sock",
        "unix:",
        "unix:/" + "a" * 107,
        "a b:1",
        "127.0.0.1:\uff19\uff14\uff16\uff14",
    ],
)
def test_what_is_no_address_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9464, or unix"):
        listen_address(text)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        found = listen_address(text)
    except ValueError:
        return
    assert (found.path is not None) != (0 < found.port < 65536)


def test_a_bad_address_in_the_file_is_one_message_with_line_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "policy:", "metrics: {listen: 9464}\npolicy:")
    assert len(str(caught.value).splitlines()) == 1
    assert ": metrics.listen: expected text" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "policy:", "metrics: {listen: everywhere}\npolicy:")
    assert ": metrics.listen: expected HOST:PORT, such as" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_address_that_others_reach_is_warned_of() -> None:
    assert MetricsConfig().warnings == ()
    assert MetricsConfig(listen="127.0.0.1:9464").warnings == ()
    (warning,) = MetricsConfig(listen="0.0.0.0:9464").warnings
    assert "whoever reaches it reads the metrics" in warning
