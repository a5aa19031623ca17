"""What may stand in a file that root reads is a plain name; everything else is refused."""

from __future__ import annotations

import re
import shlex

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import ConfigError
from federator.site_installer import templates, validation
from federator.site_installer.files import KitSettings, settings_sh

HOSTILE = [
    "",
    "-x",
    ".",
    "..",
    "a b",
    "a\n",
    "a;b",
    "$(id)",
    "`id`",
    'a"b',
    "a'b",
    "a/b",
    "a,b",
    "a\\b",
    "%wheel",
    "#1",
    "ALL ALL",
    "é",
    "a\0b",
    "x" * 65,
]
KEY = asyncssh.generate_private_key("ssh-ed25519", comment="a comment of several words")
PUBLIC = KEY.export_public_key().decode()


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_plain_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a name"):
        validation.name("tenants: users", text)


@pytest.mark.parametrize("text", [*HOSTILE, "ALL", "root", "0", "Federator", "a.b", "x" * 33])
def test_an_account_that_sudo_could_take_for_another_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an account"):
        validation.account("sites.alpine.ssh.user", text)


@given(st.text(max_size=70))
def test_a_name_that_passes_means_nothing_to_a_shell(text: str) -> None:
    try:
        passed = validation.name("user", text)
    except ConfigError:
        return
    assert shlex.quote(passed) == passed
    assert templates.sudoers(passed, passed).count("\n") == templates.sudoers().count("\n")


@given(st.text(alphabet="g[1-8],.c \n;$\"'", max_size=20))
def test_a_host_list_that_passes_adds_no_key_to_a_partition(text: str) -> None:
    try:
        passed = validation.host_list("--nodes", text)
    except ConfigError:
        return
    assert not re.search(r"[\s=;\"'$]", passed)


@pytest.mark.parametrize("text", ["", "spool", "/", "/a b", "/a/../b", "/a\n", "/a'", "/a/", "/-a"])
def test_what_is_no_plain_absolute_path_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        validation.path("--spool", text)


def test_a_plain_path_is_taken() -> None:
    assert validation.path("--spool", "/var/spool/federator") == "/var/spool/federator"


def test_a_public_key_loses_a_comment_that_is_no_word() -> None:
    kind, data = PUBLIC.split()[:2]
    assert validation.public_key("key.pub", PUBLIC) == f"{kind} {data}"
    assert validation.public_key("key.pub", f"{kind} {data} me@host\n") == f"{kind} {data} me@host"


def test_a_private_key_is_never_taken_for_its_public_half() -> None:
    with pytest.raises(ConfigError, match="private key"):
        validation.public_key("key.pub", KEY.export_private_key().decode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{PUBLIC}{PUBLIC}",
        f'command="/bin/sh" {PUBLIC}',
        PUBLIC.replace("ssh-ed25519", "ssh-rsa"),
        "ssh-ed25519 AAAA",
        "ssh-ed25519 nonsense!",
    ],
)
def test_what_is_not_one_public_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected one public key"):
        validation.public_key("key.pub", text)


@given(st.text(max_size=200))
def test_a_public_key_that_passes_is_one_line_without_options(text: str) -> None:
    try:
        passed = validation.public_key("key.pub", text)
    except ConfigError:
        return
    assert re.fullmatch(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+( \S+)?", passed)


def test_settings_of_the_scripts_are_quoted() -> None:
    settings = KitSettings(
        federation="f", site="a b;c'd", version="1", partitions=("fed",), generations=("24.11",)
    )
    words = shlex.split(settings_sh(settings), comments=True)
    assert "SITE=a b;c'd" in words
