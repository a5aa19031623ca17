"""federator tenants: who may use how much of the fleet, and who uses, borrows and lends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
import msgspec

from federator.cli.client import call
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, TenantRow, TenantsCall, TenantsReply

_HEADER = (
    "TENANT",
    "PRIO",
    "QUOTA(G/C)",
    "LIMIT(G/C)",
    "USED(G/C)",
    "BORROWED",
    "LENT",
    "SHARE%",
    "FAIRSHARE",
    "PENDING(W/O)",
    "TAX(GPUH)",
    "LOST(GPUH)",
)
_NAME_WIDTH = 32


@click.command()
@click.option("--noheader", is_flag=True, help="Only the rows: no header, no modes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/formats.md).")
def tenants(noheader: bool, as_json: bool) -> None:
    """Quota, limit and use of every tenant.

    Amounts are GPUs/CPUs, '-' where nothing bounds them. USED counts a tenant with all below it;
    BORROWED is what its own work holds over quota, LENT what others borrow of its idle quota.
    SHARE% and FAIRSHARE are its part of all use and the credit it gets for it; PENDING counts its
    own waiting workloads within/over quota. GPU types with a quota or limit have a line each. Tenants in a mode
    below enforced are named below the table.

    Example: federator tenants --json
    """
    reply = call(TenantsCall())
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(printable(reply.message))
    if not isinstance(reply, TenantsReply):
        raise unexpected(reply)
    if as_json:
        answer = {
            "schema": 1,
            "now_s": reply.now_s,
            "policy": reply.policy,
            "tenants": reply.rows,
        }
        print(msgspec.json.encode(answer).decode())
    else:
        print(render(reply.rows, header=not noheader))


def render(rows: Sequence[TenantRow], *, header: bool) -> str:
    """The table as text, safe for a terminal; columns are as wide as what is in them."""
    cells: list[tuple[str, ...]] = [_HEADER] if header else []
    for row in rows:
        cells.append(_cells(row))
        cells += _type_cells(row)
    lower = [row for row in rows if row.mode != "enforced"] if header else []
    return "\n".join([_table(cells), *(printable(f"{row.name}: mode {row.mode}") for row in lower)])


def _table(cells: Sequence[Sequence[str]]) -> str:
    if not cells:
        return ""
    safe = [[printable(cell) for cell in line] for line in cells]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    return "\n".join(
        " ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in safe
    )


def _cells(row: TenantRow) -> tuple[str, ...]:
    name = f"{'  ' * row.depth}{row.name[:_NAME_WIDTH]}{'' if row.configured else ' *'}"
    pending = str(row.pending)
    if row.pending_within is not None and row.pending_over is not None:
        pending = f"{row.pending_within}/{row.pending_over}"
    return (
        name,
        str(row.priority),
        _pair(row.quota or {}),
        _pair(row.limit),
        _pair(row.used),
        _pair(row.borrowed),
        _pair(row.lent),
        f"{100 * row.usage_share_frac:.1f}",
        "-" if row.fair_share_term is None else f"{row.fair_share_term:.2f}",
        pending,
        f"{row.preempt_tax_gpu_s / 3600:.2f}",
        f"{row.preempt_lost_gpu_s / 3600:.2f}",
    )


def _pair(amounts: Mapping[str, int | None]) -> str:
    gpus, cpus = amounts.get("gpus"), amounts.get("cpus")
    return "-" if gpus is None and cpus is None else f"{_amount(gpus)}/{_amount(cpus)}"


def _amount(amount: int | None) -> str:
    return "-" if amount is None else str(amount)


def _type_cells(row: TenantRow) -> list[tuple[str, ...]]:
    """A line for each GPU type that the tenant's own quota or limit counts."""
    quota = row.quota or {}
    types = [t for t in row.limit if t not in ("gpus", "cpus")]
    return [
        (
            f"{'  ' * row.depth}  {name} GPUs",
            "",
            _amount(quota.get(name)),
            _amount(row.limit[name]),
            *(_amount(a.get(name)) for a in (row.used, row.borrowed, row.lent)),
            "",
            "",
            "",
            "",
            "",
        )
        for name in types
        if quota.get(name) is not None or row.limit[name] is not None
    ]
