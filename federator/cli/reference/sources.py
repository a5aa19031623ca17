"""Tells where the values of options and operands come from: the daemon, a list, or the files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from federator.cli import queue_columns
from federator.cli.accounting_columns import COLUMNS as ACCOUNTING_COLUMNS
from federator.cli.fscontrol import CARRIED_OUT as CONTROL_COMMANDS
from federator.cli.job_states import CODES
from federator.cli.node_columns import COLUMNS as NODE_COLUMNS
from federator.cli.reference.commands import CommandOption, CommandReference
from federator.cli.signal_names import SIGNALS
from federator.slurm.options.mail_option import OWN_TYPES


class Source(NamedTuple):
    """Where values come from; empty: nobody knows them. With words and live: "afterok:ID"."""

    live: str = ""  # a kind of federator.cli.completion_words
    words: tuple[str, ...] = ()
    is_path: bool = False


_LIVE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("accounts", "account"), "accounts"),
        **dict.fromkeys(("users", "user", "uid"), "users"),
        **dict.fromkeys(("partitions", "partition"), "partitions"),
        "clusters": "sites",
        "name": "names",
        "fed-gpu-types": "gpu-types",
    }
)
_BY_VALUE: Final[Mapping[str, str]] = MappingProxyType(
    {"IDS": "jobs", "NODES": "nodes", "SITE": "sites"}
)
_MAIL: Final = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "TIME_LIMIT", "ARRAY_TASKS"),
    *OWN_TYPES,
)
_CONDITIONS: Final = ("after:", "afterok:", "afterany:", "afternotok:", "aftercorr:", "singleton")
_WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("fsqueue", "Format"): tuple(column.name for column in queue_columns.COLUMNS),
        ("fsinfo", "Format"): tuple(column.name for column in NODE_COLUMNS),
        ("fsacct", "format"): tuple(column.name for column in ACCOUNTING_COLUMNS),
        ("fsqueue", "json"): ("slurm",),
        ("fsinfo", "json"): ("slurm",),
        ("fsacct", "json"): ("slurm",),
        ("fscontrol", "json"): ("slurm",),
        ("fsinfo", "states"): (
            *("idle", "mixed", "allocated", "drained", "draining", "down", "maint", "reserved"),
        ),
        ("fscancel", "signal"): tuple(SIGNALS),
        ("fsbatch", "mail-type"): _MAIL,
        ("fsbatch", "dependency"): _CONDITIONS,
        ("fsbatch", "open-mode"): ("append", "truncate"),
        ("fsbatch", "kill-on-invalid-dep"): ("yes", "no"),
    }
)
_FILES: Final = frozenset({"output", "error", "input", "chdir", "config", "trace", "pools"})
_OPERANDS: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "fsqueue": Source(live="jobs"),
        "fsprio": Source(live="jobs"),
        "fscancel": Source(live="own-jobs"),
        "fscontrol": Source(live="own-jobs"),
        "fseff": Source(live="ended-jobs"),
        "federator explain": Source(live="jobs"),
    }
)
FIRST_WORDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"fscontrol": tuple(CONTROL_COMMANDS)}
)
"""Of commands whose first operand is one of these."""


def of_option(command: CommandReference, option: CommandOption) -> Source:
    """Return where the values of an option come from."""
    name = option.long[0].lstrip("-") if option.long else ""
    words = option.words or _WORDS.get((command.name, name), ())
    if not words and option.value == "STATES":
        words = tuple(CODES)
    if words:
        return Source(live="own-jobs" if words is _CONDITIONS else "", words=words)
    if option.is_path or (name in _FILES and command.name == "fsbatch"):
        return Source(is_path=True)
    live = _BY_VALUE.get(option.value) or _LIVE.get(name, "")
    if live == "jobs" and command.name in ("fscancel", "fsacct"):
        live = "own-jobs" if command.name == "fscancel" else "ended-jobs"
    return Source(live=live)


def of_operands(command: CommandReference) -> Source:
    """Return where the operands of a command come from."""
    if command.operand_path:
        return Source(is_path=True)
    if " SITE" in command.operands:
        return Source(live="sites")
    return _OPERANDS.get(command.name, Source())
