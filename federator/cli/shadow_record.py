"""Makes the report on sites' own jobs of what the history holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from federator.audit.drills import last_drills
from federator.audit.service import audit_folder
from federator.config import FederationConfig
from federator.config_tenants import mode_of
from federator.errors import AuditError, InvalidRequest
from federator.history.local_jobs import LocalHistory
from federator.model.drain import DatedDrill
from federator.model.site_mode import SiteMode
from federator.model.workload import SiteName
from federator.sim.report.local_report import LocalReport
from federator.sim.report.promotion import DRILL_HOLDS_DAYS, Rule, leave_rule

DAYS: Final = 30  # that are looked at by default
_DAY_S: Final = 86_400.0


def report_of(  # noqa: PLR0913 - each is a part of the question
    config: FederationConfig,
    sites: Sequence[SiteName],
    since_s: float,
    until_s: float,
    *,
    any_gpu: bool = False,
    seed: int = 0,
    about: SiteName | None = None,
) -> LocalReport:
    """The report on some sites, or on all that are watched.

    With ``about`` those of which the record begins more than a day later than that of this site are
    left out: they would cut off what is known of it.

    Raises:
        HistoryError: it cannot be read.
        InvalidRequest: none is kept, or nothing was watched.
    """
    from federator.cli.progress import progress_bar  # noqa: PLC0415
    from federator.history.database import open_reader  # noqa: PLC0415
    from federator.history.local_jobs import read  # noqa: PLC0415
    from federator.history.url import NONE, history_url  # noqa: PLC0415
    from federator.sim.importers.local_history import past_records, watched_period  # noqa: PLC0415
    from federator.sim.local_replay import replay  # noqa: PLC0415
    from federator.sim.report.local_report import Modes, local_report  # noqa: PLC0415

    url = history_url(config.history.url, config.store)
    if url == NONE:
        raise InvalidRequest("no history is kept (history.url), so no record of the sites' jobs")
    history = read(open_reader(url), since_s, until_s)
    seen = {span.site for span in history.spans} & history.capacities.keys()
    watched = [n for n in config.sites if config.watches(n)]
    names = [name for name in sites or watched if name in seen]
    if about in names:
        names = [n for n in names if _first_s(history, n) <= _first_s(history, about) + _DAY_S]
    missing = [name for name in sites if name not in seen]
    if missing or not names:
        which = ", ".join(missing) or "no site"
        words = ", ".join(mode.value for mode in SiteMode if mode is not SiteMode.ENFORCED)
        raise InvalidRequest(
            f"{which}: not watched since {_day(since_s)}; a site's own jobs are recorded while "
            f"it, or a tenant, is in one of the modes {words}"
        )
    period = watched_period(history, names, since_s, until_s)
    if period is None:
        raise InvalidRequest("the sites were not watched at one time; choose them with --site")
    past = past_records(history, names, period, any_gpu=any_gpu)
    capacities = {name: history.capacities[name] for name in names}
    with progress_bar("replaying", 3 * len(past.records)) as progress:
        replayed = replay(past, capacities, config, period.begin_s, seed, progress)
    modes = Modes(
        sites={name: config.sites[name].mode.value for name in names},
        tenants={name: mode_of(name, config.tenants).value for name in config.tenants},
        leave=leave_rules(config, names, time.time()),
    )
    return local_report(replayed, period, past.unseen, modes, config.policy.name, seed)


def leave_rules(
    config: FederationConfig, sites: Iterable[SiteName], now_s: float
) -> dict[SiteName, Rule]:
    """How each of these sites stands by its last leave drill, of which the audit tells."""
    folder, unknown = audit_folder(config.audit.dir, config.store), ""
    drills: dict[SiteName, DatedDrill] = {}
    if folder is None:
        unknown = "not known, as no audit is kept (audit.dir)"
    else:
        try:
            drills = last_drills(folder, now_s - DRILL_HOLDS_DAYS * _DAY_S)
        except AuditError as error:
            unknown = f"not known: {error}"
    return {site: leave_rule(drills.get(site), unknown) for site in sites}


def _first_s(history: LocalHistory, site: SiteName) -> float:
    """When a site was first watched."""
    return min(span.since_s for span in history.spans if span.site == site)


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
