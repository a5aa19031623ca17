"""``federator shadow step``: a site or tenant one step up or down, by the report's figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import click

from federator.cli.client import NoAnswer, call
from federator.cli.mode_edit import replace_text, with_mode
from federator.cli.reload import show
from federator.cli.shadow_record import DAYS, report_of
from federator.cli.text import printable, refused, unexpected
from federator.config import FederationConfig, load_config
from federator.errors import FederatorError, HistoryError, InvalidRequest
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName
from federator.sim.report.local_report import LocalReport
from federator.sim.report.promotion import Rule, broken_rules
from federator.wire.client_protocol import ErrorReply, ReloadCall, ReloadReply

_WORDS: Final = ("up", "down", *(mode.value for mode in SiteMode))


@click.command("step")
@click.argument("name", metavar="SITE")
@click.argument("to", metavar="up|down|MODE", type=click.Choice(_WORDS))
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    help="The federation.yaml of the daemon, which this changes.",
)
@click.option("--tenant", "is_tenant", is_flag=True, help="SITE is the name of a tenant.")
@click.option("--force", is_flag=True, help="Go up although the figures do not allow it.")
@click.option("--dry-run", is_flag=True, help="Only say whether the figures allow it.")
def step(*, name: str, to: str, config: Path, is_tenant: bool, force: bool, dry_run: bool) -> None:
    """Put SITE one step up or down, or into a mode: change federation.yaml, and reload it.

    The modes are shadow, advisory, opt-in and enforced. Up is refused unless the rules of
    'federator shadow report' hold for the last 30 days. Down is always allowed; of a site below
    opt-in once no job of the federation is there.

    Example: federator shadow step alpine up --config /etc/federator/federation.yaml
    """
    loaded = load_config(config)
    meant = Stepped("tenants" if is_tenant else "sites", name)
    now = mode_now(loaded, meant)
    target = target_of(now, to)
    if target.rank > now.rank and not force:
        broken = _broken(loaded, meant, now, target)
        if broken:
            raise InvalidRequest(_refusal(name, target, broken))
    if dry_run:
        click.echo(f"{name}: {now.value} -> {target.value}: nothing is in the way")
        return
    check_file(config)
    change_mode(config, meant, target)


class Stepped(NamedTuple):
    """What goes a step: ``kind`` is ``sites`` or ``tenants``, the key of federation.yaml."""

    kind: str
    name: str


def mode_now(config: FederationConfig, meant: Stepped) -> SiteMode:
    """The mode that the file gives it; one above a tenant may be lower.

    Raises:
        InvalidRequest: there is none of that name.
    """
    known: dict[str, SiteMode] = {name: site.mode for name, site in config.sites.items()}
    if meant.kind == "tenants":
        known = {name: tenant.mode for name, tenant in config.tenants.items()}
    if meant.name not in known:
        names, word = ", ".join(list(known)[:10]), meant.kind.removesuffix("s")
        raise InvalidRequest(f"unknown {word} {printable(meant.name)}; expected one of {names}")
    return known[meant.name]


def target_of(now: SiteMode, to: str) -> SiteMode:
    """The mode that is meant.

    Raises:
        InvalidRequest: the site is in it, or there is none above or below.
    """
    if to not in ("up", "down"):
        if SiteMode(to) is now:
            raise InvalidRequest(f"it is in mode {now.value} already")
        return SiteMode(to)
    rank = now.rank + (1 if to == "up" else -1)
    if not 0 <= rank < len(SiteMode):
        raise InvalidRequest(f"it is in mode {now.value}: there is no step further {to}")
    return list(SiteMode)[rank]


def _broken(
    config: FederationConfig, meant: Stepped, now: SiteMode, target: SiteMode
) -> list[Rule]:
    """The rules that keep it from a mode; that it goes step by step is one of them."""
    if target.rank > now.rank + 1:
        below = list(SiteMode)[target.rank - 1]
        steps = f"from {now.value}"
        bound = f"from {below.value}"
        return [Rule("one step", target.value, holds=False, value=steps, bound=bound)]
    try:
        about = SiteName(meant.name) if meant.kind == "sites" else None
        report = report_of(config, [], time.time() - DAYS * 86_400.0, inf, about=about)
    except (HistoryError, InvalidRequest) as error:
        return [Rule("record", target.value, holds=False, value=str(error), bound="14 days")]
    rules = _rules_in(report, meant)
    if rules is None:
        return [Rule("record", target.value, holds=False, value="none", bound="14 days")]
    return broken_rules(rules, target)


def _rules_in(report: LocalReport, meant: Stepped) -> list[Rule] | None:
    if meant.kind == "sites":
        return next((each.rules for each in report.sites if each.site == meant.name), None)
    return next((each.rules for each in report.tenants if each.tenant == meant.name), None)


def _refusal(name: str, target: SiteMode, broken: list[Rule]) -> str:
    """In words; a value may hold text of the site's users, such as an account."""
    said = "; ".join(
        f"{rule.name}: {printable(rule.value)}, needed: {rule.bound}" for rule in broken
    )
    return f"{name} stays: for mode {target.value} {said} (--force goes up all the same)"


def check_file(path: Path) -> None:
    """Raise ``InvalidRequest`` unless the daemon goes by this file as it is."""
    pending = _asked(ReloadCall(dry_run=True))
    if not pending.path or not _is_same(Path(pending.path), path):
        raise InvalidRequest(f"{path}: the daemon goes by {printable(pending.path)}")
    if pending.changes:
        keys = ", ".join(each.key for each in pending.changes[:5])
        raise InvalidRequest(f"{path} has changes of its own ({printable(keys)}): reload it first")


def change_mode(path: Path, meant: Stepped, target: SiteMode) -> None:
    """Change the file, and have the daemon go by it; if that is refused, the file is as it was."""
    text = path.read_text()
    replace_text(path, with_mode(text, meant.name, target, meant.kind))
    _or_undo(lambda: show(ReloadCall(), as_json=False), lambda: replace_text(path, text))


def _or_undo(act: Callable[[], None], undo: Callable[[], None]) -> None:
    try:
        act()
    except NoAnswer:
        raise  # the daemon may go by it already: the file must say the same
    except FederatorError:
        undo()
        raise


def _asked(question: ReloadCall) -> ReloadReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, ReloadReply):
        raise unexpected(reply)
    return reply


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
