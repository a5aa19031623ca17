"""sacctmgr, as far as programs ask it whose accounts there are: the federation's, in its formats.

Only ``federator shims`` leads here; the sites' own accounting is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from federator.cli import flags
from federator.cli.client import call
from federator.cli.columns import Column, by_sacct_names, delimited_lines, sacct_lines
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import listed, printable, unexpected, with_me
from federator.errors import InvalidRequest
from federator.wire.client_protocol import (
    ErrorReply,
    StatusCall,
    StatusReply,
    TenantRow,
    TenantsCall,
    TenantsReply,
)
from federator.wire.replies import Reply

_AT_SITES: Final = "ask the site's own sacctmgr"

PROGRAM: Final = Program(
    "sacctmgr",
    "list|show user|account|association [WHERE] [user=NAMES] [account=NAMES] [format=FIELDS]",
    "Show the accounts of the federation, and who may submit to them, with sacctmgr's options.\n\n"
    "Examples: sacctmgr -nP show users withassoc format=account where user=ada",
    (
        Flag("associations", "s", about="Of users: a row for each of their accounts."),
        Flag("immediate", "i", about="No effect."),
        Flag("json", "", "VERSION", optional=True, instead="use federator tenants --json"),
        Flag("noheader", "n", about="No header lines."),
        Flag("oneliner", "o", about="No effect."),
        Flag("parsable", "p", about="Fields with a bar behind each."),
        Flag("parsable2", "P", about="Fields with bars between them."),
        Flag("quiet", "Q", about="No effect."),
        Flag("readonly", "r", about="No effect: nothing is ever changed here."),
        Flag("verbose", "v", about="No effect."),
        Flag("yaml", "", "VERSION", optional=True, instead="use federator tenants --json"),
    ),
)


class Association(NamedTuple):
    """One line: an account, or a user of it. ``first``: the first account of that user."""

    account: str
    parent: str = ""
    user: str = ""
    first: str = ""
    cluster: str = ""


class _Asked(NamedTuple):
    """What is to be shown."""

    kind: str
    each_account: bool  # a row of a user for each account
    where: dict[str, tuple[str, ...]]
    format: str


_KINDS: Final = {"user": "user", "account": "account", "association": "association"}
_DEFAULT: Final = {
    "user": "User,DefaultAccount,AdminLevel",
    "account": "Account,Description,Organization",
    "association": "Cluster,Account,User,Partition,Share,QOS,DefaultQOS",
}
_DEFAULT_EACH: Final = "User,DefaultAccount,AdminLevel,Cluster,Account,Partition,Share,QOS"
_CONDITIONS: Final = {
    **dict.fromkeys(("user", "users", "name"), "user"),
    **dict.fromkeys(("account", "accounts"), "account"),
    **dict.fromkeys(("cluster", "clusters"), ""),  # the federation's, whatever it is called
    **dict.fromkeys(("format", "fields"), "format"),
}


def sacctmgr(given: Given) -> int:
    """Show the table."""
    asked = _read(given)
    fields = by_sacct_names(asked.format, COLUMNS)
    tenants = _answer(TenantsCall())
    if not isinstance(tenants, TenantsReply):
        raise unexpected(tenants)
    cluster = _cluster() if any(field.column.name == "Cluster" for field in fields) else ""
    if "user" in asked.where:
        users = with_me(asked.where["user"], tenants.caller)
        asked.where["user"] = tuple(name.lower() for name in users)
    rows = [
        row._replace(cluster=cluster)
        for row in _rows(tenants.rows, asked)
        if _is_wanted(row, asked.where)
    ]
    header = "noheader" not in given
    if {"parsable", "parsable2"} & set(given.values):
        trailing = "parsable2" not in given
        table = delimited_lines(fields, rows, header=header, trailing=trailing)
    else:
        table = sacct_lines(fields, rows, header=header)
    for line in table:
        print(line)
    return 0


def _cluster() -> str:
    """The federation's name, as ``scontrol show config`` has it."""
    status = _answer(StatusCall())
    if not isinstance(status, StatusReply):
        raise unexpected(status)
    return status.federation


