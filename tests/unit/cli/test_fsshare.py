"""fsshare prints sshare's columns, with the tenants' quotas and use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from federator.cli import fsshare, text
from federator.wire.client_protocol import Call, ErrorReply, TenantRow, TenantsCall, TenantsReply
from federator.wire.replies import Reply


def tenant(name: str, **changes: Any) -> TenantRow:
    base: dict[str, Any] = {
        "name": name,
        "priority": 3,
        "users": ("ada",),
        "quota": {"gpus": 30, "cpus": None},
        "limit": {"gpus": 64, "cpus": None},
        "used": {"gpus": 8, "cpus": 9},
        "used_own": {"gpus": 8, "cpus": 9},
        "borrowed": {"gpus": 2, "cpus": 0},
        "lent": {"gpus": 0, "cpus": 0},
        "average_gpus": 4.25,
        "usage_share_frac": 0.25,
        "fair_share_term": 18.0,
    }
    return TenantRow(**{**base, **changes})


FAMILY = (
    tenant("vision"),
    tenant("video", parent="vision", depth=1, quota={"gpus": 10}, users=("ada", "bob")),
    tenant("nlp", quota={"gpus": 10}, usage_share_frac=0.0, users=("bob",), limit={"gpus": None}),
    tenant("guests", quota=None, users=()),
)
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command, as ada, against a daemon that has these tenants."""
    monkeypatch.setattr(fsshare, "my_name", lambda: "ada")

    def run(words: str, *rows: TenantRow, reply: Reply | None = None) -> str:
        def call(message: Call) -> Reply:
            assert isinstance(message, TenantsCall)
            return reply or TenantsReply(rows=rows or FAMILY, now_s=0.0)

        monkeypatch.setattr(fsshare, "call", call)
        monkeypatch.setattr(sys, "argv", ["fsshare", *words.split()])
        with pytest.raises(SystemExit):
            fsshare.main()
        found = capsys.readouterr()
        return found.out + found.err

    return run


def test_accounts_stand_under_their_parents_with_the_user_who_asks(run: Run) -> None:
    assert (
        run("")
        == """\
Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare \n\
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- \n\
vision                                  30    0.750000        4.25      0.250000   0.750000 \n\
 vision                     ada     parent                                         0.750000 \n\
 video                                  10    0.250000        4.25      0.250000   0.750000 \n\
  video                     ada     parent                                         0.750000 \n\
nlp                                     10    0.250000        4.25      0.000000   1.000000 \n\
guests                                   0    0.000000        4.25      0.250000   0.750000 \n\
"""
    )


@pytest.mark.parametrize(
    ("words", "users"),
    [
        ("-a", ["", "ada", "", "ada", "bob", "", "bob", ""]),
        ("-u bob", ["", "", "bob", "", "bob", ""]),
        ("-U -u ada,bob", ["ada", "ada", "bob", "bob"]),
        ("-A VIDEO -a", ["", "ada", "bob"]),
        ("-A none", []),
    ],
)
def test_users_and_accounts_are_chosen_as_with_sshare(
    run: Run, words: str, users: list[str]
) -> None:
    assert run(f"-P -n -o user,account {words}") == "".join(
        f"{user}|{line}\n"
        for user, line in zip(
            users,
            (text.split("|")[1] for text in run(f"-P -h -o user,account {words}").splitlines()),
            strict=True,
        )
    )


def test_long_says_how_quota_and_use_compare(run: Run) -> None:
    text = run("-P -o levelfs,limit,used,borrowed -A vision,nlp -u nobody")
    assert text.splitlines() == [
        "LevelFS|Limit|Used|Borrowed",
        "3.000000|gres/gpu=64|gres/gpu=8|gres/gpu=2",
        "inf||gres/gpu=8|gres/gpu=2",
    ]
    assert len(run("-l -p").splitlines()[0].split("|")) == 15


def test_a_policy_without_fair_share_shows_none(run: Run) -> None:
    assert run("-P -h -o fairshare", tenant("vision", fair_share_term=None, users=())) == "\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-o account,foo", 'Invalid field requested: "foo"'),
        (
            "-m",
            "--partition cannot be honoured: accounts of the federation have no partitions; "
            "leave it out",
        ),
        ("--json", "--json cannot be honoured: use federator tenants --json"),
    ],
)
def test_a_mistake_is_one_line(run: Run, words: str, said: str) -> None:
    assert run(words) == f"fsshare: error: {said}\n"


def test_a_refusal_is_an_error(run: Run) -> None:
    assert run("", reply=ErrorReply(message="no")) == "fsshare: error: no\n"


@pytest.mark.parametrize("words", ["-PhU -o user", "-PhU -o user -u a.one"])
def test_who_has_another_name_on_this_host_is_known_by_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    for module in (fsshare, text):
        monkeypatch.setattr(module, "my_name", lambda: "a.one")
    reply = TenantsReply(rows=FAMILY, now_s=0.0, caller="ada")
    assert run(words, reply=reply) == "ada\nada\n"
    assert run(words, reply=TenantsReply(rows=FAMILY, now_s=0.0)) == ""  # an earlier daemon
