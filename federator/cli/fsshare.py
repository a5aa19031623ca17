"""fsshare: what each account is guaranteed and has used lately, with sshare's options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple

from federator.cli import flags
from federator.cli.client import call
from federator.cli.columns import Column, by_sacct_names, delimited_lines, sacct_lines
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import listed, my_name, unexpected, users_named, with_me
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, TenantRow, TenantsCall, TenantsReply

_DEFAULT: Final = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"
_LONG: Final = (
    "Account,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,"
    "GrpTRESMins,TRESRunMins,Limit,Used,Borrowed"
)
_UNLISTED: Final = "accounts of the federation have no partitions; leave it out"

PROGRAM: Final = Program(
    "fsshare",
    "",
    "Show each account's quota and use, and the fair share that follows, with sshare's options.\n\n"
    "Examples: fsshare · fsshare -a -A vision · fsshare -P -o account,rawusage,fairshare",
    (
        Flag("accounts", "A", "NAMES", "Only these accounts.", also=("account",)),
        Flag("all", "a", about="A row for each user; without it only for you."),
        Flag("clusters", "M", "NAMES", instead="accounts are the federation's, whatever the site"),
        Flag("format", "o", "FIELDS", "Columns: account%20,fairshare (--helpformat)."),
        Flag("helpformat", "e", about="The names of --format."),
        Flag("json", "", "VERSION", optional=True, instead="use federator tenants --json"),
        Flag("long", "l", about="More columns."),
        Flag("noheader", "h", about="No header lines."),
        Flag("no-header", "n", about="As --noheader."),
        Flag("parsable", "p", about="Fields with a bar behind each."),
        Flag("parsable2", "P", about="Fields with bars between them."),
        Flag("partition", "m", instead=_UNLISTED),
        Flag("users", "u", "NAMES", "A row for each of these users.", also=("user", "uid")),
        Flag("Users", "U", about="Only rows of users."),
        Flag("verbose", "v", about="No effect."),
        Flag("yaml", "", "VERSION", optional=True, instead="use federator tenants --json"),
    ),
)  # fmt: skip


class Share(NamedTuple):
    """One line of the table: an account, or one of its users."""

    tenant: TenantRow
    total: int  # GPUs that quotas without a quota above them guarantee, all together
    user: str = ""  # "": the account itself


def fsshare(given: Given) -> int:
    """Show the table."""
    if "helpformat" in given:
        print(" ".join(column.name for column in COLUMNS))
        return 0
    wanted = given.get("format") or (_LONG if "long" in given else _DEFAULT)
    fields = by_sacct_names(wanted, COLUMNS)
    accounts = {name.lower() for name in listed(given.get("accounts"))}
    asked = users_named(given.get("users")) or (my_name(),)
    reply = call(TenantsCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, TenantsReply):
        raise unexpected(reply)
    users = with_me(asked, reply.caller)
    total = _guaranteed(reply.rows)
    shown = [
        share
        for tenant in reply.rows
        if not accounts or tenant.name.lower() in accounts
        for share in _shares(tenant, total, None if "all" in given else users)
        if share.user or "Users" not in given
    ]
    header = not {"noheader", "no-header"} & set(given.values)
    if {"parsable", "parsable2"} & set(given.values):
        trailing = "parsable" in given
        table = delimited_lines(fields, shown, header=header, trailing=trailing)
    else:
        table = sacct_lines(fields, shown, header=header)
    for line in table:
        print(line)
    return 0


def _shares(tenant: TenantRow, total: int, users: tuple[str, ...] | None) -> Iterator[Share]:
    """The line of an account, then those of its users; of all where ``users`` is None."""
    yield Share(tenant, total)
    for user in tenant.users:
        if users is None or user in users:
            yield Share(tenant, total, user)


def _guaranteed(rows: tuple[TenantRow, ...]) -> int:
    """GPUs of all quotas that no other bounds."""
    bounded = {row.name: row for row in rows}

    def is_top(row: TenantRow) -> bool:
        seen = set[str]()
        while row.parent in bounded and row.parent not in seen:
            seen.add(row.parent)
            row = bounded[row.parent]
            if row.quota is not None:
                return False
        return True

    return sum(_gpus(row) for row in rows if row.quota is not None and is_top(row))


def _gpus(tenant: TenantRow) -> int:
    return (tenant.quota or {}).get("gpus") or 0


# ---- values ----


def _account(share: Share) -> str:
    return " " * (share.tenant.depth + bool(share.user)) + share.tenant.name


def _norm_shares(share: Share) -> float:
    return _gpus(share.tenant) / share.total if share.total else 0.0


def _fair_share(share: Share) -> str:
    if share.tenant.fair_share_term is None:  # the policy knows none
        return ""
    return f"{1.0 - share.tenant.usage_share_frac:.6f}"


def _level(share: Share) -> str:
    used = share.tenant.usage_share_frac
    level = _norm_shares(share) / used if used else inf
    return f"{level:.6f}"


def _limit(share: Share) -> str:
    gpus = share.tenant.limit.get("gpus")
    return "" if gpus is None else f"gres/gpu={gpus}"


def _account_only(value: Callable[[Share], str]) -> Callable[[Share], str]:
    """Users have no share of their own: their jobs count as their account's."""
    return lambda share: "" if share.user else value(share)


def _empty(_: Share) -> str:
    return ""


_C = Column[Share]
COLUMNS: Final[tuple[Column[Share], ...]] = (
    _C("Account", "Account", _account, width=-20),
    _C("Cluster", "Cluster", _empty, width=10),
    _C("EffectvUsage", "EffectvUsage", _account_only(lambda s: f"{s.tenant.usage_share_frac:.6f}"),
       width=13),
    _C("FairShare", "FairShare", _fair_share, width=10),
    _C("GrpTRESMins", "GrpTRESMins", _empty, width=30),
    _C("ID", "ID", _empty, width=6),
    _C("LevelFS", "LevelFS", _account_only(_level), width=10),
    _C("NormShares", "NormShares", _account_only(lambda s: f"{_norm_shares(s):.6f}"), width=11),
    _C("NormUsage", "NormUsage", _account_only(lambda s: f"{s.tenant.usage_share_frac:.6f}"),
       width=11),
    _C("Partition", "Partition", _empty, width=12),
    _C("RawShares", "RawShares", lambda s: "parent" if s.user else str(_gpus(s.tenant)), width=10),
    _C("RawUsage", "RawUsage", _account_only(lambda s: f"{s.tenant.average_gpus:.2f}"), width=11),
    _C("TRESRunMins", "TRESRunMins", _empty, width=30),
    _C("User", "User", lambda s: s.user, width=10),
    _C("Limit", "Limit", _account_only(_limit), width=14),
    _C("Used", "Used", _account_only(lambda s: f"gres/gpu={s.tenant.used.get('gpus', 0)}"),
       width=14),
    _C("Borrowed", "Borrowed",
       _account_only(lambda s: f"gres/gpu={s.tenant.borrowed.get('gpus', 0)}"), width=14),
)  # fmt: skip


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fsshare)


if __name__ == "__main__":
    main()