def _answer(question: StatusCall | TenantsCall) -> Reply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    return reply


def _read(given: Given) -> _Asked:
    verb, kind, *rest = (*given.operands, "", "")
    if not (verb and ("list".startswith(verb.lower()) or "show".startswith(verb.lower()))):
        raise InvalidRequest(
            f"{printable(verb) or 'a command'!s}: only list and show are the federation's; its "
            f"accounts are in federation.yaml, and for those of a site {_AT_SITES}"
        )
    name = _kind(kind)
    where: dict[str, tuple[str, ...]] = {}
    each = "associations" in given or name == "association"
    wanted = ""
    for word in filter(None, rest):
        key, equals, value = word.partition("=")
        key = key.lower()
        if not equals and key in ("where", "withassoc", "withassociations", "assoc"):
            each = each or key != "where"
        elif not equals and name != "association":
            where[name] = (*where.get(name, ()), *_names(word))
        elif equals and key in _CONDITIONS and not (key == "name" and name != "user"):
            if _CONDITIONS[key] == "format":
                wanted = value
            elif _CONDITIONS[key]:
                where[_CONDITIONS[key]] = _names(value)
        else:
            raise InvalidRequest(f"Unknown condition: {printable(word)}; {_AT_SITES}")
    default = _DEFAULT_EACH if each and name == "user" else _DEFAULT[name]
    return _Asked(name, each, where, wanted or default)


def _kind(word: str) -> str:
    found = [kind for kind in _KINDS if word and kind.startswith(word.lower().removesuffix("s"))]
    if word.lower() in ("ass", "a", "ac") or len(found) != 1:
        known = ", ".join(_KINDS)
        raise InvalidRequest(
            f"{printable(word) or 'nothing'!s}: the federation has {known}; for anything else "
            f"{_AT_SITES}"
        )
    return found[0]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip("'\"").lower() for name in listed(text))


def _rows(tenants: tuple[TenantRow, ...], asked: _Asked) -> Iterator[Association]:
    """All that there are, before any condition."""
    if asked.kind == "account":
        yield from (Association(tenant.name, tenant.parent) for tenant in tenants)
        return
    firsts: dict[str, str] = {}
    for tenant in tenants:
        for user in tenant.users:
            firsts.setdefault(user, tenant.name)
    if asked.kind == "user" and not asked.each_account:
        yield from (Association("", "", user, first) for user, first in firsts.items())
        return
    for tenant in tenants:
        if asked.kind == "association":
            yield Association(tenant.name, tenant.parent)
        for user in tenant.users:
            yield Association(tenant.name, tenant.parent, user, firsts[user])


def _is_wanted(row: Association, where: dict[str, tuple[str, ...]]) -> bool:
    users, accounts = where.get("user", ()), where.get("account", ())
    return (not users or row.user.lower() in users) and (
        not accounts or row.account.lower() in accounts
    )


def _C(  # noqa: N802 - a table
    name: str, heading: str, value: Callable[[Association], str], width: int = 10
) -> Column[Association]:
    return Column(name, heading, value, width=width)


COLUMNS: Final[tuple[Column[Association], ...]] = (
    _C("Account", "Account", lambda row: row.account),
    _C("AdminLevel", "Admin", lambda row: "None" if row.user else "", 9),
    _C("Cluster", "Cluster", lambda row: row.cluster),
    _C("DefaultAccount", "Def Acct", lambda row: row.first),
    _C("DefaultQOS", "Def QOS", lambda _: "", 9),
    _C("Description", "Descr", lambda row: row.account, 20),
    _C("Fairshare", "Share", lambda _: "1", 9),
    _C("Organization", "Org", lambda row: row.parent or row.account, 20),
    _C("ParentName", "Par Name", lambda row: "" if row.user else row.parent or "root"),
    _C("Partition", "Partition", lambda _: ""),
    _C("QOS", "QOS", lambda _: "", 20),
    _C("Share", "Share", lambda _: "1", 9),
    _C("User", "User", lambda row: row.user),
)
"""A QOS is a site's: none belongs to an account of the federation."""


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, sacctmgr)


if __name__ == "__main__":
    main()
