"""Programs that ask sacctmgr whose accounts there are get the federation's, in its formats."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from federator.cli import main as program
from federator.cli import sacctmgr
from federator.wire.client_protocol import (
    Call,
    ErrorReply,
    StatusCall,
    TenantsCall,
    TenantsReply,
)
from federator.wire.replies import Reply
from tests.unit.cli.test_control_show import STATUS
from tests.unit.cli.test_fsshare import FAMILY

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program as a link of that name would."""

    def run(*words: str, reply: Reply | None = None) -> str:
        def call(message: Call) -> Reply:
            if reply is not None:
                return reply
            if isinstance(message, StatusCall):
                return STATUS
            assert isinstance(message, TenantsCall)
            return TenantsReply(rows=FAMILY, now_s=0.0)

        monkeypatch.setattr(sacctmgr, "call", call)
        monkeypatch.setattr(sys, "argv", ["/home/ada/bin/sacctmgr", *words])
        with pytest.raises(SystemExit):
            program.main()
        found = capsys.readouterr()
        return found.out + found.err

    return run


def test_snakemake_finds_the_accounts_of_a_user(run: Run) -> None:
    out = run("-n", "-s", "list", "user", "ada", "format=account%256")
    assert out == f"{'vision':>256} \n{'video':>256} \n"


def test_open_ondemand_finds_accounts_and_no_qos(run: Run) -> None:
    words = "-nP show users withassoc format=account,qos where user=bob cluster=any"
    assert run(*words.split()) == "video|\nnlp|\n"


def test_associations_are_those_of_accounts_and_of_their_users(run: Run) -> None:
    out = run(
        *["list", "associations", "Format=Cluster,Account,User,QOS", "-P", "where", "account=video"]
    )
    assert out.splitlines() == [
        "Cluster|Account|User|QOS",
        f"{STATUS.federation}|video||",
        f"{STATUS.federation}|video|ada|",
        f"{STATUS.federation}|video|bob|",
    ]
    assert run(*["-nP", "show", "assoc", "where", "user=ada", "format=account,user"]) == (
        "vision|ada\nvideo|ada\n"
    )


def test_a_user_without_accounts_of_each_is_one_row(run: Run) -> None:
    assert run(*["-nP", "show", "user", "ada"]) == "ada|vision|None\n"
    assert run(*["show", "user", "nobody", "-nP"]) == ""


def test_accounts_are_listed(run: Run) -> None:
    assert run(*["-nP", "list", "accounts"]).splitlines()[:2] == [
        "vision|vision|vision",
        "video|video|vision",
    ]
    assert run(*["-np", "list", "account", "nlp", "format=account"]) == "nlp|\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add user bob", "only list and show are the federation's"),
        ("show qos", "ask the site's own sacctmgr"),
        ("show runaway", "ask the site's own sacctmgr"),
        ("show", "ask the site's own sacctmgr"),
        ("", "only list and show are the federation's"),
        ("show user where partition=x", "Unknown condition: partition=x"),
        ("show assoc format=nosuch", 'Invalid field requested: "nosuch"'),
        ("--json show user", "use federator tenants --json"),
    ],
)
def test_other_questions_are_refused_with_what_to_do(run: Run, words: str, said: str) -> None:
    assert said in run(*words.split())


def test_what_the_daemon_refuses_is_said(run: Run) -> None:
    assert "not yours" in run("show", "user", reply=ErrorReply(message="not yours"))


def test_who_has_another_name_on_this_host_is_known_by_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.cli.text.my_name", lambda: "a.one")
    words = ["-nP", "show", "users", "withassoc", "format=account,user", "where", "user=a.one"]
    reply = TenantsReply(rows=FAMILY, now_s=0.0, caller="ada")
    assert run(*words, reply=reply) == "vision|ada\nvideo|ada\n"
